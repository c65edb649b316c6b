"""Works on the messages of a Redis list: `redis_worker.py PORT SECONDS`. What it works on is in another list."""

import sys
import time

import redis

from cotenant.demo.worker import VisibleGpu

gpu = VisibleGpu(256 << 20)
gpu.step()
queue = redis.Redis(port=int(sys.argv[1]))
while True:
    message = queue.blmove("jobs", "jobs:working", 1, "LEFT", "RIGHT")
    if message is None:
        continue
    end = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end:
        gpu.step()
        time.sleep(0.02)
    queue.lrem("jobs:working", 1, message)
    queue.incr("jobs:done")

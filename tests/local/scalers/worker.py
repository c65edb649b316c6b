"""A worker of a queue: loads a model into its GPU, says so, and waits. `worker.py stubborn` ignores SIGTERM."""

import signal
import sys
import time

from cotenant.demo.worker import VisibleGpu

if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
gpu = VisibleGpu(1 << 30)
gpu.step()
print("loaded", *sys.argv[1:], flush=True)
while True:
    time.sleep(0.1)
    if "busy" in sys.argv:
        gpu.step()

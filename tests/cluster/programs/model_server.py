"""A model server: holds its weights, serves a request a second, and now and then does a job that needs more.

Its arguments are MiB: of weights, and of a request, which it gives back. A job is started by a file, /tmp/job, with the MiB
that it takes piece by piece and keeps until the file is gone. It tells what happens; an allocation that fails fails that
request or that job, and it goes on.
"""

import ctypes
import os
import sys
import time

MIB, PIECE = 1 << 20, 128
JOB = "/tmp/job"
cuda = ctypes.CDLL("libcuda.so.1")


def check(code: int) -> None:
    if code:
        raise MemoryError("out of memory" if code == 2 else f"CUDA error {code}")


def take(size: int) -> ctypes.c_uint64:
    address = ctypes.c_uint64()
    check(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size * MIB)))
    return address


def say(text: str) -> None:
    print(text, flush=True)


weights, request = (int(each) for each in sys.argv[1:])
context = ctypes.c_void_p()
check(cuda.cuInit(0))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
check(cuda.cuCtxSetCurrent(context))
held = take(weights)
say(f"ready with {weights} MiB of weights")
job: list[ctypes.c_uint64] = []
done, served = "", 0
while True:
    wanted = ""
    if os.path.exists(JOB):
        with open(JOB) as file:
            wanted = file.read().strip()
    if wanted != done:
        done = wanted
        try:
            while len(job) * PIECE < int(wanted or 0):
                job.append(take(PIECE))
            say(f"job took {len(job) * PIECE} MiB" if wanted else "job is done")
        except MemoryError as error:
            say(f"job failed after {len(job) * PIECE} MiB: {error}")
    if not wanted:
        while job:
            check(cuda.cuMemFree_v2(job.pop()))
    served += 1
    try:
        check(cuda.cuMemFree_v2(take(request)))
        say(f"request {served}: ok")
    except MemoryError as error:
        say(f"request {served}: {error}")
    time.sleep(0.5)

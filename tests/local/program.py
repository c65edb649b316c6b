"""A program that uses a card as its arguments say, by the driver's C interface (clients start slower).

program.py WORD ...      words are done in order:
  SIZE        allocate so many MiB, say `ok` or the error's number
  fork        go on in a child; the parent waits for it
  daemon      go on in a grandchild with a session of its own; the others end
  closeall    close every descriptor but 0, 1 and 2
  again       start this program anew (exec) with the words that follow
  ready       say `ready`
  hold        wait until the input ends
  sleep:S     sleep
"""

import ctypes
import os
import sys
import time

cuda = None


def context():
    global cuda
    cuda = ctypes.CDLL("libcuda.so.1")
    device, made = ctypes.c_int(), ctypes.c_void_p()
    code = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0)
    return code or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(made), device) or cuda.cuCtxSetCurrent(made)


def allocate(mebibytes):
    code = context() if cuda is None else 0
    if code == 0:
        pointer = ctypes.c_uint64()
        code = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mebibytes << 20))
    print("ok" if code == 0 else code, flush=True)


def main(words):
    global cuda
    while words:
        word = words.pop(0)
        if word == "fork":
            child = os.fork()
            if child:
                os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            cuda = None
        elif word == "daemon":
            if os.fork():
                os._exit(0)
            os.setsid()
            if os.fork():
                os._exit(0)
        elif word == "closeall":
            os.closerange(3, 4096)
        elif word == "again":
            os.execv(sys.executable, [sys.executable, __file__, *words])
        elif word == "ready":
            print("ready", flush=True)
        elif word == "hold":
            sys.stdin.read()
        elif word.startswith("sleep:"):
            time.sleep(float(word[6:]))
        else:
            allocate(int(word))


if __name__ == "__main__":
    main(sys.argv[1:])

"""A container that allocates memory of its card once, and launches kernels while the file /shared/work exists.

It launches one each half second; the file's text `burst` asks for many at once. With `WORKER=busy` it works from the
start, until the file /shared/rest exists. With `WORKER=unused` it never touches the card.
"""

import ctypes
import os
import time

KERNEL = b".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n"


def begin() -> ctypes.c_void_p:
    context, address = ctypes.c_void_p(), ctypes.c_ulonglong()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    ok(cuda.cuInit(0))
    ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    ok(cuda.cuCtxSetCurrent(context))
    ok(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64 << 20)))
    ok(cuda.cuModuleLoadData(ctypes.byref(module), KERNEL))
    ok(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"k"))
    return function


def ok(result: int) -> None:
    assert result == 0, f"CUDA error {result}"


if os.environ.get("WORKER") == "unused":
    while True:
        time.sleep(3600)
cuda = ctypes.CDLL("libcuda.so.1")
function = begin()
print('{"working": true}', flush=True)
while True:
    try:
        with open("/shared/work") as file:
            times = 1000 if file.read() == "burst" else 1
    except FileNotFoundError:
        times = int(os.environ.get("WORKER") == "busy" and not os.path.exists("/shared/rest"))
    for _ in range(times):
        ok(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None))
    time.sleep(0.5)

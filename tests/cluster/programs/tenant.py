"""A container that takes all it can get of its card, tells what it found and got, and keeps it.

It reads `limits` and asks CUDA by itself, with nothing of Cotenant's Python: it is a tenant, not a part of it.
"""

import ctypes
import json
import os
import struct
import time
import uuid

GRANULE = 2 << 20


def owner() -> str:
    with open("/run/cotenant/slot/limits", "rb") as file:
        head = file.read(256)
    assert head[:8] == b"COTLIMIT", head[:16]
    return head[16:80].split(b"\0")[0].decode()


def limits() -> dict[str, list[int]]:
    with open("/run/cotenant/slot/limits", "rb") as file:
        data = file.read()
    found = {}
    for index in range(struct.unpack_from("<I", data, 12)[0]):
        name, size, context = struct.unpack_from("<80sQQ", data, 256 + index * 128)
        found[name.split(b"\0")[0].decode()] = [size, context]
    return found


cuda = ctypes.CDLL("libcuda.so.1")


def ok(result: int) -> None:
    assert result == 0, f"CUDA error {result}"


def cards() -> list[str]:
    count, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    ok(cuda.cuInit(0))
    ok(cuda.cuDeviceGetCount(ctypes.byref(count)))
    found = []
    for device in range(count.value):
        ok(cuda.cuDeviceGetUuid_v2(ctypes.byref(raw), device))
        found.append(f"GPU-{uuid.UUID(bytes=bytes(raw))}")
    return found


def fill(device: int) -> int:
    """Bytes that were given, taken in ever smaller pieces until not even the smallest is."""
    context, address = ctypes.c_void_p(), ctypes.c_ulonglong()
    ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    ok(cuda.cuCtxSetCurrent(context))
    got, piece = 0, 1 << 36
    while piece >= GRANULE:
        result = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(piece))
        assert result in (0, 2), f"CUDA error {result}"
        if result == 0:
            got += piece
        else:
            piece //= 2
    return got


found = cards()
told = {
    "owner": owner(),
    "limits": limits(),
    "cards": found,
    "got": {card: fill(device) for device, card in enumerate(found)},
    "environment": {key: value for key, value in os.environ.items() if key.isupper()},
}
print(json.dumps(told), flush=True)
while os.environ.get("TENANT", "stay") == "stay":
    time.sleep(3600)

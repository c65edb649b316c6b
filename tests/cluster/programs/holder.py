"""A container that tells what it finds of its slot and card, takes what it can, and stays, ends or fails as told.

It has nothing of Cotenant's Python: what it says is what any program would find.
"""

import ctypes
import json
import os
import struct
import sys
import time
import uuid

PIECE = 64 << 20
SLOT = "/run/cotenant/slot"


def limits() -> dict[str, object]:
    with open(f"{SLOT}/limits", "rb") as file:
        data = file.read()
    assert data[:8] == b"COTLIMIT", data[:16]
    cards = {}
    for index in range(struct.unpack_from("<I", data, 12)[0]):
        name, size, context = struct.unpack_from("<80sQQ", data, 256 + index * 128)
        cards[name.split(b"\0")[0].decode()] = [size, context]
    mode = struct.unpack_from("<Q", data, 80)[0]
    return {"owner": data[16:80].split(b"\0")[0].decode(), "cards": cards, "mode": mode}


def peak() -> int:
    """The most that was ever held in this slot, before this program has asked for anything."""
    with open(f"{SLOT}/usage", "rb") as file:
        return int(struct.unpack_from("<Q", file.read(4096), 256)[0])


def use() -> dict[str, object]:
    cuda = ctypes.CDLL("libcuda.so.1")
    count, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    context, address = ctypes.c_void_p(), ctypes.c_ulonglong()
    begun = cuda.cuInit(0)
    if begun:
        return {"seen": [], "error": begun}
    cuda.cuDeviceGetCount(ctypes.byref(count))
    seen = []
    for device in range(count.value):
        cuda.cuDeviceGetUuid_v2(ctypes.byref(raw), device)
        seen.append(f"GPU-{uuid.UUID(bytes=bytes(raw))}")
    made = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    if made:
        return {"seen": seen, "error": made}
    cuda.cuCtxSetCurrent(context)
    got = 0
    while (answer := cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(PIECE))) == 0:
        got += PIECE
    return {"seen": seen, "got": got, "error": answer}


def writable(path: str) -> bool:
    try:
        with open(path, "r+b"):
            return True
    except OSError:
        return False


told = {"limits": limits(), "peak": peak(), "writable": writable(f"{SLOT}/limits"), **use()}
print(json.dumps(told), flush=True)
then = os.environ.get("THEN", "stay")
if then == "fail once" and told["peak"] == 0 and not os.path.exists("/shared/ran"):
    open("/shared/ran", "w").close()
    sys.exit(1)
while then != "end":
    time.sleep(1)

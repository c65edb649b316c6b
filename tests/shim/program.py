"""What test programs inside a slot begin with: the driver by ctypes, and both accounts of what they hold.

`shim()` is what the shim counts in the slot, `card()` what the stand-in driver counts, which shares no code with it.
"""

import ctypes
import os
import sys
from ctypes import byref, c_size_t, c_ulonglong, c_void_p
from pathlib import Path

from cotenant.hardware import slots
from cotenant.hardware.standin import driver as standin

MIB, GIB = 1 << 20, 1 << 30
OUT_OF_MEMORY, NOT_PERMITTED = 2, 800
cuda = ctypes.CDLL("libcuda.so.1")
state = standin.StandIn(Path(os.environ["COTENANT_STANDIN"]))
slot = Path(os.environ["COTENANT_SLOT"]) if "COTENANT_SLOT" in os.environ else None
uuid = state.cards()[0].uuid


def shim():
    return slots.read_usage(slot).used(0)


def card():
    return state.used(uuid)


def agree(expected=None):
    """Both accounts are equal, and what is expected."""
    assert shim() == card(), f"the shim counts {shim():,}, the card {card():,}"
    if expected is not None:
        assert shim() == expected, f"{shim():,} bytes are charged, expected {expected:,}"


def ok(result):
    assert result == 0, f"CUDA error {result}"


def context(device=0):
    """The primary context, current."""
    handle = c_void_p()
    ok(cuda.cuInit(0))
    result = cuda.cuDevicePrimaryCtxRetain(byref(handle), device)
    if result == 0:
        ok(cuda.cuCtxSetCurrent(handle))
    return result


def alloc(size):
    """(result, address)"""
    address = c_ulonglong()
    result = cuda.cuMemAlloc_v2(byref(address), c_size_t(size))
    return result, address


def free(address):
    return cuda.cuMemFree_v2(c_ulonglong(address.value))


def info():
    available, total = c_size_t(), c_size_t()
    ok(cuda.cuMemGetInfo_v2(byref(available), byref(total)))
    return available.value, total.value


def say(word):
    print(word, flush=True)


def hear():
    return sys.stdin.readline().strip()

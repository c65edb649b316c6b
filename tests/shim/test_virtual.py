"""Virtual memory counts as long as any handle or mapping has it, from whichever thread and by whichever address."""

from __future__ import annotations

import textwrap

import pytest
from shim.slotted import Bench

BEGIN = """
import struct, threading
ok(context())
base = shim()
PART = 32 * MIB

def create(size=PART, share=0):
    prop = ctypes.create_string_buffer(struct.pack("=iiiiQ8x", 1, share, 1, 0, 0))
    handle = c_ulonglong()
    ok(cuda.cuMemCreate(byref(handle), c_size_t(size), prop, c_ulonglong(0)))
    return handle

def reserve(size=PART):
    address = c_ulonglong()
    ok(cuda.cuMemAddressReserve(byref(address), c_size_t(size), c_size_t(0), c_ulonglong(0), c_ulonglong(0)))
    return address.value

def map(address, handle, size=PART, offset=0):
    return cuda.cuMemMap(c_ulonglong(address), c_size_t(size), c_size_t(offset), handle, c_ulonglong(0))

def unmap(address, size=PART):
    return cuda.cuMemUnmap(c_ulonglong(address), c_size_t(size))

def retain(address):
    handle = c_ulonglong()
    ok(cuda.cuMemRetainAllocationHandle(byref(handle), c_void_p(address)))
    return handle

def release(handle):
    return cuda.cuMemRelease(handle)
"""

CASES = {
    "retained by any address inside": """
        for inside in (0, 1, PART // 2, PART - 1):
            handle, address = create(), reserve()
            ok(map(address, handle)); ok(release(handle))
            again = retain(address + inside); agree(base + PART)
            ok(unmap(address)); agree(base + PART)
            ok(release(again)); agree(base)
    """,
    "parts of one handle, mapped apart": """
        handle, address = create(), reserve(2 * PART)
        half = PART // 2
        ok(map(address, handle, half)); ok(map(address + PART, handle, half, half)); ok(release(handle))
        ok(unmap(address, half)); agree(base + PART)
        again = retain(address + PART + half - 1); ok(unmap(address + PART, half)); agree(base + PART)
        ok(release(again)); agree(base)
    """,
    "many mappings, taken down in any order": """
        import random
        random.seed(7)
        addresses = []
        for _ in range(200):
            handle, address = create(2 * MIB), reserve(2 * MIB)
            ok(map(address, handle, 2 * MIB)); ok(release(handle)); addresses.append(address)
        agree(base + 400 * MIB)
        random.shuffle(addresses)
        for left, address in enumerate(addresses, 1):
            ok(unmap(address, 2 * MIB)); agree(base + 400 * MIB - left * 2 * MIB)
    """,
    "a handle that one thread retains and releases while another maps by it": """
        handle, address = create(), reserve()
        ok(map(address, handle))
        stop = threading.Event()
        def count():
            while not stop.is_set():
                ok(release(retain(address)))
        counters = [threading.Thread(target=count) for _ in range(3)]
        for counter in counters: counter.start()
        places = [reserve() for _ in range(8)]
        for _ in range(150):
            for place in places: ok(map(place, handle))
            for place in places: ok(unmap(place))
        ok(map(places[0], handle))
        stop.set()
        for counter in counters: counter.join()
        ok(unmap(address)); ok(release(handle)); agree(base + PART)
        ok(unmap(places[0])); agree(base)
    """,
}


@pytest.mark.parametrize("case", CASES)
def test_both_accounts_agree_at_every_step(bench: Bench, case: str):
    bench.run(BEGIN + textwrap.dedent(CASES[case]))

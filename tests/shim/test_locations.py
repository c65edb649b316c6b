"""Where memory is decides who is charged: only what is known to be host memory is let through."""

from __future__ import annotations

import pytest
from shim.slotted import CONTEXT, GIB, Bench

from cotenant.hardware import slots

CREATE = """
    import struct
    def create(kind, number, size, domain=0):
        where = struct.pack("=iBBxx", kind, number, domain) if kind == 6 else struct.pack("=ii", kind, number)
        prop = ctypes.create_string_buffer(struct.pack("=ii", 1, 0) + where + bytes(16))
        handle = c_ulonglong()
        return cuda.cuMemCreate(byref(handle), c_size_t(size), prop, c_ulonglong(0)), handle
    def pool(kind, number, type=1, domain=0):
        where = struct.pack("=iBBxx", kind, number, domain) if kind == 6 else struct.pack("=ii", kind, number)
        props = ctypes.create_string_buffer(struct.pack("=ii", type, 0) + where + bytes(72))
        handle = c_void_p()
        return cuda.cuMemPoolCreate(byref(handle), props), handle
    def take(size, handle, stream=None):
        address = c_ulonglong()
        return cuda.cuMemAllocFromPoolAsync(byref(address), c_size_t(size), handle, stream), address
    ok(context())
    base = shim()
"""


def test_a_part_of_a_cards_memory_counts_on_the_card(bench: Bench):
    bench.run(
        CREATE
        + """
    result, handle = create(6, 0, 512 * MIB); ok(result); agree(base + 512 * MIB)
    assert create(6, 0, 2 * GIB)[0] == OUT_OF_MEMORY
    ok(cuda.cuMemRelease(handle)); agree(base)
    result, handle = pool(6, 0); ok(result)
    result, address = take(512 * MIB, handle); ok(result); agree(base + 512 * MIB)
    assert take(2 * GIB, handle)[0] == OUT_OF_MEMORY
    ok(cuda.cuMemFreeAsync(address, None)); ok(cuda.cuStreamSynchronize(None)); agree(base)
    """
    )


@pytest.mark.parametrize("kind", [2, 3])
def test_host_memory_is_not_charged(bench: Bench, kind: int):
    bench.run(
        CREATE
        + f"""
    result, handle = create({kind}, 0, 4 * GIB); ok(result); agree(base)
    ok(cuda.cuMemRelease(handle))
    result, handle = pool({kind}, 0); ok(result)
    held = [take(3 * GIB, handle) for _ in range(3)]
    assert [result for result, _ in held] == [0, 0, 0]; agree(base)
    for _, address in held: ok(cuda.cuMemFreeAsync(address, None)); agree(base)
    ok(cuda.cuMemPoolDestroy(handle)); agree(base)
    """
    )


def test_managed_pools_without_a_device_count_where_they_are_used(bench: Bench):
    bench.run(
        CREATE
        + """
    for kind in (0, 2, 1):
        result, handle = pool(kind, 0, type=2); ok(result); agree(base)
        result, address = take(500 * MIB, handle); ok(result); agree(); assert shim() >= base + 500 * MIB
        assert take(2 * GIB, handle)[0] == OUT_OF_MEMORY
        ok(cuda.cuMemFreeAsync(address, None)); ok(cuda.cuMemPoolDestroy(handle)); agree(base)
    """
    )


@pytest.mark.parametrize("kind", [0, 5, 7, 77, -1, 2**31 - 1])
def test_a_kind_that_the_driver_does_not_know_is_refused_as_the_driver_does(bench: Bench, kind: int):
    bench.run(
        CREATE
        + f"""
    assert create({kind}, 0, 64 * MIB)[0] == 1; agree(base)
    assert pool({kind}, 0)[0] == 1; agree(base)
    """
    )


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_kind_that_only_the_driver_knows_is_refused_under_enforce(make_bench, mode: str):
    """The driver of a later CUDA, in which 77 is some memory of a card."""
    bench = make_bench()
    bench.grant(2 * GIB, mode)
    bench.run(
        CREATE
        + (
            """
    assert create(77, 0, 64 * MIB)[0] == NOT_PERMITTED; agree(base)
    assert pool(77, 0)[0] == NOT_PERMITTED; agree(base)
    """
            if mode == "enforce"
            else """
    ok(create(77, 0, 64 * MIB)[0]); ok(pool(77, 0)[0])
    """
        ),
        COTENANT_STANDIN_LOCATION="77",
    )


TWO = """
    other, here = c_void_p(), c_void_p()
    ok(cuda.cuCtxGetCurrent(byref(here)))
    ok(cuda.cuDevicePrimaryCtxRetain(byref(other), 1))
    ok(cuda.cuCtxSetCurrent(other))
    stream = c_void_p()
    ok(cuda.cuStreamCreate(byref(stream), 1))
    ok(cuda.cuCtxSetCurrent(here))
    first, second = (card.uuid for card in state.cards())
    def both():
        usage = slots.read_usage(slot)
        counted = (usage.used(0), usage.used(1))
        assert counted == (state.used(first), state.used(second)), (counted, state.used(first), state.used(second))
        return counted
    before = both()
"""


@pytest.fixture
def pair(make_bench) -> Bench:
    """Two cards: two GiB of the first and three of the second."""
    bench = make_bench("2x16GiB")
    cards = tuple(
        slots.CardLimit(card.uuid, size * GIB, CONTEXT)
        for card, size in zip(bench.cards.cards(), (2, 3), strict=True)
    )
    slots.create(bench.slot, slots.Limits("test", "enforce", cards))
    return bench


@pytest.mark.parametrize("call", ["cuMemAllocAsync", "cuMemAllocAsync_ptsz"])
def test_a_streams_device_gives_and_pays(pair: Bench, call: str):
    pair.run(
        CREATE
        + TWO
        + f"""
    address, more = c_ulonglong(), c_ulonglong()
    ok(cuda.{call}(byref(address), c_size_t(2560 * MIB), stream))
    assert both() == (before[0], before[1] + 2560 * MIB)
    device = ctypes.c_int()
    ok(cuda.cuPointerGetAttribute(byref(device), 9, address)); assert device.value == 1
    assert cuda.{call}(byref(more), c_size_t(GIB), stream) == OUT_OF_MEMORY
    ok(cuda.{call}(byref(more), c_size_t(GIB), None)); assert both() == (before[0] + GIB, before[1] + 2560 * MIB)
    ok(cuda.cuMemFreeAsync(more, None)); ok(cuda.cuStreamSynchronize(None))
    ok(cuda.cuMemFreeAsync(address, stream)); ok(cuda.cuStreamSynchronize(stream)); assert both() == before
    """
    )


@pytest.mark.parametrize("how", ["made", "default"])
def test_a_pools_device_pays_whatever_is_current(pair: Bench, how: str):
    make = "pool(1, 1)" if how == "made" else "(0, c_void_p())"
    ask = "" if how == "made" else "ok(cuda.cuDeviceGetDefaultMemPool(byref(handle), 1))"
    pair.run(
        CREATE
        + TWO
        + f"""
    result, handle = {make}; ok(result)
    {ask}
    result, address = take(2560 * MIB, handle, stream); ok(result)
    assert both() == (before[0], before[1] + 2560 * MIB)
    assert take(GIB, handle)[0] == OUT_OF_MEMORY
    ok(cuda.cuMemFreeAsync(address, stream)); ok(cuda.cuStreamSynchronize(stream)); assert both() == before
    """
    )


def test_a_card_that_was_not_granted_gives_no_pool(make_bench):
    bench = make_bench("2x16GiB")
    bench.grant(2 * GIB)
    bench.run(
        CREATE
        + """
    assert pool(1, 1)[0] == NOT_PERMITTED
    assert create(1, 1, 64 * MIB)[0] == NOT_PERMITTED
    handle = c_void_p()
    ok(cuda.cuDeviceGetDefaultMemPool(byref(handle), 1))
    assert take(64 * MIB, handle)[0] == NOT_PERMITTED
    assert state.used(state.cards()[1].uuid) == 0
    """
    )

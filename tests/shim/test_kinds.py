"""Every kind of device memory is charged, as much as the card counts, and given back when the card has it back."""

from __future__ import annotations

import pytest
from shim.slotted import Bench

KINDS = {
    "plain, by size": """
        for size in (1, 512, 1 * MIB, 2 * MIB, 2 * MIB + 1, 100 * MIB):
            result, address = alloc(size); ok(result); agree()
            ok(free(address)); agree(base)
    """,
    "pitched": """
        address, pitch = c_ulonglong(), c_size_t()
        for width, height in ((100, 100), (3000, 2000), (513, 4096)):
            ok(cuda.cuMemAllocPitch_v2(byref(address), byref(pitch), c_size_t(width), c_size_t(height), 4))
            agree()
            ok(free(address)); agree(base)
    """,
    "managed": """
        address = c_ulonglong()
        ok(cuda.cuMemAllocManaged(byref(address), c_size_t(30 * MIB), 1)); agree(base + 30 * MIB)
        ok(free(address)); agree(base)
        assert cuda.cuMemAllocManaged(byref(address), c_size_t(3 * GIB), 1) == OUT_OF_MEMORY; agree(base)
    """,
    "stream-ordered": """
        address, other = c_ulonglong(), c_ulonglong()
        ok(cuda.cuMemAllocAsync(byref(address), c_size_t(100 * MIB), None)); agree(); assert shim() > base
        ok(cuda.cuMemAllocAsync(byref(other), c_size_t(10 * MIB), None)); agree()
        ok(cuda.cuMemFreeAsync(address, None)); ok(cuda.cuMemFreeAsync(other, None))
        ok(cuda.cuStreamSynchronize(None)); agree(base)
        assert cuda.cuMemAllocAsync(byref(address), c_size_t(2 * GIB), None) == OUT_OF_MEMORY; agree(base)
    """,
    "stream-ordered, kept by the pool": """
        pool, address, keep = c_void_p(), c_ulonglong(), c_ulonglong(2**64 - 1)
        ok(cuda.cuDeviceGetDefaultMemPool(byref(pool), 0))
        ok(cuda.cuMemPoolSetAttribute(pool, 4, byref(keep)))  # release threshold
        for _ in range(3):
            ok(cuda.cuMemAllocAsync(byref(address), c_size_t(1500 * MIB), None)); agree()
            ok(cuda.cuMemFreeAsync(address, None)); ok(cuda.cuStreamSynchronize(None)); agree()
            assert shim() > base + GIB, "the pool keeps it"
        ok(cuda.cuMemPoolTrimTo(pool, c_size_t(0))); agree(base)
    """,
    "a pool of its own": """
        import struct
        props = ctypes.create_string_buffer(struct.pack("=iiiiQQ56x", 1, 0, 1, 0, 0, 0))
        pool, address = c_void_p(), c_ulonglong()
        ok(cuda.cuMemPoolCreate(byref(pool), props)); agree(base)
        ok(cuda.cuMemAllocFromPoolAsync(byref(address), c_size_t(40 * MIB), pool, None)); agree(); assert shim() > base
        assert cuda.cuMemAllocFromPoolAsync(byref(c_ulonglong()), c_size_t(2 * GIB), pool, None) == OUT_OF_MEMORY
        ok(cuda.cuMemFreeAsync(address, None)); ok(cuda.cuCtxSynchronize()); agree(base)
        ok(cuda.cuMemPoolDestroy(pool)); agree(base)
    """,
    "virtual memory lives until released and unmapped": """
        import struct
        prop = ctypes.create_string_buffer(struct.pack("=iiiiQ8x", 1, 0, 1, 0, 0))
        handle, address = c_ulonglong(), c_ulonglong()
        ok(cuda.cuMemCreate(byref(handle), c_size_t(64 * MIB), prop, c_ulonglong(0))); agree(base + 64 * MIB)
        ok(cuda.cuMemAddressReserve(byref(address), c_size_t(64 * MIB), c_size_t(0), c_ulonglong(0), c_ulonglong(0)))
        ok(cuda.cuMemMap(address, c_size_t(64 * MIB), c_size_t(0), handle, c_ulonglong(0))); agree(base + 64 * MIB)
        ok(cuda.cuMemRelease(handle)); agree(base + 64 * MIB)
        ok(cuda.cuMemUnmap(address, c_size_t(64 * MIB))); agree(base)
        ok(cuda.cuMemCreate(byref(handle), c_size_t(64 * MIB), prop, c_ulonglong(0)))
        ok(cuda.cuMemMap(address, c_size_t(64 * MIB), c_size_t(0), handle, c_ulonglong(0)))
        ok(cuda.cuMemUnmap(address, c_size_t(64 * MIB))); agree(base + 64 * MIB)
        ok(cuda.cuMemRelease(handle)); agree(base)
        assert cuda.cuMemCreate(byref(handle), c_size_t(2 * GIB), prop, c_ulonglong(0)) == OUT_OF_MEMORY; agree(base)
    """,
    "a retained handle keeps virtual memory": """
        import struct
        prop = ctypes.create_string_buffer(struct.pack("=iiiiQ8x", 1, 0, 1, 0, 0))
        handle, again, address = c_ulonglong(), c_ulonglong(), c_ulonglong()
        ok(cuda.cuMemCreate(byref(handle), c_size_t(32 * MIB), prop, c_ulonglong(0)))
        ok(cuda.cuMemAddressReserve(byref(address), c_size_t(32 * MIB), c_size_t(0), c_ulonglong(0), c_ulonglong(0)))
        ok(cuda.cuMemMap(address, c_size_t(32 * MIB), c_size_t(0), handle, c_ulonglong(0)))
        ok(cuda.cuMemRelease(handle))
        ok(cuda.cuMemRetainAllocationHandle(byref(again), c_void_p(address.value))); agree(base + 32 * MIB)
        ok(cuda.cuMemUnmap(address, c_size_t(32 * MIB))); agree(base + 32 * MIB)
        ok(cuda.cuMemRelease(again)); agree(base)
    """,
    "several mappings taken down at once": """
        import struct
        prop = ctypes.create_string_buffer(struct.pack("=iiiiQ8x", 1, 0, 1, 0, 0))
        address = c_ulonglong()
        ok(cuda.cuMemAddressReserve(byref(address), c_size_t(64 * MIB), c_size_t(0), c_ulonglong(0), c_ulonglong(0)))
        for part in range(4):
            handle = c_ulonglong()
            ok(cuda.cuMemCreate(byref(handle), c_size_t(16 * MIB), prop, c_ulonglong(0)))
            ok(cuda.cuMemMap(c_ulonglong(address.value + part * 16 * MIB), c_size_t(16 * MIB), c_size_t(0), handle, c_ulonglong(0)))
            ok(cuda.cuMemRelease(handle))
        agree(base + 64 * MIB)
        ok(cuda.cuMemUnmap(address, c_size_t(64 * MIB))); agree(base)
    """,
    "arrays": """
        import struct
        array = c_void_p()
        flat = ctypes.create_string_buffer(struct.pack("=QQiI", 4096, 1024, 0x20, 4))
        deep = ctypes.create_string_buffer(struct.pack("=QQQiII4x", 256, 256, 64, 0x20, 1, 0))
        ok(cuda.cuArrayCreate_v2(byref(array), flat)); agree(base + 64 * MIB)
        ok(cuda.cuArrayDestroy(array)); agree(base)
        ok(cuda.cuArray3DCreate_v2(byref(array), deep)); agree(base + 16 * MIB)
        ok(cuda.cuArrayDestroy(array)); agree(base)
        ok(cuda.cuMipmappedArrayCreate(byref(array), deep, 3)); agree(); assert shim() > base + 16 * MIB
        ok(cuda.cuMipmappedArrayDestroy(array)); agree(base)
        huge = ctypes.create_string_buffer(struct.pack("=QQiI", 65536, 16384, 0x20, 4))
        assert cuda.cuArrayCreate_v2(byref(array), huge) == OUT_OF_MEMORY; agree(base)
    """,
    "graphs take memory when they start": """
        import struct
        graph, node, executable = c_void_p(), c_void_p(), c_void_p()
        pool_props = struct.pack("=iiiiQQ56x", 1, 0, 1, 0, 0, 0)
        def alloc_node(size):
            params = ctypes.create_string_buffer(pool_props + struct.pack("=QQQQ", 0, 0, size, 0))
            ok(cuda.cuGraphCreate(byref(graph), 0))
            ok(cuda.cuGraphAddMemAllocNode(byref(node), graph, None, c_size_t(0), params))
            ok(cuda.cuGraphInstantiateWithFlags(byref(executable), graph, c_ulonglong(0)))
        alloc_node(100 * MIB); agree(base)
        ok(cuda.cuGraphLaunch(executable, None)); agree(); assert shim() >= base + 100 * MIB
        ok(cuda.cuGraphExecDestroy(executable)); ok(cuda.cuGraphDestroy(graph))
        alloc_node(3 * GIB)
        assert cuda.cuGraphLaunch(executable, None) == OUT_OF_MEMORY; agree()
    """,
    "contexts": """
        first, second = c_void_p(), c_void_p()
        ok(cuda.cuCtxCreate_v2(byref(first), 0, 0)); agree(base + 256 * MIB)
        ok(cuda.cuCtxCreate_v2(byref(second), 0, 0)); agree(base + 512 * MIB)
        ok(alloc(100 * MIB)[0]); ok(alloc(5000)[0])
        ok(cuda.cuCtxDestroy_v2(second)); agree(base + 256 * MIB)
        ok(cuda.cuCtxDestroy_v2(first)); agree(base)
    """,
    "the primary context, from first retain to last release": """
        handle = c_void_p()
        ok(cuda.cuDevicePrimaryCtxRetain(byref(handle), 0)); agree(base)
        ok(alloc(50 * MIB)[0])
        ok(cuda.cuDevicePrimaryCtxRelease_v2(0)); agree(base + 50 * MIB)
        ok(cuda.cuDevicePrimaryCtxRelease_v2(0)); agree(0)
        ok(context()); ok(alloc(50 * MIB)[0])
        ok(cuda.cuDevicePrimaryCtxReset_v2(0)); agree(0)
    """,
}


@pytest.mark.parametrize("kind", KINDS)
def test_both_accounts_agree_at_every_step(bench: Bench, kind: str):
    import textwrap

    bench.run("ok(context())\nbase = card()\nagree(256 * MIB)\n" + textwrap.dedent(KINDS[kind]))


def test_two_cards_have_a_limit_each(make_bench):
    from shim.slotted import CONTEXT, GIB

    from cotenant.hardware import slots

    bench = make_bench("2x16GiB")
    cards = tuple(
        slots.CardLimit(card.uuid, size * GIB, CONTEXT)
        for card, size in zip(bench.cards.cards(), (2, 3), strict=True)
    )
    slots.create(bench.slot, slots.Limits("test", "enforce", cards))
    bench.run("""
        for device, size in ((0, 2), (1, 3)):
            ok(context(device))
            assert info() == (size * GIB - 256 * MIB, size * GIB)
            assert alloc(size * GIB - 254 * MIB)[0] == OUT_OF_MEMORY
            assert alloc(size * GIB - 256 * MIB)[0] == 0
    """)

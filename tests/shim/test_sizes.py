"""Sizes that wrap, overflow or take long are refused as what they are; no figure of the slot is spoilt by them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from shim.slotted import CONTEXT, GIB, Bench

from cotenant.hardware import slots

HERE = Path(__file__).resolve().parent

HUGE = "2**64 - shim()", "2**64 - 1", "2**64 - 2 * MIB", "2**63", "2**50 + 1"

ENTRIES = {
    "cuMemAlloc": "alloc(size)[0]",
    "cuMemAllocManaged": "cuda.cuMemAllocManaged(byref(address), c_size_t(size), 1)",
    "cuMemAllocPitch": "cuda.cuMemAllocPitch_v2(byref(address), byref(pitch), c_size_t(size), c_size_t(1), 4)",
    "cuMemAllocAsync": "cuda.cuMemAllocAsync(byref(address), c_size_t(size), None)",
    "cuMemCreate": "cuda.cuMemCreate(byref(address), c_size_t(size), prop, c_ulonglong(0))",
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_request_that_would_wrap_the_sum_is_refused_by_the_limit(bench: Bench, entry: str):
    bench.run(f"""
        import struct
        prop = ctypes.create_string_buffer(struct.pack("=iiiiQ8x", 1, 0, 1, 0, 0))
        ok(context())
        address, pitch = c_ulonglong(), c_size_t()
        for size in ({", ".join(HUGE)}):
            assert {ENTRIES[entry]} == OUT_OF_MEMORY, size
            agree(256 * MIB)
    """)
    assert bench.usage().denied == len(HUGE)
    assert bench.usage().peak[0] == CONTEXT


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_what_the_card_has_not_is_no_peak(make_bench, mode: str):
    bench = make_bench()
    bench.grant(GIB, mode)
    bench.run("""
        ok(context())
        for size in (2**64 - shim(), 2**64 - 1, 2**50, 17 * GIB):
            assert alloc(size)[0] == OUT_OF_MEMORY
        ok(alloc(3 * GIB)[0])
        agree(3 * GIB + 256 * MIB)
    """)
    assert bench.usage().peak[0] == 3 * GIB + CONTEXT


def test_extents_of_arrays_that_overflow_are_refused(bench: Bench):
    bench.run("""
        import struct
        ok(context())
        array = c_void_p()
        for extents in ((2**27, 2**20, 2**16), (2**32, 2**32, 1), (2**63, 2, 1), (2**64 - 1,) * 3, (1, 2**64 - 1, 0)):
            shape = ctypes.create_string_buffer(struct.pack("=QQQiII4x", *extents, 0x20, 4, 0))
            assert cuda.cuArray3DCreate_v2(byref(array), shape) == OUT_OF_MEMORY, extents
            assert cuda.cuMipmappedArrayCreate(byref(array), shape, 40) == OUT_OF_MEMORY, extents
            agree(256 * MIB)
    """)


def test_levels_beyond_the_last_do_not_exist(bench: Bench):
    bench.run("""
        import struct
        ok(context())
        base = shim()
        array = c_void_p()
        shapes = {(256, 256, 64, 0): 9, (4096, 1, 0, 0): 13, (512, 512, 24, 1): 10, (256, 256, 6, 4): 9, (1, 0, 0, 0): 1}
        for (width, height, depth, flags), last in shapes.items():
            shape = ctypes.create_string_buffer(struct.pack("=QQQiII4x", width, height, depth, 0x20, 4, flags))
            for levels in (0, 1, 2, last, last + 1, 2**31, 2**32 - 1):
                ok(cuda.cuMipmappedArrayCreate(byref(array), shape, ctypes.c_uint(levels))); agree()
                ok(cuda.cuMipmappedArrayDestroy(array)); agree(base)
    """)


BITS = {
    "BC": {
        **dict.fromkeys((0x91, 0x92, 0x97, 0x98), 4),
        **dict.fromkeys((*range(0x93, 0x97), *range(0x99, 0x9F)), 8),
    },
    "4:2:0": dict.fromkeys((0xB0, 0x53, 0x59), 12) | dict.fromkeys((0x9F, 0xA1, 0x54, 0x5A), 24),
    "4:2:2": dict.fromkeys((0xA2, 0xA5, 0x51, 0x55, 0x5B), 16)
    | dict.fromkeys((0xA3, 0xA4, 0xA6, 0xA7, 0x56, 0x5C), 32),
    "4:4:4": {0xA8: 32, 0xA9: 32, 0x52: 32, 0xB1: 64}
    | dict.fromkeys((0xB2, 0xB4, 0x57, 0x5D), 24)
    | dict.fromkeys((0xB3, 0xB5, 0x58, 0x5E), 48),
    "normalised": dict(
        zip((*range(0xC0, 0xC6), *range(0xC6, 0xCC), 0x50), (8, 16, 32, 16, 32, 64) * 2 + (32,), strict=True)
    ),
}


@pytest.mark.parametrize("family", BITS)
def test_packed_formats_cost_what_they_take(bench: Bench, family: str):
    bench.run(f"""
        import struct
        ok(context())
        base = shim()
        array = c_void_p()
        for format, bits in {BITS[family]}.items():
            for channels in (1, 2, 4):
                shape = ctypes.create_string_buffer(struct.pack("=QQiI", 4096, 4096, format, channels))
                ok(cuda.cuArrayCreate_v2(byref(array), shape)); agree(base + 4096 * 4096 * bits // 8)
                ok(cuda.cuArrayDestroy(array)); agree(base)
    """)


def test_no_size_at_any_entry_point_passes_the_limit(make_bench, tmp_path: Path):
    """A million calls from eight threads on two cards. COTENANT_FUZZ_SEED repeats a run."""
    bench = make_bench("2x16GiB")
    limits = (4 * GIB, 3 * GIB)
    names = [card.uuid for card in bench.cards.cards()]
    slots.create(
        bench.slot,
        slots.Limits(
            "test",
            "enforce",
            tuple(slots.CardLimit(name, size, CONTEXT) for name, size in zip(names, limits, strict=True)),
        ),
    )
    seed = os.environ.get("COTENANT_FUZZ_SEED") or str(int.from_bytes(os.urandom(6)))
    print(f"COTENANT_FUZZ_SEED={seed}")
    program = tmp_path / "fuzz"
    source = HERE / "fuzz.c"
    subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", "-O2", "-o", program, source, "-ldl", "-lpthread"], check=True
    )
    fuzz = subprocess.Popen(
        [program, seed, "1000000", "8", "10"],
        env=bench.env(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    bench.started.append(fuzz)
    assert fuzz.stdin is not None
    assert fuzz.stdout is not None
    for line in fuzz.stdout:
        usage = bench.usage()
        charged = [usage.used(card) for card in range(2)]
        assert charged == [bench.cards.used(name) for name in names], line
        assert all(card.peak <= size for card, size in zip(bench.cards.cards(), limits, strict=True)), line
        assert all(peak <= size for peak, size in zip(usage.peak, limits, strict=False)), line
        fuzz.stdin.write("\n")
        fuzz.stdin.flush()
    assert fuzz.wait() == 0
    assert line == "released\n"
    assert charged == [0, 0]

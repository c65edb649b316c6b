"""Contexts are charged from their beginning to their end, on whatever way they begin and end."""

from __future__ import annotations

import pytest
from shim.slotted import Bench

CASES = {
    "attached and detached": """
        first, again = c_void_p(), c_void_p()
        for _ in range(8):
            ok(cuda.cuCtxCreate_v2(byref(first), 0, 0)); agree(256 * MIB)
            ok(cuda.cuCtxAttach(byref(again), 0)); assert again.value == first.value
            ok(alloc(50 * MIB)[0]); agree(306 * MIB)
            ok(cuda.cuCtxDetach(first)); agree(306 * MIB)
            ok(cuda.cuCtxDetach(first)); agree(0)
    """,
    "destroyed while attached": """
        first, again = c_void_p(), c_void_p()
        for _ in range(8):
            ok(cuda.cuCtxCreate_v2(byref(first), 0, 0))
            ok(cuda.cuCtxAttach(byref(again), 0)); agree(256 * MIB)
            ok(cuda.cuCtxDestroy_v2(first)); agree(0)
    """,
    "green, alone": """
        for _ in range(8):
            ok(cuda.cuGreenCtxCreate(byref(green), None, 0, 1)); agree(256 * MIB)
            ok(cuda.cuCtxFromGreenCtx(byref(own), green)); ok(cuda.cuCtxSetCurrent(own))
            ok(alloc(100 * MIB)[0]); ok(alloc(1000)[0]); agree(358 * MIB)
            ok(cuda.cuGreenCtxDestroy(green)); agree(0)
    """,
    "green, never asked for its context": """
        for _ in range(8):
            ok(cuda.cuGreenCtxCreate(byref(green), None, 0, 1)); agree(256 * MIB)
            ok(cuda.cuGreenCtxDestroy(green)); agree(0)
    """,
    "green, beside the primary context": """
        ok(context())
        for _ in range(8):
            ok(cuda.cuGreenCtxCreate(byref(green), None, 0, 1)); agree()
            ok(cuda.cuCtxFromGreenCtx(byref(own), green)); ok(cuda.cuCtxPushCurrent_v2(own))
            result, address = alloc(100 * MIB); ok(result); agree(356 * MIB)
            ok(cuda.cuCtxPopCurrent_v2(byref(own)))
            ok(cuda.cuGreenCtxDestroy(green)); agree(356 * MIB)  # the memory is the primary context's
            ok(free(address)); agree(256 * MIB)
        ok(cuda.cuDevicePrimaryCtxRelease_v2(0)); agree(0)
    """,
    "green, longer than the primary context was retained": """
        ok(context())
        ok(cuda.cuGreenCtxCreate(byref(green), None, 0, 1))
        ok(alloc(100 * MIB)[0]); agree(356 * MIB)
        ok(cuda.cuDevicePrimaryCtxRelease_v2(0)); agree(356 * MIB)
        ok(cuda.cuGreenCtxDestroy(green)); agree(0)
    """,
    "two green ones": """
        other = c_void_p()
        ok(cuda.cuGreenCtxCreate(byref(green), None, 0, 1)); agree(256 * MIB)
        ok(cuda.cuGreenCtxCreate(byref(other), None, 0, 1)); agree(256 * MIB)
        ok(cuda.cuGreenCtxDestroy(green)); agree(256 * MIB)
        ok(cuda.cuGreenCtxDestroy(other)); agree(0)
    """,
    "green, with a stream of its own": """
        stream, address = c_void_p(), c_ulonglong()
        ok(cuda.cuGreenCtxCreate(byref(green), None, 0, 1))
        ok(cuda.cuGreenCtxStreamCreate(byref(stream), green, 1, 0))
        ok(cuda.cuCtxFromGreenCtx(byref(own), green)); ok(cuda.cuCtxSetCurrent(own))
        ok(cuda.cuMemAllocAsync(byref(address), c_size_t(64 * MIB), stream)); agree(320 * MIB)
        ok(cuda.cuMemFreeAsync(address, stream)); ok(cuda.cuStreamSynchronize(stream)); agree(256 * MIB)
        ok(cuda.cuGreenCtxDestroy(green)); agree(0)
    """,
}


@pytest.mark.parametrize("case", CASES)
def test_both_accounts_agree_at_every_step(bench: Bench, case: str):
    import textwrap

    bench.run("ok(cuda.cuInit(0))\ngreen, own = c_void_p(), c_void_p()\n" + textwrap.dedent(CASES[case]))


def test_a_green_context_that_does_not_fit_is_refused(bench: Bench):
    holder = bench.start("ok(context()); ok(alloc(2 * GIB - 300 * MIB)[0]); say('holding'); hear()")
    bench.run("""
        ok(cuda.cuInit(0))
        assert cuda.cuGreenCtxCreate(byref(c_void_p()), None, 0, 1) == OUT_OF_MEMORY; agree()
    """)
    holder.communicate("\n")

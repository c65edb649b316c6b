"""Nothing is refused for which there is room: what pools and graphs hold without using it is given up first, and
graphs count as what they hold at once.
"""

from __future__ import annotations

import textwrap

import pytest
from shim.slotted import Bench

BEGIN = """
import struct
ok(context())
base = shim()
address, keep = c_ulonglong(), c_ulonglong(2**64 - 1)

def pool(threshold=True):
    props = ctypes.create_string_buffer(struct.pack("=iiiiQQ56x", 1, 0, 1, 0, 0, 0))
    handle = c_void_p()
    ok(cuda.cuMemPoolCreate(byref(handle), props))
    if threshold:
        ok(cuda.cuMemPoolSetAttribute(handle, 4, byref(keep)))
    return handle

def take(size, handle):
    found = c_ulonglong()
    return cuda.cuMemAllocFromPoolAsync(byref(found), c_size_t(size), handle, None), found

def fill(size, handle):
    result, found = take(size, handle)
    ok(result); ok(cuda.cuMemFreeAsync(found, None)); ok(cuda.cuStreamSynchronize(None)); agree()

def node(graph, size, *after):
    props = struct.pack("=iiiiQQ56x", 1, 0, 1, 0, 0, 0)
    params = ctypes.create_string_buffer(props + struct.pack("=QQQQ", 0, 0, size, 0))
    made = c_void_p()
    before = (c_void_p * len(after))(*after)
    ok(cuda.cuGraphAddMemAllocNode(byref(made), graph, before, c_size_t(len(after)), params))
    return made, c_ulonglong(struct.unpack_from("=Q", params.raw, len(props) + 24)[0])

def freed(graph, what, *after):
    made = c_void_p()
    before = (c_void_p * len(after))(*after)
    ok(cuda.cuGraphAddMemFreeNode(byref(made), graph, before, c_size_t(len(after)), what))
    return made

def graph():
    made = c_void_p()
    ok(cuda.cuGraphCreate(byref(made), 0))
    return made

def launch(made):
    executable = c_void_p()
    ok(cuda.cuGraphInstantiateWithFlags(byref(executable), made, c_ulonglong(0)))
    return cuda.cuGraphLaunch(executable, None), executable

def chain(count, size):
    made, last = graph(), ()
    for _ in range(count):
        begun, where = node(made, size, *last)
        last = (freed(made, where, begun),)
    return made

def prop(location=1):
    return ctypes.create_string_buffer(struct.pack("=iiiiQ8x", 1, 0, location, 0, 0))
"""

NEXT = {
    "plain": "ok(alloc(1500 * MIB)[0])",
    "managed": "ok(cuda.cuMemAllocManaged(byref(address), c_size_t(1500 * MIB), 1))",
    "virtual": "ok(cuda.cuMemCreate(byref(address), c_size_t(1500 * MIB), prop(), c_ulonglong(0)))",
    "an array": "ok(cuda.cuArrayCreate_v2(byref(c_void_p()), ctypes.create_string_buffer(struct.pack('=QQiI', 32768, 3000, 0x20, 4))))",
    "a context": "[ok(cuda.cuCtxCreate_v2(byref(c_void_p()), 0, 0)) for _ in range(6)]",
    "another pool": "ok(take(1500 * MIB, pool())[0])",
    "the same pool": "ok(take(1500 * MIB, unused)[0])",
    "a graph": "ok(launch(chain(3, 1500 * MIB))[0])",
}


@pytest.mark.parametrize("what", NEXT)
def test_memory_that_a_pool_keeps_unused_is_given_up(bench: Bench, what: str):
    bench.run(
        f"{BEGIN}\nunused = pool()\nfill(1400 * MIB, unused)\nassert shim() > base + GIB\n{NEXT[what]}\nagree()"
    )
    assert bench.usage().denied == 0


@pytest.mark.parametrize("what", NEXT)
def test_memory_that_graphs_keep_unused_is_given_up(bench: Bench, what: str):
    bench.run(
        f"{BEGIN}\nunused = pool()\nok(launch(chain(1, 1400 * MIB))[0]); agree()\nassert shim() > base + GIB\n"
        f"{NEXT[what]}\nagree()"
    )
    assert bench.usage().denied == 0


CASES = {
    "what a pool uses is not given up": """
        own = pool()
        result, used = take(GIB, own); ok(result); fill(600 * MIB, own)
        assert alloc(GIB)[0] == OUT_OF_MEMORY; agree(base + GIB)
        ok(alloc(700 * MIB)[0]); agree()
    """,
    "a chain of graph nodes counts once": """
        for count, size in ((1, 1500), (2, 1500), (50, 1500), (400, 100)):
            result, executable = launch(chain(count, size * MIB)); ok(result); agree()
            ok(cuda.cuGraphExecDestroy(executable)); ok(cuda.cuDeviceGraphMemTrim(0)); agree(base)
    """,
    "the order of nodes counts, not that in which they were made": """
        made = graph()
        late, where = node(made, GIB)
        begun, other = node(made, GIB)
        freed(made, where, late); freed(made, other, begun)
        result, _ = launch(made)  # nothing says which comes first
        assert result == OUT_OF_MEMORY; agree(base)
    """,
    "branches count together, what follows them does not": """
        made = graph()
        root = c_void_p()
        ok(cuda.cuGraphAddEmptyNode(byref(root), made, None, c_size_t(0)))
        ends = []
        for _ in range(2):
            begun, where = node(made, 700 * MIB, root)
            ends.append(freed(made, where, begun))
        begun, where = node(made, 1700 * MIB, *ends)
        freed(made, where, begun)
        result, _ = launch(made); ok(result); agree()
        begun, where = node(made, 700 * MIB, root); freed(made, where, begun)
        assert launch(made)[0] == OUT_OF_MEMORY
    """,
    "what a graph does not free counts on": """
        made, last = graph(), ()
        for _ in range(3):
            begun, where = node(made, 500 * MIB, *last)
            last = (begun,)
        result, _ = launch(made); ok(result); agree(); assert shim() >= base + 1500 * MIB
        assert alloc(400 * MIB)[0] == OUT_OF_MEMORY
        node(made, 500 * MIB, *last)
        assert launch(made)[0] == OUT_OF_MEMORY
    """,
    "an upload when a graph is made takes its memory at once": """
        params = ctypes.create_string_buffer(struct.pack("=QQQi4x", 2, 0, 0, 0))
        executable = c_void_p()
        assert cuda.cuGraphInstantiateWithParams(byref(executable), chain(1, 3 * GIB), params) == OUT_OF_MEMORY; agree(base)
        ok(cuda.cuGraphInstantiateWithParams(byref(executable), chain(2, GIB), params)); agree()
        assert shim() >= base + GIB
    """,
    "captured allocations take nothing until they run": """
        stream, made = c_void_p(), c_void_p()
        ok(cuda.cuStreamCreate(byref(stream), 1))
        ok(cuda.cuStreamBeginCapture_v2(stream, 0))
        for _ in range(8):
            ok(cuda.cuMemAllocAsync(byref(address), c_size_t(1500 * MIB), stream)); agree(base)
            ok(cuda.cuMemFreeAsync(address, stream)); agree(base)
        ok(cuda.cuStreamEndCapture(stream, byref(made)))
        result, _ = launch(made); ok(result); agree(); assert shim() > base + GIB
    """,
    "many pools": """
        own = [pool() for _ in range(1000)]
        held = [take(MIB, handle) for handle in own[::25]]
        assert {result for result, _ in held} == {0}; agree()
        for _, where in held: ok(cuda.cuMemFreeAsync(where, None))
        for handle in own: ok(cuda.cuMemPoolDestroy(handle))
        agree(base)
        for _ in range(1000): ok(cuda.cuMemPoolDestroy(pool()))
        ok(alloc(1700 * MIB)[0]); agree()
    """,
    "a pool that is destroyed in use ends with its last allocation": """
        for size in (1, 1000, MIB + 1, 33 * MIB, 500 * MIB):
            own = pool()
            held = [take(size, own) for _ in range(3)]
            fill(100 * MIB, own)
            ok(cuda.cuMemPoolDestroy(own)); agree()
            ok(cuda.cuMemFreeAsync(held[0][1], None)); agree()
            ok(cuda.cuMemFree_v2(held[1][1])); agree(); assert shim() > base
            ok(cuda.cuMemFreeAsync(held[2][1], None)); agree(base)
    """,
    "a pool that is destroyed in use ends with the last context": """
        own = pool()
        held = [take(100 * MIB, own) for _ in range(3)]
        ok(cuda.cuMemPoolDestroy(own)); agree()
        ok(cuda.cuDevicePrimaryCtxReset_v2(0)); agree(0)
        ok(context()); ok(alloc(1700 * MIB)[0]); agree()
    """,
}


@pytest.mark.parametrize("case", CASES)
def test_both_accounts_agree_at_every_step(bench: Bench, case: str):
    bench.run(BEGIN + textwrap.dedent(CASES[case]))


def test_a_graph_made_before_the_first_context_is_charged(bench: Bench):
    bench.run(
        textwrap.dedent(BEGIN).replace("ok(context())\nbase = shim()\n", "ok(cuda.cuInit(0))\n")
        + textwrap.dedent("""
        executable = c_void_p()
        ok(cuda.cuGraphInstantiateWithFlags(byref(executable), chain(1, 3 * GIB), c_ulonglong(0)))
        ok(context())
        assert cuda.cuGraphLaunch(executable, None) == OUT_OF_MEMORY; agree(256 * MIB)
    """)
    )

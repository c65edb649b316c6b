"""Inside a grant NVML shows its cards alone, as CUDA numbers them, and its processes alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from shim.compiling import compiled
from shim.slotted import CONTEXT, GIB, Bench

from cotenant.hardware import libraries, slots

READ = """
import json, pynvml as n
n.nvmlInit()
def uuid(handle): return n.nvmlDeviceGetUUID(handle)
def refused(call, *arguments):
    try:
        call(*arguments)
    except n.NVMLError as error:
        return type(error).__name__
    return "nothing"
handles = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
cards = [card.uuid for card in state.cards()]
shown = [cards.index(uuid(handle)) for handle in handles]
"""


def grant(bench: Bench, *cards: int, mode: str = "enforce") -> dict[str, str]:
    """Grants 2 GiB on each of these cards; returns the environment that `cotenant run` would add."""
    uuids = [bench.cards.cards()[i].uuid for i in cards]
    limits = tuple(slots.CardLimit(uuid, 2 * GIB, CONTEXT) for uuid in uuids)
    slots.create(bench.slot, slots.Limits("test", mode, limits))
    return {"CUDA_VISIBLE_DEVICES": ",".join(uuids)}


@pytest.mark.parametrize("mode", ["enforce", "warn", "observe"])
@pytest.mark.parametrize("cards", [(0,), (2,), (3, 1), (0, 1, 2, 3)])
def test_the_granted_cards_are_numbered_as_by_cuda(make_bench, cards: tuple[int, ...], mode: str):
    bench = make_bench("4x16GiB")
    env = grant(bench, *cards, mode=mode)
    bench.run(
        READ
        + f"""
assert shown == {list(cards)}, shown
assert [n.nvmlDeviceGetIndex(handle) for handle in handles] == list(range(len(shown)))
assert refused(n.nvmlDeviceGetHandleByIndex, len(shown)) == "NVMLError_InvalidArgument"
ok(cuda.cuInit(0))
for ordinal, card in enumerate(shown):
    found = ctypes.create_string_buffer(16)
    ok(cuda.cuDeviceGetUuid(found, ordinal))
    assert found.raw.hex() == cards[card][4:].replace("-", "")
    bus = ctypes.create_string_buffer(20)
    ok(cuda.cuDeviceGetPCIBusId(bus, 20, ordinal))
    assert uuid(n.nvmlDeviceGetHandleByPciBusId(bus.value)) == cards[card]
""",
        **env,
    )


def test_without_a_list_of_visible_devices_the_bus_decides(make_bench):
    """As in a container, where the runtime alone says which cards there are."""
    bench = make_bench("4x16GiB")
    env = grant(bench, 3, 1)
    seen = {"COTENANT_STANDIN_RUNTIME": "1", "NVIDIA_VISIBLE_DEVICES": env["CUDA_VISIBLE_DEVICES"]}
    bench.run(READ + "assert shown == [1, 3], shown", **seen)


def test_other_cards_are_not_found(make_bench):
    bench = make_bench("3x16GiB")
    bench.run(
        READ
        + """
for ordinal, other in enumerate(cards):
    known = "nothing" if ordinal == 1 else "NVMLError_NotFound"
    assert refused(n.nvmlDeviceGetHandleByUUID, other) == known
    assert refused(n.nvmlDeviceGetHandleByPciBusId, f"0000:{ordinal + 1:02X}:00.0") == known
    assert refused(n.nvmlDeviceGetHandleBySerial, f"00000000{ordinal:05}") == known
assert n.nvmlDeviceGetTopologyNearestGpus(handles[0], 50) == []
assert [h.value for h in map(ctypes.cast, n.nvmlSystemGetTopologyGpuSet(0), [c_void_p])] == \
    [ctypes.cast(handles[0], c_void_p).value]
assert n.nvmlDeviceGetMemoryInfo(handles[0]).total == 2 * GIB
""",
        **grant(bench, 1),
    )


def test_the_library_itself_sees_every_card(make_bench):
    """NVML calls its own public functions: those calls must get the truth, or an index is mistaken for another."""
    bench = make_bench("4x16GiB")
    bench.run(
        READ
        + """
near = n.nvmlDeviceGetTopologyNearestGpus(handles[0], 50)
assert [uuid(card) for card in near] == [cards[0]]
assert n.nvmlDeviceGetMemoryInfo(handles[0]).total == 2 * GIB
plain = ctypes.CDLL("libnvidia-ml.so.1")
count, handle = ctypes.c_uint(), c_void_p()
assert plain.nvmlDeviceGetCount(byref(count)) == 0 and count.value == 2
assert plain.nvmlDeviceGetHandleByIndex(0, byref(handle)) == 0
assert handle.value == ctypes.cast(handles[0], c_void_p).value
""",
        **grant(bench, 3, 0),
    )


HOLD = "ok(context()); ok(alloc(64 * MIB)[0]); say(os.getpid()); hear()"


def test_only_processes_of_the_grant_are_listed(make_bench):
    bench = make_bench("1x16GiB")
    env = grant(bench, 0)
    strangers = [bench.start(HOLD, COTENANT_SLOT="", LD_PRELOAD="") for _ in range(3)]
    mate = bench.start(HOLD, **env)
    bench.run(
        READ
        + f"""
ok(context())
ours = {{os.getpid(), {mate.pid}}}
card = handles[0]
assert {{process.pid for process in n.nvmlDeviceGetComputeRunningProcesses(card)}} == ours
count = ctypes.c_uint(0)
nvml = ctypes.CDLL("libnvidia-ml.so.1")
for name, size in (("nvmlDeviceGetComputeRunningProcesses", 16), ("nvmlDeviceGetComputeRunningProcesses_v2", 24),
                   ("nvmlDeviceGetComputeRunningProcesses_v3", 24)):
    read, room = getattr(nvml, name), ctypes.create_string_buffer(2 * size)
    assert read(card, byref(count), None) == 7 and count.value == 2, count  # to be asked again with room
    count.value = 1
    assert read(card, byref(count), room) == 7 and count.value == 2
    assert read(card, byref(count), room) == 0 and count.value == 2
    assert {{int.from_bytes(room[i * size : i * size + 4], "little") for i in range(2)}} == ours
    count.value = 0
assert n.nvmlDeviceGetGraphicsRunningProcesses(card) == []
details = n.nvmlDeviceGetRunningProcessDetailList(card, n.nvmlProcessDetailList_v1, 0)
assert {{process.pid for process in details}} == ours
assert {{process.usedGpuMemory >> 20 for process in n.nvmlDeviceGetComputeRunningProcesses(card)}} == {{256, 320}}
""",
        **env,
    )
    for stranger in strangers:
        stranger.kill()


def test_a_reader_that_uses_no_card_takes_no_entry(make_bench):
    bench = make_bench("2x16GiB")
    env = grant(bench, 1)
    bench.run(READ + "assert n.nvmlDeviceGetComputeRunningProcesses(handles[0]) == []", **env)
    assert bench.usage().processes == ()


def test_utilisation_of_others_is_not_listed(make_bench):
    bench = make_bench("1x16GiB")
    env = grant(bench, 0)
    bench.cards.set_launch_seconds(0.05)
    busy = """
        module, function = c_void_p(), c_void_p()
        ok(context())
        ok(cuda.cuModuleLoadData(byref(module), b".version 7.0\\n.target sm_52\\n.address_size 64\\n.visible .entry k()\\n{\\nret;\\n}\\n"))
        ok(cuda.cuModuleGetFunction(byref(function), module, b"k"))
        while True:
            for _ in range(4):
                ok(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None))
            ok(cuda.cuCtxSynchronize()); say("done")
    """
    stranger = bench.start(busy, COTENANT_SLOT="", LD_PRELOAD="")
    done = bench.run(
        "import pynvml as n; n.nvmlInit()\n"
        "print([s.pid for s in n.nvmlDeviceGetProcessUtilization(n.nvmlDeviceGetHandleByIndex(0), 0)])",
        shim=False,
    )
    assert done.stdout == f"[{stranger.pid}]\n"
    bench.run(
        READ + 'assert refused(n.nvmlDeviceGetProcessUtilization, handles[0], 0) == "NVMLError_NotFound"',
        **env,
    )


def test_an_instance_is_shown_under_its_card(make_bench):
    bench = make_bench("2xA100-40GB/2g.10gb+1g.5gb+1g.5gb")
    cards = bench.cards.cards()
    granted = [i for i, card in enumerate(cards) if card.parent][4]
    env = grant(bench, granted)
    bench.run(
        READ
        + f"""
parent = {cards[granted].parent!r}
assert [cards[i] for i in shown] == [parent]
instances = []
for i in range(n.nvmlDeviceGetMaxMigDeviceCount(handles[0])):
    if refused(n.nvmlDeviceGetMigDeviceHandleByIndex, handles[0], i) == "nothing":
        instances.append(n.nvmlDeviceGetMigDeviceHandleByIndex(handles[0], i))
assert [uuid(instance) for instance in instances] == [cards[{granted}]]
assert n.nvmlDeviceGetIndex(instances[0]) == 0
assert n.nvmlDeviceGetMemoryInfo(instances[0]).total == 2 * GIB
other = next(card.uuid for card in state.cards() if card.parent == parent and card.uuid != cards[{granted}])
assert refused(n.nvmlDeviceGetHandleByUUID, other) == "NVMLError_NotFound"
""",
        **env,
    )


def test_a_lost_card_keeps_its_number(make_bench):
    bench = make_bench("3x16GiB")
    env = grant(bench, 0, 2)
    bench.cards.fail(bench.cards.cards()[0].uuid)
    bench.run(
        """
import pynvml as n
n.nvmlInit()
assert n.nvmlDeviceGetCount() == 2
try:
    n.nvmlDeviceGetHandleByIndex(0)
    raise SystemExit("a handle of a lost card")
except n.NVMLError_GpuIsLost:
    pass
assert n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(1)) == state.cards()[2].uuid
""",
        **env,
    )


def test_a_slot_that_cannot_be_used_shows_no_card(make_bench):
    bench = make_bench("2x16GiB")
    env = grant(bench, 0)
    (bench.slot / "limits").unlink()
    bench.run("import pynvml as n\nn.nvmlInit()\nassert n.nvmlDeviceGetCount() == 0", **env)


def test_errors_before_nvml_has_started_are_its_own(make_bench):
    bench = make_bench("2x16GiB")
    bench.run(
        """
        nvml, out, handle = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_uint(), c_void_p()
        assert nvml.nvmlDeviceGetCount_v2(byref(out)) == 1
        assert nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(handle)) == 1
        assert nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), byref(handle)) == 1
        assert nvml.nvmlInit_v2() == 0
        assert nvml.nvmlDeviceGetCount_v2(None) == 2
        assert nvml.nvmlDeviceGetHandleByIndex_v2(0, None) == 2
        assert nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), None) == 2
        """,
        **grant(bench, 0),
    )


LINKED = r"""
int nvmlInit_v2(void); int nvmlDeviceGetCount_v2(unsigned *);
int main(void) { unsigned count; return nvmlInit_v2() || nvmlDeviceGetCount_v2(&count) ? 99 : (int)count; }
"""


def test_a_reader_that_is_linked_with_nvml(make_bench, tmp_path: Path):
    bench = make_bench("4x16GiB")
    env = grant(bench, 1, 2)
    program = compiled(tmp_path, LINKED, str(libraries.standin_nvml()))
    assert subprocess.run([program], env=bench.env(**env), check=False).returncode == 2
    assert subprocess.run([program], env=bench.env(shim=False), check=False).returncode == 4

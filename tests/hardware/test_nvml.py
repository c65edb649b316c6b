"""Cards as NVML tells of them, read from the stand-in by nvidia-ml-py's normal way."""

import json
import os
import subprocess
import sys

import pytest

from cotenant.core.gpu import GPU
from cotenant.hardware import libraries
from cotenant.hardware.host_memory import HostMemory
from cotenant.hardware.nvml import CardProcess, CardReading, Readings, used_of_shared, with_known
from cotenant.hardware.standin import driver as standin

GIB = 1 << 30

READ = """
import json, sys
from pathlib import Path
from cotenant.hardware.nvml import Nvml
nvml = Nvml(Path(sys.argv[1]), {"COTENANT_STANDIN": sys.argv[2]})
told = nvml.read()
print(json.dumps({"lost": told.lost, "cards": [
    {"uuid": c.gpu.uuid, "index": c.gpu.index, "model": c.gpu.model, "memory": c.gpu.memory,
     "healthy": c.gpu.healthy, "shared": c.gpu.shared, "parent": c.gpu.parent, "used": c.used, "problem": c.problem,
     "processes": [(p.pid, p.bytes) for p in c.processes]}
    for c in told.cards]}))
"""


@pytest.fixture
def cards(tmp_path):
    """Makes simulated cards, and reads them in a process of its own (NVML is loaded once a process)."""
    path = tmp_path / "cards"

    def make(spec):
        standin.create(path, standin.parse_spec(spec))

        def read():
            line = [sys.executable, "-c", READ, str(libraries.standin_nvml()), str(path)]
            return json.loads(subprocess.check_output(line, text=True))

        return standin.StandIn(path), read

    make.path = path
    return make


def test_cards_are_told_with_uuid_model_and_capacity(cards):
    stand_in, read = cards("1xT4,1x16GiB")
    told = read()["cards"]
    assert [(c["index"], c["model"], c["healthy"], c["used"]) for c in told] == [
        (0, "Tesla T4", True, 0),
        (1, "NVIDIA Stand-in 16GiB", True, 0),
    ]
    assert [c["memory"] for c in told] == [card.capacity for card in stand_in.cards()]
    assert told[1]["memory"] == 16 * GIB, "the driver's reserve is not counted"


def test_mig_instances_are_cards_of_their_own(cards):
    _, read = cards("1xA100-80GB/3g.40gb+2g.20gb,1xT4")
    told = read()["cards"]
    assert [c["uuid"][:3] for c in told] == ["MIG", "MIG", "GPU"]
    assert told[0]["parent"] == told[1]["parent"] != told[2]["uuid"]
    assert [c["index"] for c in told] == [2, 3, 1], "the T4 is card 1, as the driver counts"


@pytest.mark.parametrize("spec", ["3x16GiB", "1xA100-80GB/3g.40gb+2g.20gb,2xT4", "1xT4,2xA100-80GB/7g.80gb"])
def test_the_index_of_a_card_shows_this_card_in_a_container(cards, monkeypatch, spec):
    _, read = cards(spec)
    whole = [c for c in read()["cards"] if c["parent"] is None]
    monkeypatch.setenv(standin.RUNTIME, "1")
    for card in whole:
        monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", str(card["index"]))
        assert [c["uuid"] for c in read()["cards"]] == [card["uuid"]]


def test_processes_are_told_with_their_memory(cards):
    _, read = cards("2x16GiB")
    script = (
        "import ctypes, sys\n"
        "cuda = ctypes.CDLL('libcuda.so.1'); made = ctypes.c_void_p(); p = ctypes.c_uint64()\n"
        "assert cuda.cuInit(0) == 0\n"
        "assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(made), 1) == 0\n"
        "assert cuda.cuCtxSetCurrent(made) == 0\n"
        "assert cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(1 << 30)) == 0\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    environ = standin.environment(cards.path, os.environ)
    user = subprocess.Popen(
        [sys.executable, "-c", script], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert user.stdout.readline() == "ready\n"
    told = read()["cards"]
    user.communicate()
    held = GIB + (256 << 20)
    assert [(c["used"], c["processes"]) for c in told] == [(0, []), (held, [[user.pid, held]])]
    assert [c["used"] for c in read()["cards"]] == [0, 0]


def test_more_processes_than_there_was_room_for_are_all_told(cards):
    cards("1xT4")
    script = (
        "import ctypes, sys\n"
        "cuda = ctypes.CDLL('libcuda.so.1'); made = ctypes.c_void_p()\n"
        "assert cuda.cuInit(0) == 0\n"
        "assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(made), 0) == 0\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    environ = standin.environment(cards.path, os.environ)
    users = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    assert [user.stdout.readline() for user in users] == ["ready\n"] * 3
    few = "from cotenant.hardware import nvml as module\nmodule._FEW = 1\n"
    line = [sys.executable, "-c", few + READ, str(libraries.standin_nvml()), str(cards.path)]
    (told,) = json.loads(subprocess.check_output(line, text=True))["cards"]
    for user in users:
        user.communicate()
    assert {pid for pid, _ in told["processes"]} == {user.pid for user in users}


IN_USE = """
import json, sys
from pathlib import Path
from cotenant.core.errors import CotenantError
from cotenant.hardware.nvml import Nvml
nvml = Nvml(Path(sys.argv[1]), {"COTENANT_STANDIN": sys.argv[2]})
for line in sys.stdin:
    try:
        print(json.dumps(nvml.memory_in_use(line.split())), flush=True)
    except CotenantError as error:
        print(json.dumps(type(error).__name__), flush=True)
"""


def test_memory_in_use_is_read_of_cards_that_answer_and_again_once_one_is_back(cards):
    stand_in, _ = cards("2x16GiB")
    first, second = (card.uuid for card in stand_in.cards())
    line = [sys.executable, "-c", IN_USE, str(libraries.standin_nvml()), str(cards.path)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:

        def in_use():
            reader.stdin.write(f"{first} {second}\n")
            reader.stdin.flush()
            return json.loads(reader.stdout.readline())

        assert in_use() == {first: 0, second: 0}
        stand_in.fail(first)
        assert in_use() == {second: 0}
        stand_in.fail(second)
        assert in_use() == "NoDriver"
        for uuid in (first, second):
            stand_in.recover(uuid)
        assert in_use() == {first: 0, second: 0}
        reader.stdin.close()


def test_a_card_that_is_lost_does_not_hide_the_others(cards):
    stand_in, read = cards("3x16GiB")
    stand_in.fail(stand_in.cards()[0].uuid)
    told = read()
    well = [c for c in told["cards"] if c["healthy"]]
    assert [c["index"] for c in well] == [1, 2]
    assert told["lost"] == [0] or [c["index"] for c in told["cards"] if not c["healthy"]] == [0]
    stand_in.recover(stand_in.cards()[0].uuid)
    assert all(c["healthy"] for c in read()["cards"])


def test_uncorrected_memory_errors_make_a_card_sick(cards):
    stand_in, read = cards("2xA100-80GB")
    stand_in.add_ecc_errors(stand_in.cards()[1].uuid, corrected=5)
    assert all(c["healthy"] for c in read()["cards"])
    stand_in.add_ecc_errors(stand_in.cards()[1].uuid, uncorrected=2)
    told = read()["cards"]
    assert [c["healthy"] for c in told] == [True, False]
    assert told[1]["problem"] == "2 uncorrected memory errors since it was reset"


def test_faults_are_heard_but_not_those_of_programs(cards):
    stand_in, _ = cards("2x16GiB")
    script = """
import sys
from pathlib import Path
from cotenant.hardware.nvml import Nvml
nvml = Nvml(Path(sys.argv[1]), {"COTENANT_STANDIN": sys.argv[2]})
faults = nvml.faults(2.0)
print("listening", flush=True)
sys.stdin.readline()
for fault in faults:
    print(fault.uuid, fault.xid, flush=True)
    break
"""
    line = [sys.executable, "-c", script, str(libraries.standin_nvml()), str(cards.path)]
    listener = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert listener.stdout.readline() == "listening\n"
    uuid = stand_in.cards()[1].uuid
    stand_in.post_xid(uuid, 31)
    stand_in.post_xid(uuid, 79)
    out, _ = listener.communicate("go\n", timeout=20)
    assert out == f"{uuid} 79\n"


def test_no_driver_is_told_with_what_to_try(tmp_path):
    script = (
        "from pathlib import Path; from cotenant.hardware.nvml import Nvml, NoDriver\n"
        "try: Nvml(Path('/nonexistent/libnvidia-ml.so.1')).read()\n"
        "except NoDriver as error: print(error)"
    )
    assert "--simulate" in subprocess.check_output([sys.executable, "-c", script], text=True)


def gpu(at, **fields):
    return GPU(f"GPU-{at}", at, "T4", 16 * GIB, **fields)


def test_what_was_known_of_a_lost_card_is_kept():
    readings = Readings((CardReading(gpu(1), 0),), lost=(0,))
    told = with_known(readings, {"GPU-0": gpu(0), "GPU-1": gpu(1)}, set())
    assert [(each.gpu.uuid, each.gpu.healthy, each.gpu.memory) for each in told] == [
        ("GPU-0", False, 16 * GIB),
        ("GPU-1", True, 16 * GIB),
    ]


def test_the_instances_of_a_lost_card_are_kept_and_those_of_others_are_not():
    known = {
        "MIG-0": GPU("MIG-0", 2, "A100", GIB, parent="GPU-lost"),
        "MIG-1": GPU("MIG-1", 3, "A100", GIB, parent="GPU-there"),
        "MIG-2": GPU("MIG-2", 4, "A100", GIB, parent="GPU-there"),
    }
    readings = Readings((CardReading(known["MIG-1"], 0),), lost=(0,))
    told = with_known(readings, known, set())
    assert [(each.gpu.uuid, each.gpu.healthy) for each in told] == [("MIG-0", False), ("MIG-1", True)]


def test_a_card_that_still_tells_its_uuid_gets_its_size_back():
    silent = CardReading(GPU("GPU-0", 0, "unknown model", 0, healthy=False), 0, problem="gone")
    (told,) = with_known(Readings((silent,)), {"GPU-0": gpu(0)}, set())
    assert (told.gpu.memory, told.gpu.model, told.gpu.healthy) == (16 * GIB, "T4", False)


def test_a_card_that_is_gone_is_shown_only_while_it_has_grants():
    assert with_known(Readings(()), {"GPU-0": gpu(0)}, set()) == ()
    (told,) = with_known(Readings(()), {"GPU-0": gpu(0)}, {"GPU-0"})
    assert not told.gpu.healthy


def test_a_card_whose_memory_nvml_does_not_report_has_the_hosts(cards):
    """GB10, DGX Spark: both memory calls answer `not supported`, and the card works."""
    _, read = cards("1xGB10,1x16GiB")
    unified, own = read()["cards"]
    assert (unified["model"], unified["healthy"], unified["problem"]) == ("NVIDIA GB10", True, None)
    assert unified["memory"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert (unified["shared"], own["shared"]) == (True, False)
    assert own["memory"] == 16 * GIB


@pytest.mark.parametrize(
    ("available", "held", "used"),
    [
        (128, 0, 0),  # nothing runs
        (116, 0, 0),  # the host itself uses less than its part, an eighth
        (108, 0, 4),  # 20 in use: beyond its 16
        (76, 40, 40),  # 52 in use, of which 40 by processes on the GPU and 12 by the host
        (66, 40, 46),  # the host uses 22
        (120, 40, 40),  # what a process has, and has never touched
    ],
)
def test_what_the_host_uses_of_shared_memory_counts_beyond_its_part(available: int, held: int, used: int):
    host = HostMemory(128 * GIB, available * GIB)
    assert used_of_shared(host, (CardProcess(1, held * GIB), CardProcess(2, None))) == used * GIB

"""Limits by cgroup, as drivers from r615 on have them: set by NVML, kept by whoever allocates."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from standin.conftest import BINDINGS, Machine
from standin.static_program import build

from cotenant.core.errors import BadInput
from cotenant.hardware import libraries
from cotenant.hardware.standin.spec import parse_description

MIB, GIB = 2**20, 2**30
MAX = 2**64 - 1
CONTEXT = 256 * MIB
NVML = """
import pynvml as nvml, sys
nvml.nvmlInit()
device = nvml.nvmlDeviceGetHandleByIndex(int(sys.argv[1]))
def give(path, soft, hard):
    try: nvml.nvmlDeviceSetMemoryLimits_v1(device, nvml.c_nvmlSetMemoryLimits_v1_t(path.encode(), soft, hard))
    except nvml.NVMLError as error: print(type(error).__name__)
def tell(path):
    found = nvml.c_nvmlGetMemoryLimits_v1_t(path.encode())
    try: nvml.nvmlDeviceGetMemoryLimits_v1(device, found)
    except nvml.NVMLError as error: print(type(error).__name__)
    else: print(found.softLimit, found.hardLimit, found.currentUsed)
"""
ALLOCATE = """
begin(int(os.environ.get("DEVICE", "0")))
sizes = map(int, os.environ["SIZES"].split())
for size in sizes:
    print(ok(cuda.cuMemAlloc(size * MIB)) and size, flush=True)
"""


def hierarchies() -> list[Path]:
    """Mounted cgroup filesystems in which this process may make folders: v1 and v2."""
    found = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind = after.split()[0]
        point = Path(before.split()[4])
        if kind in ("cgroup", "cgroup2") and os.access(point, os.W_OK):
            options = after.split()[2].split(",")
            if kind == "cgroup2" or "memory" in options or "pids" in options:
                found[point] = None
    return list(found)


@pytest.fixture(params=range(3))
def cgroup(request: pytest.FixtureRequest) -> Iterator[Path]:
    every = hierarchies()
    if request.param >= len(every):
        pytest.skip("this machine has no further cgroup filesystem that may be written to")
    folder = every[request.param] / f"cotenant-test-{uuid.uuid4().hex[:12]}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    yield folder
    for each in (*sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True), folder):
        remove(each)


def remove(cgroup: Path) -> None:
    """Ends what is still in it."""
    ends = time.monotonic() + 20
    while True:
        for pid in (cgroup / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            cgroup.rmdir()
            return
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.fixture(scope="module")
def static_holder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("static"))


def nvml(machine: Machine, code: str, device: int = 0) -> str:
    return machine.call(sys.executable, "-c", NVML + code, str(device)).strip()


def within(
    machine: Machine, cgroup: Path, sizes: str, code: str = ALLOCATE, **more: str
) -> subprocess.Popen[str]:
    """Runs a program that is in the cgroup before it begins."""
    program = subprocess.Popen(
        [
            "sh",
            "-c",
            f'echo $$ > {cgroup}/cgroup.procs && exec "$@"',
            "sh",
            sys.executable,
            "-c",
            BINDINGS + code,
        ],
        env=machine.environment(SIZES=sizes, **more),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    machine.programs.append(program)
    return program


def test_what_is_set_is_read_back_and_cleared(standin: Callable[..., Machine], cgroup: Path):
    machine = standin("2x16GiB@615.20")
    assert nvml(machine, f"tell('{cgroup}')") == f"0 {MAX} 0"
    assert nvml(machine, f"give('{cgroup}', {GIB}, {2 * GIB}); tell('{cgroup}')") == f"{GIB} {2 * GIB} 0"
    assert nvml(machine, f"tell('{cgroup}')", 1) == f"0 {MAX} 0", "each GPU has its own"
    [limit] = machine.cards.limits()
    assert (limit.path, limit.uuid, limit.soft, limit.hard) == (str(cgroup), machine.uuids[0], GIB, 2 * GIB)
    assert nvml(machine, f"give('{cgroup}', 0, {MAX}); tell('{cgroup}')") == f"0 {MAX} 0"
    assert machine.cards.limits() == ()


def test_a_process_beyond_the_hard_limit_is_killed_and_its_sibling_is_not(
    standin: Callable[..., Machine], cgroup: Path
):
    machine = standin("1x16GiB@615.20")
    small, large = cgroup / "small", cgroup / "large"
    small.mkdir()
    large.mkdir()
    nvml(machine, f"give('{small}', 0, {GIB}); give('{large}', 0, {4 * GIB})")
    one = within(machine, small, "512 256 512")
    two = within(machine, large, "512 256 512", ALLOCATE + "hold()")
    assert one.communicate(timeout=60)[0] == "512\n256\n"
    assert one.returncode == -signal.SIGKILL
    assert two.stdout is not None
    assert [two.stdout.readline() for _ in range(4)] == ["512\n", "256\n", "512\n", "ready\n"]
    assert nvml(machine, f"tell('{large}'); tell('{small}')").split("\n") == [
        f"0 {4 * GIB} {1280 * MIB + CONTEXT}",
        f"0 {GIB} 0",
    ]


def test_a_static_program_is_killed_at_the_limit_and_what_it_had_is_free(
    standin: Callable[..., Machine], cgroup: Path, static_holder: Path
):
    """No preload reaches it: it asks the driver itself."""
    machine = standin("1x16GiB@615.20")
    machine.run("begin()")  # makes the driver's locks
    nvml(machine, f"give('{cgroup}', 0, {GIB})")
    program = subprocess.run(
        ["sh", "-c", f'echo $$ > {cgroup}/cgroup.procs && exec "$@"', "sh", static_holder, "64", "0"],
        env=machine.environment(LD_PRELOAD=str(libraries.shim())),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert program.returncode == -signal.SIGKILL
    assert program.stdout.splitlines()[-1] == '{"got": 1024}'
    assert machine.used() == 0


def test_all_processes_of_a_cgroup_and_of_those_below_it_count_together(
    standin: Callable[..., Machine], cgroup: Path
):
    machine = standin("1x16GiB@615.20")
    below = cgroup / "below"
    below.mkdir()
    first = within(machine, below, "512", ALLOCATE + "hold()")
    assert first.stdout is not None
    assert [first.stdout.readline() for _ in range(2)] == ["512\n", "ready\n"]
    nvml(machine, f"give('{cgroup}', 0, {GIB + 2 * CONTEXT})")
    assert nvml(machine, f"tell('{cgroup}')").split()[2] == str(512 * MIB + CONTEXT), (
        "who was there before counts"
    )
    second = within(machine, cgroup, "256 512")
    assert second.communicate(timeout=60)[0] == "256\n"
    assert second.returncode == -signal.SIGKILL
    third = within(machine, cgroup, "512")
    assert third.communicate(timeout=60)[0] == "512\n", "what the killed one had is free again"


def test_limits_go_with_the_cgroup(standin: Callable[..., Machine], cgroup: Path):
    machine = standin("1x16GiB@615.20")
    child = cgroup / "child"
    child.mkdir()
    nvml(machine, f"give('{child}', 0, {GIB})")
    child.rmdir()
    assert nvml(machine, f"tell('{child}')") == "NVMLError_NotFound"
    child.mkdir()
    assert nvml(machine, f"tell('{child}')") == f"0 {MAX} 0", "another cgroup of that name has none"
    nvml(machine, f"give('{cgroup}', 0, {GIB})")
    assert [limit.path for limit in machine.cards.limits()] == [str(cgroup)]


@pytest.mark.parametrize(
    ("spec", "path", "error"),
    [
        ("1x16GiB", "{cgroup}", "NVMLError_FunctionNotFound"),
        ("1x16GiB@614.99", "{cgroup}", "NVMLError_FunctionNotFound"),
        ("1xA100-80GB/3g.40gb@615", "{cgroup}", "NVMLError_NotSupported"),
        ("1x16GiB@615", "{cgroup}/missing", "NVMLError_NotFound"),
        ("1x16GiB@615", "/proc", "NVMLError_NotFound"),
        ("1x16GiB@615", "relative", "NVMLError_InvalidArgument"),
        ("1x16GiB@615", "/" + "x" * 5000, "NVMLError_InvalidArgument"),
    ],
)
def test_what_cannot_be_limited_is_refused(standin: Callable[..., Machine], spec: str, path: str, error: str):
    folder = hierarchies()[0] if hierarchies() else Path("/sys/fs/cgroup")
    where = path.format(cgroup=folder)
    assert nvml(standin(spec), f"give({where!r}, 0, {GIB}); tell({where!r})").split() == [error, error]


def test_the_table_is_bounded_and_what_is_gone_makes_room(standin: Callable[..., Machine], cgroup: Path):
    machine = standin("1x16GiB@615.20")
    code = f"""
import os
for i in range(513):
    os.mkdir(f"{cgroup}/{{i}}")
    give(f"{cgroup}/{{i}}", 0, {GIB})
os.rmdir("{cgroup}/7")
give("{cgroup}/512", 0, {GIB})
tell("{cgroup}/512")
"""
    assert nvml(machine, code).split("\n") == ["NVMLError_InsufficientSize", f"0 {GIB} 0"]


@pytest.mark.parametrize("text", ["2xT4@", "2xT4@old", "2xT4@615@616", "2xT4@6.1", "@615"])
def test_a_version_that_is_none_is_refused(text: str):
    with pytest.raises(BadInput):
        parse_description(text)


def test_the_library_says_which_driver_it_plays(standin: Callable[..., Machine]):
    machine = standin("1xT4@615.20.01")
    assert nvml(machine, "print(nvml.nvmlSystemGetDriverVersion())") == "615.20.01"

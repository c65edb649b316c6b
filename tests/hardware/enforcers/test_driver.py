"""The driver's own limits as an enforcer: on real cgroups of this machine, with the simulated driver."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.core.errors import CotenantError
from cotenant.core.grant import Share
from cotenant.hardware import libraries, slots
from cotenant.hardware.cgroup_folders import hierarchies, own_cgroup, processes_in, scratch
from cotenant.hardware.driver_limits import NO_LIMIT, CgroupLimit, DriverLimits, LimitsUnavailable
from cotenant.hardware.enforcers.driver import Driver
from cotenant.hardware.enforcers.shim import Shim
from cotenant.hardware.nvml import Nvml
from cotenant.hardware.standin import driver as standin

GIB = 2**30


OPENED: list[Nvml] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """NVML has one state in a process: the next test has other cards."""
    yield
    while OPENED:
        OPENED.pop().close()


def machine(tmp_path: Path, spec: str) -> tuple[DriverLimits, list[str], standin.StandIn]:
    state = tmp_path / "cards"
    described = standin.parse_description(spec)
    standin.create(state, described.cards, driver=described.driver)
    cards = standin.StandIn(state)
    nvml = Nvml(libraries.standin_nvml(), {standin.VARIABLE: str(state)})
    OPENED.append(nvml)
    return DriverLimits(nvml), [card.uuid for card in cards.cards()], cards


@pytest.fixture
def cgroup() -> Iterator[Path]:
    if not hierarchies():
        pytest.skip("no cgroup filesystem is mounted here")
    folder = hierarchies()[0] / f"cotenant-test-{uuid.uuid4().hex[:12]}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    yield folder
    folder.rmdir()


class Made:
    """A slot on two cards, and the driver that is to hold it."""

    def __init__(self, tmp_path: Path, cgroups: list[Path], mode: str = "enforce") -> None:
        self.limits, self.uuids, self.cards = machine(tmp_path, "2x16GiB@615.20")
        self.cgroups = cgroups
        self.driver = Driver(Shim(libraries.shim()), self.limits, lambda *_: self.cgroups, scratch)
        self.slot = tmp_path / "slot"
        shares = [Share(self.uuids[0], 2 * GIB), Share(self.uuids[1], 3 * GIB)]
        given = slots.limits_of("u-1", mode, shares, lambda _: 0)  # type: ignore[arg-type]
        self.driver.prepare(self.slot, given, slots.PRIVATE)

    def set(self) -> dict[str, int]:
        return {limit.uuid: limit.hard for limit in self.cards.limits()}


def test_it_is_tried_before_it_is_believed(tmp_path: Path):
    limits, _, cards = machine(tmp_path, "1x16GiB@615.20")
    found = Driver(Shim(libraries.shim()), limits, lambda *_: [], scratch).availability()
    assert found.available
    assert "set, read back and cleared" in found.reason
    assert cards.limits() == ()
    assert not list(hierarchies()[0].glob("cotenant-probe-*"))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("1x16GiB", "the driver (580.95.05) has no limits of memory by cgroup: they came with r615"),
        ("1xA100-80GB/3g.40gb@620", "the driver does not limit memory there: it is a MIG instance"),
    ],
)
def test_why_it_cannot_be_used_is_said_in_words(tmp_path: Path, spec: str, reason: str):
    limits, _, _ = machine(tmp_path, spec)
    found = Driver(Shim(libraries.shim()), limits, lambda *_: [], scratch).availability()
    assert not found.available
    assert reason in found.reason


def test_one_card_that_can_be_limited_is_enough(tmp_path: Path):
    limits, _, _ = machine(tmp_path, "1xA100-80GB/3g.40gb,1xT4@620")
    assert Driver(Shim(libraries.shim()), limits, lambda *_: [], scratch).availability().available


def test_without_a_place_for_cgroups_it_is_not_available(tmp_path: Path):
    limits, _, _ = machine(tmp_path, "1x16GiB@615.20")
    nowhere = Driver(Shim(libraries.shim()), limits, lambda *_: [], lambda: scratch(tmp_path / "none"))
    assert "no cgroup can be made to try a limit on" in nowhere.availability().reason


def test_limits_are_set_once_the_cgroup_is_there_and_changed_and_cleared(tmp_path: Path, cgroup: Path):
    made = Made(tmp_path, [])
    assert made.driver.confirm(made.slot).state == "unknown"
    assert made.set() == {}
    made.cgroups.append(cgroup)
    found = made.driver.confirm(made.slot)
    assert (found.state, found.by) == ("holds", "driver")
    assert made.set() == {made.uuids[0]: 2 * GIB, made.uuids[1]: 3 * GIB}
    made.driver.change(made.slot, {made.uuids[1]: GIB})
    assert made.set() == {made.uuids[0]: 2 * GIB, made.uuids[1]: GIB}
    assert made.driver.tear_down(made.slot)
    assert made.set() == {}, "the cgroup outlives the slot"


def test_what_somebody_else_changed_is_set_again(tmp_path: Path, cgroup: Path):
    made = Made(tmp_path, [cgroup])
    made.driver.confirm(made.slot)
    made.limits.set(made.uuids[0], cgroup, None)
    assert made.driver.confirm(made.slot).by == "driver"
    assert made.set()[made.uuids[0]] == 2 * GIB


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_where_nothing_may_be_ended_nothing_is_set_and_what_was_set_is_cleared(
    tmp_path: Path, cgroup: Path, mode: str
):
    made = Made(tmp_path, [cgroup], mode)
    made.limits.set(made.uuids[0], cgroup, GIB)
    found = made.driver.confirm(made.slot)
    assert found.by != "driver"
    assert f"mode {mode}: the driver's limit is not set" in found.reason
    assert made.set() == {}


def test_a_cgroup_that_is_gone_is_not_held(tmp_path: Path, cgroup: Path):
    gone = cgroup / "gone"
    made = Made(tmp_path, [gone])
    found = made.driver.confirm(made.slot)
    assert found.by != "driver"
    assert "Not Found" in found.reason
    assert made.driver.tear_down(made.slot)


def test_one_gpu_that_fails_does_not_keep_the_other_from_its_limit(tmp_path: Path, cgroup: Path):
    made = Made(tmp_path, [cgroup])
    made.cards.fail(made.uuids[0])
    found = made.driver.confirm(made.slot)
    assert found.by != "driver"
    assert "GPU is lost" in found.reason
    assert made.set() == {made.uuids[1]: 3 * GIB}
    with pytest.raises(CotenantError, match="GPU is lost"):
        made.driver.change(made.slot, {made.uuids[0]: GIB})
    made.cards.recover(made.uuids[0])
    assert made.driver.confirm(made.slot).by == "driver"


def test_a_driver_that_takes_a_limit_and_keeps_another_is_not_believed(tmp_path: Path):
    class Forgetful(DriverLimits):
        def get(self, uuid: str, cgroup: Path) -> CgroupLimit:
            return CgroupLimit(0, 7, 0)

        def set(self, uuid: str, cgroup: Path, size: int | None) -> None:
            pass

    with pytest.raises(LimitsUnavailable, match="asked for a limit of 1Gi on /x, and tells 7 bytes"):
        Forgetful(Nvml()).hold("GPU-a", Path("/x"), GIB)


@pytest.mark.parametrize(
    ("limit", "asked", "same"),
    [
        (CgroupLimit(0, NO_LIMIT, 5), None, True),
        (CgroupLimit(GIB, GIB, 0), None, False),
        (CgroupLimit(GIB, GIB, 0), GIB, True),
        (CgroupLimit(GIB, GIB, 0), GIB + 4096, True),
        (CgroupLimit(GIB, GIB + 4096, 0), GIB, False),
        (CgroupLimit(0, NO_LIMIT, 0), GIB, False),
    ],
)
def test_a_driver_may_round_down_to_its_granule_and_not_up(limit: CgroupLimit, asked: int, same: bool):
    assert limit.is_at(asked) == same


def test_processes_of_a_cgroup_include_those_below_it(cgroup: Path):
    below = cgroup / "below"
    below.mkdir()
    with subprocess.Popen(["sleep", "60"]) as program:
        (below / "cgroup.procs").write_text(str(program.pid))
        assert list(processes_in(cgroup)) == [program.pid]
        program.kill()
    assert list(processes_in(cgroup)) == []
    below.rmdir()
    assert list(processes_in(below)) == []


def test_where_no_cgroup_may_be_made_the_process_s_own_is_tried(tmp_path: Path):
    """As in the agent's pod: the top folder takes nothing from one without capabilities."""
    top = tmp_path / "cgroup"
    own = top / "kubepods.slice" / "pod" / "agent.scope"
    own.mkdir(parents=True)
    (top / "cgroup.procs").write_text("1\n")
    (own / "cgroup.procs").write_text(f"7\n{os.getpid()}\n")
    (top / f"cotenant-probe-{os.getpid()}").write_text("in the way, as a missing right would be")
    with scratch(top) as found:
        assert found == own
    (own / "cgroup.procs").write_text("7\n")
    with pytest.raises(OSError, match="own is not found"), scratch(top):
        pass


def test_a_process_finds_its_own_cgroup_by_its_path_or_by_its_pid(cgroup: Path):
    code = f"""
import os, sys
from pathlib import Path
open({str(cgroup / "cgroup.procs")!r}, "w").write(str(os.getpid()))
from cotenant.hardware.cgroup_folders import own_cgroup
proc = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("/proc")
print(own_cgroup(Path({str(cgroup.parent)!r}), proc))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == f"{cgroup}\n"


def test_in_a_cgroup_namespace_it_is_searched_for(cgroup: Path, tmp_path: Path):
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("0::/\n")
    with subprocess.Popen(["sleep", "60"]) as program:
        (cgroup / "cgroup.procs").write_text(str(program.pid))
        assert own_cgroup(cgroup.parent, tmp_path, program.pid) == cgroup
        program.kill()

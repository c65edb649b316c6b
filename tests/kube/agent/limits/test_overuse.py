"""What a container holds beyond its limit, and for how long it may."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kube.agent.nodes import GIB, A, B

from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.hardware.nvml import CardReading
from cotenant.hardware.slots import limits_of
from cotenant.kube.agent.cards.cgroups import Owner
from cotenant.kube.agent.cards.survey import PodProcess, Sight
from cotenant.kube.agent.limits.attention import is_due, is_uncounted
from cotenant.kube.agent.limits.commands import command_of
from cotenant.kube.agent.limits.overuse import TOLERANCE, Overuse, OveruseClock, named, overuses
from cotenant.kube.agent.slots.node_slots import NodeSlot
from cotenant.kube.agent.slots.owner import SlotOwner

OWNER = SlotOwner("u-1", "default", "web", "main")
SHARES = (Share(A, 2 * GIB), Share(B, GIB))
SLOT = NodeSlot("slot-0000", OWNER, SHARES, limits_of("u-1", "enforce", SHARES, lambda _: 0), Path("/none"))


def process(pid: int, size: int | None) -> PodProcess:
    return PodProcess(pid, pid, Owner("u-1", "c"), size)


def test_all_processes_of_a_container_count_together_on_each_gpu():
    seen = {A: [process(1, GIB), process(2, GIB + 2 * TOLERANCE)], B: [process(1, GIB)]}
    (found,) = overuses(SLOT, seen, {})
    assert (found.uuid, found.limit, found.over) == (A, 2 * GIB, 2 * TOLERANCE)
    assert [each.pid for each in found.processes] == [2, 1], "the largest first"
    assert overuses(SLOT, {A: [process(1, 2 * GIB + TOLERANCE)]}, {}) == ()
    assert overuses(SLOT, {}, {A: 99 * GIB}) == (), "nobody is there who could hold it"


def test_where_the_driver_tells_no_figures_the_slots_count():
    assert overuses(SLOT, {A: [process(1, None)]}, {A: 2 * GIB}) == ()
    (found,) = overuses(SLOT, {A: [process(1, None)]}, {A: 3 * GIB})
    assert found.used == 3 * GIB


def over(size: int = GIB) -> tuple[Overuse, ...]:
    return (Overuse(A, 2 * GIB, 2 * GIB + size, ()),)


def test_only_what_lasts_longer_than_the_grace_is_reported():
    clock = OveruseClock(5.0)
    assert clock.look({"s": over()}, 0.0) == {}
    assert clock.waits
    assert clock.look({"s": ()}, 3.0) == {}
    assert not clock.waits
    assert clock.look({"s": over()}, 4.0) == {}
    assert clock.look({"s": over()}, 8.9) == {}, "it began anew"
    assert clock.look({"s": over(2 * GIB)}, 9.0) == {"s": over(2 * GIB)}
    assert not clock.waits


def test_one_that_goes_up_and_down_is_over_until_it_has_been_under_for_the_grace():
    clock = OveruseClock(5.0)
    clock.look({"s": over()}, 0.0)
    assert clock.look({"s": over()}, 5.0)
    assert clock.look({"s": ()}, 6.0)
    assert clock.waits
    assert clock.look({"s": over()}, 8.0)
    assert clock.look({"s": ()}, 10.0)
    assert clock.look({"s": ()}, 14.9)
    assert clock.look({"s": ()}, 15.0) == {}
    assert not clock.waits


def test_another_agent_goes_on_where_the_one_before_was_killed():
    clock = OveruseClock(5.0)
    assert clock.look({"s": over(), "t": over()}, 0.0, {"s"}) == {"s": over()}
    assert clock.look({"s": (), "t": ()}, 1.0, {"s"}) == {"s": over()}
    assert clock.look({"s": (), "t": ()}, 6.0, {"s"}) == {}


def test_a_slot_that_is_gone_is_forgotten_at_once():
    clock = OveruseClock(0.0)
    assert clock.look({"s": over()}, 0.0)
    assert clock.look({}, 0.1) == {}


def test_processes_are_named_with_what_they_hold():
    many = [process(pid, GIB) for pid in range(1, 7)]
    assert named(many[:1], {1: "train"}) == "process 1 (train) with 1Gi"
    assert named(many, {}).endswith(" and 2 more")
    assert named([process(1, None)], {}) == "process 1 (?)"


def test_commands_are_shortened_and_printable(tmp_path: Path):
    assert command_of(os.getpid()) != "?"
    assert command_of(2**22 + 7) == "?"
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "cmdline").write_bytes(b"/opt/x\x1b[31m" + b"y" * 100 + b"\0--secret\0")
    (folder / "comm").write_bytes(b"kept\n")
    assert command_of(7, tmp_path) == "x[31m" + "y" * 35
    (folder / "cmdline").write_bytes(b"")
    assert command_of(7, tmp_path) == "kept"


def sight(used: int, outside: int = 0) -> Sight:
    return Sight((CardReading(GPU(A, 0, "T4", 16 * GIB), used),), {A: outside}, 0.0, granted=True)


@pytest.mark.parametrize(
    ("used", "outside", "counted", "look"),
    [
        (GIB, 0, 0, False),
        (2 * GIB, 0, 2 * GIB, False),
        (2 * GIB, GIB, GIB, False),
        (2 * GIB, 0, GIB, True),
        (GIB + TOLERANCE, 0, 0, False),
    ],
    ids=["nothing new", "slots count it", "known before", "nobody counts it", "too little"],
)
def test_memory_that_nobody_counts_brings_a_survey_before_it_is_time(
    used: int, outside: int, counted: int, look: bool
):
    assert is_uncounted({A: used}, sight(GIB, outside), lambda: {A: counted}) is look


def test_at_rest_no_slot_is_read():
    def never() -> dict[str, int]:
        raise AssertionError("slots were read")

    assert not is_uncounted({A: GIB, B: 5}, sight(GIB), never)


def test_what_is_undecided_is_looked_at_again_at_once_and_what_is_known_less_often():
    assert is_due(undecided=True, over=False, age=0.0)
    assert not is_due(undecided=False, over=True, age=1.0)
    assert is_due(undecided=False, over=True, age=6.0)
    assert not is_due(undecided=False, over=False, age=100.0)

"""What one owner may have at a time."""

from __future__ import annotations

from fractions import Fraction

import pytest

from cotenant.core.caps import Caps, Holding
from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant, Share
from cotenant.core.ledger import Ledger
from cotenant.core.line import Fairness, Served, Waiting, serve
from cotenant.core.seen_pods import SeenPods

GPUS = [GPU("0", 0, "T4", 10), GPU("1", 1, "T4", 10)]


def wait(id: str, size: int, owner: str, since: float = 0) -> Waiting:
    return Waiting(id, Demand(Memory(bytes=size)), 0, since, owner=owner)


def served(caps: Caps, line: list[Waiting], running: dict[str, tuple[str, int]], now: float = 0) -> Served:
    """`running`: owner and size by id, all on GPU 0."""
    grants = [Grant(id, (Share("0", size),)) for id, (_, size) in running.items()]
    fair = Fairness(owners={id: owner for id, (owner, _) in running.items()}, caps=caps)
    return serve(Ledger(GPUS, grants=grants), line, now, 60, SeenPods(), fair)


@pytest.mark.parametrize(
    ("caps", "admitted"),
    [
        (Caps(), ["a2", "a3", "b1"]),
        (Caps(running=1), ["b1"]),
        (Caps(running=2), ["a2", "b1"]),
        (Caps(memory=5), ["a2", "b1"]),
        (Caps(memory=6), ["a2", "a3", "b1"]),
        (Caps(running=1, exempt=frozenset("a")), ["a2", "a3", "b1"]),
    ],
)
def test_what_would_pass_a_cap_waits_and_the_others_go_on(caps: Caps, admitted: list[str]) -> None:
    line = [wait("a2", 2, "a", 1), wait("a3", 1, "a", 2), wait("b1", 2, "b", 3)]
    done = served(caps, line, {"a1": ("a", 3)})
    assert sorted(grant.id for grant in done.admitted) == admitted


def test_a_cap_holds_also_for_what_one_pass_admits() -> None:
    line = [wait(f"a{at}", 1, "a", at) for at in range(9)]
    assert len(served(Caps(running=4), line, {}).admitted) == 4
    assert len(served(Caps(memory=3), line, {}).admitted) == 3


def test_no_gpu_is_held_for_a_demand_that_a_cap_keeps_back() -> None:
    line = [wait("a2", 9, "a", 0), wait("b1", 4, "b", 99)]
    running = {"a1": ("a", 5), "x": ("x", 4)}
    full = {**running, "y": ("y", 1)}
    done = served(Caps(running=1), [line[0]], full, now=100)
    assert done.held == {}


def test_why_and_never() -> None:
    caps = Caps(running=2, memory=8 << 30)
    assert str(caps.refuse("ann", Holding(2, 1), 1)) == "ann has 2 running, one user may have 2 at a time"
    refusal = caps.refuse("ann", Holding(1, 6 << 30), 4 << 30)
    assert str(refusal) == "ann would have 10Gi in all, one user may have 8Gi at a time"
    assert not refusal.never
    gpus = [GPU("0", 0, "A100", 16 << 30), GPU("1", 1, "A100", 40 << 30)]
    assert caps.never("ann", Demand(Memory(bytes=9 << 30)), gpus) is not None
    assert caps.never("ann", Demand(Memory(bytes=8 << 30)), gpus) is None
    assert caps.never("ann", Demand(Memory(percent=Fraction(50))), gpus) is None
    assert caps.never("ann", Demand(Memory(percent=Fraction(50)), gpus=2), gpus) is not None
    assert caps.never("ann", Demand(whole=1), gpus) is not None
    assert Caps(memory=1, exempt=frozenset({"root"})).never("root", Demand(whole=1), gpus) is None


def test_the_line_of_one_owner() -> None:
    caps = Caps(waiting=3, exempt=frozenset({"root"}))
    assert [caps.full_line("ann", count) for count in (1, 3, 4)] == [False, False, True]
    assert not caps.full_line("root", 99)
    assert not Caps().full_line("ann", 10**6)

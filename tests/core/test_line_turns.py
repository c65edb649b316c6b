"""The line of several owners: they take turns, however many demands one has."""

from __future__ import annotations

from dataclasses import replace

from core.lines import PATIENCE, admitted, asks, filled, machine, remembered

from cotenant.core.grant import Grant, Share
from cotenant.core.ledger import Ledger
from cotenant.core.line import Fairness, Waiting, order, place_in_line, serve
from cotenant.core.seen_pods import SeenPods


def of(owner: str, *ids: str, since: float = 0, priority: int = 0) -> list[Waiting]:
    """Demands of one owner, that joined one after the other."""
    return [Waiting(id, asks(1), priority, since + at, owner=owner) for at, id in enumerate(ids)]


def test_owners_take_turns_however_many_demands_one_has() -> None:
    line = [*of("ann", "a1", "a2", "a3", "a4"), *of("bob", "b1", "b2", since=10), *of("cyd", "c1", since=20)]
    assert [each.id for each in order(line)] == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]
    assert place_in_line(line, "b1") == 2


def test_who_had_a_turn_last_comes_last() -> None:
    line = [*of("ann", "a1", "a2"), *of("bob", "b1", since=10), *of("cyd", "c1", since=20)]
    assert [each.id for each in order(line, {"ann": 7, "bob": 9})] == ["c1", "a1", "b1", "a2"]


def test_priority_counts_only_among_an_owner_s_own() -> None:
    line = [*of("ann", "a1", "a2"), *of("ann", "urgent", since=99, priority=1000), *of("bob", "b1", since=10)]
    assert [each.id for each in order(line, {"ann": 1})] == ["b1", "urgent", "a1", "a2"]


def test_one_card_that_takes_one_at_a_time_goes_round() -> None:
    """Ann's twenty were there before Bob's and Cyd's few: nobody's first waits for more than one of each."""
    line = [
        *of("ann", *(f"a{at}" for at in range(20))),
        *of("bob", *(f"b{at}" for at in range(3)), since=100),
        *of("cyd", "c0", since=101),
    ]
    line = [replace(each, demand=asks(10)) for each in line]
    turns: dict[str, int] = {}
    started = []
    for number in range(len(line)):
        served = serve(Ledger(machine(10)), line, 1000, PATIENCE, SeenPods(), Fairness(turns))
        (id,) = admitted(served)
        assert served.turns == (id,)
        started.append(id)
        turns[next(each.owner for each in line if each.id == id)] = number
        line = remembered(line, served)
    assert started[:8] == ["a0", "b0", "c0", "a1", "b1", "a2", "b2", "a3"]


def test_what_overtakes_its_owner_s_first_costs_no_turn() -> None:
    ledger = filled(machine(10, 4), 5, 0)
    line = [Waiting("big", asks(10), 0, 0, owner="ann"), Waiting("small", asks(2), 0, 1, owner="ann")]
    served = serve(ledger, line, 2, PATIENCE, SeenPods(), Fairness({"ann": 1}))
    assert (admitted(served), served.turns) == (["small"], ())


def test_a_big_demand_is_passed_by_each_other_owner_once() -> None:
    """Small demands of others and of its own owner keep coming, and both cards are never idle by themselves."""
    gpus = machine(10, 10)
    big = Waiting("big", asks(10), 0, 0, owner="ann")
    line: list[Waiting] = [big]
    turns = {"ann": 0}
    running: list[Grant] = [Grant("x", (Share("0", 6),)), Grant("y", (Share("1", 6),))]
    for at in range(1, 40):
        line += [
            Waiting(f"a{at}", asks(6), 0, at * 10, owner="ann"),
            Waiting(f"b{at}", asks(6), 0, at * 10, owner="bob"),
        ]
        running = running[1:]  # the one that has run for longest ends
        served = serve(Ledger(gpus, grants=running), line, at * 10, PATIENCE, SeenPods(), Fairness(turns))
        owners = {each.id: each.owner for each in line}
        turns |= {owners[id]: at for id in served.turns}
        running += served.admitted
        line = remembered(line, served)
        if "big" in admitted(served):
            break
    assert "big" in {grant.id for grant in running}
    assert at <= PATIENCE // 10 + 3

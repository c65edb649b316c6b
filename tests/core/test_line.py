"""The line: who starts, who may pass whom, and that nobody waits for ever."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import DuplicateCharge
from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant, Share
from cotenant.core.ledger import Ledger
from cotenant.core.line import Fairness, Served, Waiting, order, place_in_line, serve
from cotenant.core.placement import DEFAULT_TYPICAL, place

PATIENCE = 60


def machine(*sizes: int) -> list[GPU]:
    return [GPU(str(at), at, "T4", size) for at, size in enumerate(sizes)]


def asks(size: int, gpus: int = 1, **wishes: tuple[str, ...]) -> Demand:
    return Demand(Memory(bytes=size * gpus), gpus=gpus, **wishes)  # type: ignore[arg-type]


def wait(id: str, demand: Demand, since: float = 0, priority: int = 0, held: tuple[str, ...] = ()) -> Waiting:
    return Waiting(id, demand, priority, since, held)


def now(ledger: Ledger, line: Iterable[Waiting], at: float) -> Served:
    return serve(ledger, line, at, PATIENCE, DEFAULT_TYPICAL)


def admitted(served: Served) -> list[str]:
    return [grant.id for grant in served.admitted]


def remembered(line: Iterable[Waiting], served: Served) -> list[Waiting]:
    """The line after: those admitted are gone, the holds are noted."""
    gone = set(admitted(served))
    return [replace(each, held=served.held.get(each.id, ())) for each in line if each.id not in gone]


def filled(gpus: list[GPU], *sizes: int) -> Ledger:
    grants = [
        Grant(f"on-{gpu.uuid}", (Share(gpu.uuid, size),))
        for gpu, size in zip(gpus, sizes, strict=True)
        if size
    ]
    return Ledger(gpus, grants=grants)


def test_priority_then_age_then_id_decide_the_order() -> None:
    line = [
        wait("d", asks(1), since=5),
        wait("c", asks(1), since=3),
        wait("b", asks(1), since=3),
        wait("a", asks(1), since=9, priority=1),
        wait("e", asks(1), since=0, priority=-1),
    ]
    assert [each.id for each in order(line)] == ["a", "b", "c", "d", "e"]
    assert [place_in_line(line, id) for id in "abcde"] == [1, 2, 3, 4, 5]
    with pytest.raises(KeyError):
        place_in_line(line, "nobody")


def test_those_that_fit_are_admitted_in_order_and_the_ledger_given_stays_as_it_was() -> None:
    ledger = Ledger(machine(10))
    served = now(ledger, [wait("second", asks(6), since=2), wait("first", asks(6), since=1)], 3)
    assert admitted(served) == ["first"]
    assert served.held == {}
    assert ledger.grants == {}
    assert set(served.ledger.grants) == {"first"}


def test_a_small_demand_passes_a_big_one_that_has_not_waited_long() -> None:
    ledger = filled(machine(10), 5)
    line = [wait("big", asks(10), since=0), wait("small", asks(2), since=1)]
    assert admitted(now(ledger, line, PATIENCE - 1)) == ["small"]


def test_after_its_patience_a_big_demand_holds_a_card_and_nobody_behind_gets_on_it() -> None:
    ledger = filled(machine(10, 4), 5, 4)
    line = [wait("big", asks(10), since=0), wait("small", asks(2), since=1)]
    served = now(ledger, line, PATIENCE)
    assert admitted(served) == []
    assert served.held == {"big": ("0",)}
    assert served.held_for("small") == {"0": "big"}
    assert served.held_for("big") == {}


def test_others_go_on_using_the_cards_that_are_not_held() -> None:
    ledger = filled(machine(10, 4), 5, 0)
    line = [wait("big", asks(10), since=0), wait("small", asks(2), since=1)]
    served = now(ledger, line, PATIENCE)
    assert [(grant.id, grant.shares[0].uuid) for grant in served.admitted] == [("small", "1")]


def test_a_higher_priority_may_take_what_is_held_for_a_lower_one() -> None:
    ledger = filled(machine(10), 5)
    line = [wait("big", asks(10), held=("0",)), wait("urgent", asks(2), since=99, priority=1)]
    assert admitted(now(ledger, line, 100)) == ["urgent"]


def test_the_card_with_most_free_room_is_held_and_stays_held_when_another_becomes_roomier() -> None:
    gpus = machine(10, 10)
    line = [wait("big", asks(10))]
    served = now(filled(gpus, 4, 6), line, PATIENCE)
    assert served.held == {"big": ("0",)}
    served = now(filled(gpus, 4, 1), remembered(line, served), PATIENCE + 1)
    assert served.held == {"big": ("0",)}
    served = now(filled(gpus, 4, 0), remembered(line, served), PATIENCE + 2)
    assert served.admitted[0].shares[0].uuid == "1"
    assert served.held == {}


def test_a_hold_moves_on_when_its_card_falls_sick_vanishes_or_fills_up_from_outside() -> None:
    gpus = machine(10, 10)
    line = [wait("big", asks(10), held=("0",))]
    other = [Grant("x", (Share("1", 9),))]
    sick = Ledger([replace(gpus[0], healthy=False), gpus[1]], grants=other)
    assert now(sick, line, 99).held == {"big": ("1",)}
    assert now(Ledger(gpus[1:], grants=other), line, 99).held == {"big": ("1",)}
    assert now(Ledger(gpus, {"0": 1}, other), line, 99).held == {"big": ("1",)}


@pytest.mark.parametrize(
    "demand",
    [
        asks(11),
        asks(5, gpus=3),
        asks(5, uuids=("gone",)),
        asks(5, models=("H100",)),
        Demand(whole=3),
        asks(6, gpus=2, uuids=("0", "gone")),
    ],
)
def test_a_demand_that_can_never_be_served_holds_nothing_and_blocks_nobody(demand: Demand) -> None:
    ledger = Ledger(machine(10, 10))
    served = now(
        ledger, [wait("never", demand), wait("small", asks(10), since=1), wait("next", asks(9), since=2)], 1e9
    )
    assert admitted(served) == ["small", "next"]
    assert served.held == {}


def test_whole_cards_are_held_only_where_nobody_outside_sits() -> None:
    gpus = machine(10, 10)
    grants = [Grant("x", (Share("0", 1), Share("1", 1)))]
    served = now(
        Ledger(gpus, {"0": 1}, grants), [wait("whole", Demand()), wait("s", asks(1), since=1)], PATIENCE
    )
    assert served.held == {"whole": ("1",)}
    assert served.admitted[0].shares[0].uuid == "0"
    assert now(Ledger(gpus, {"0": 1, "1": 1}, grants), [wait("whole", Demand())], PATIENCE).held == {}


def test_a_demand_for_several_cards_holds_all_it_needs_or_none() -> None:
    gpus = machine(10, 10, 10)
    ledger = filled(gpus, 1, 2, 3)
    line = [
        wait("two", Demand(whole=2)),
        wait("pair", Demand(whole=2), since=1),
        wait("one", Demand(), since=2),
    ]
    served = now(ledger, line, 99)
    assert served.held == {"two": ("0", "1"), "one": ("2",)}


def test_several_that_waited_long_hold_different_cards() -> None:
    ledger = filled(machine(10, 10, 10), 1, 2, 3)
    line = [wait(name, asks(10), since=since) for since, name in enumerate(["a", "b", "c", "d"])]
    assert now(ledger, line, 99).held == {"a": ("0",), "b": ("1",), "c": ("2",)}


def test_a_newcomer_ahead_does_not_take_over_anothers_hold_without_need() -> None:
    ledger = filled(machine(10, 10), 1, 5)
    line = [wait("low", asks(10), held=("0",)), wait("high", asks(10), since=1, priority=1)]
    assert now(ledger, line, 99).held == {"high": ("1",), "low": ("0",)}


def test_an_empty_line_and_a_machine_without_cards() -> None:
    assert now(Ledger([]), [], 0).admitted == ()
    assert now(Ledger([]), [wait("x", asks(1))], 1e9).held == {}


def test_who_is_charged_already_cannot_wait() -> None:
    ledger = Ledger(machine(10), grants=[Grant("x", (Share("0", 1),))])
    with pytest.raises(DuplicateCharge):
        now(ledger, [wait("x", asks(1))], 0)


# Any machine, any line.

sizes = st.integers(1, 12)
demands = st.one_of(
    st.builds(asks, sizes, gpus=st.integers(1, 3)),
    st.builds(asks, sizes, uuids=st.sampled_from([("0",), ("1", "2"), ("gone",)])),
    st.builds(
        lambda percent, gpus: Demand(Memory(percent=Fraction(percent)), gpus=gpus), st.integers(1, 100), sizes
    ),
    st.builds(lambda cards: Demand(whole=cards), st.integers(1, 3)),
    st.builds(lambda size, compute: Demand(Memory(bytes=size), compute=compute), sizes, st.integers(1, 100)),
)
uuids = st.sampled_from(["0", "1", "2", "3", "gone"])
lines = st.lists(
    st.builds(
        Waiting,
        id=st.uuids().map(str),
        demand=demands,
        priority=st.integers(0, 1),
        since=st.integers(0, 100),
        held=st.lists(uuids, max_size=2, unique=True).map(tuple),
    ),
    max_size=6,
    unique_by=lambda waiting: waiting.id,
)


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    gpus = [
        GPU(str(at), at, "T4", draw(sizes), draw(st.booleans() | st.just(True)))
        for at in range(draw(st.integers(0, 4)))
    ]
    ledger = Ledger(gpus, {gpu.uuid: draw(st.just(0) | st.integers(0, 4)) for gpu in gpus})
    for number, demand in enumerate(draw(st.lists(demands, max_size=4))):
        shares = place(ledger, demand)
        if shares is not None:
            ledger.charge(Grant(f"before-{number}", shares))
    return ledger


def could_take(ledger: Ledger, demand: Demand, without: set[str]) -> bool:
    return place(ledger, demand, closed=without) is not None


@given(ledgers(), lines, st.integers(0, 200))
def test_serving_keeps_to_the_rules(ledger: Ledger, line: list[Waiting], at: int) -> None:
    served = now(ledger, line, at)
    granted = {grant.id: {share.uuid for share in grant.shares} for grant in served.admitted}
    check = ledger.copy()
    for grant in served.admitted:
        check.charge(grant)
    held_ahead = set[str]()
    for waiting in order(line):
        held = set(served.held.get(waiting.id, ()))
        if waiting.id in granted:
            assert not held
            assert not granted[waiting.id] & held_ahead, "somebody passed onto a card held for one ahead"
            continue
        assert not could_take(check, waiting.demand, held_ahead), "left waiting though there is room"
        usable = {
            room.gpu.uuid
            for room in check.room()
            if room.gpu.healthy
            and waiting.demand.accepts(room.gpu)
            and waiting.demand.per_card(room.gpu.memory) + room.outside <= room.gpu.memory
        } - held_ahead
        expired = at - waiting.since >= PATIENCE
        assert len(held) == (waiting.demand.count if expired and len(usable) >= waiting.demand.count else 0)
        assert held <= usable
        held_ahead |= held
    assert set(served.held) <= {waiting.id for waiting in line}


@given(ledgers(), lines, st.integers(0, 200), st.integers(0, 6))
def test_those_behind_make_no_difference_to_those_ahead(
    ledger: Ledger, line: list[Waiting], at: int, first: int
) -> None:
    line = [replace(each, held=()) for each in order(line)]
    alone, together = now(ledger, line[:first], at), now(ledger, line, at)
    ahead = {each.id for each in line[:first]}
    assert alone.admitted == tuple(grant for grant in together.admitted if grant.id in ahead)
    assert alone.held == {id: cards for id, cards in together.held.items() if id in ahead}


@given(ledgers(), lines, st.integers(0, 200), st.data())
def test_holds_are_stable_until_someone_ahead_needs_the_card(
    ledger: Ledger, line: list[Waiting], at: int, data: st.DataObject
) -> None:
    first = now(ledger, line, at)
    again = now(first.ledger, remembered(line, first), at)
    assert again.admitted == ()
    assert again.held == first.held
    after = first.ledger.copy()
    for id in data.draw(st.lists(st.sampled_from([*sorted(after.grants), "nobody"]), unique=True)):
        after.release(id)
    later = now(after, remembered(line, first), at)
    ahead_as_before = True
    for waiting in order(line):
        if ahead_as_before and waiting.id in first.held and waiting.id not in admitted(later):
            assert later.held[waiting.id] == first.held[waiting.id]
        ahead_as_before &= first.held.get(waiting.id) == later.held.get(waiting.id)


# Nobody starves: jobs come, run for at most LONGEST and end.

LONGEST = 50


@dataclass(frozen=True)
class Job:
    id: str
    arrival: int
    demand: Demand
    run: int


def simulate(gpus: list[GPU], jobs: list[Job], patience: float = PATIENCE) -> dict[str, int]:
    """When each job started. The line is served whenever a job comes or ends, as the machine does it."""
    ledger, line, started = Ledger(gpus), list[Waiting](), dict[str, int]()
    events = [(job.arrival, 1, job.id) for job in jobs]
    by_id = {job.id: job for job in jobs}
    heapq.heapify(events)
    while events:
        at, kind, id = heapq.heappop(events)
        if kind == 1:
            line.append(wait(id, by_id[id].demand, since=at))
        else:
            assert ledger.release(id)
        served = serve(ledger, line, at, patience, DEFAULT_TYPICAL)
        ledger, line = served.ledger, remembered(line, served)
        for grant in served.admitted:
            started[grant.id] = at
            heapq.heappush(events, (at + by_id[grant.id].run, 0, grant.id))
        assert all(ledger.granted(gpu.uuid) <= gpu.memory for gpu in gpus)
    assert not ledger.grants
    return started


runs = st.integers(1, LONGEST)
streams = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5), runs), min_size=1, max_size=60)


def stream(rows: list[tuple[int, int, int]]) -> list[Job]:
    """Small jobs one after the other, with these gaps between them."""
    jobs, at = list[Job](), 0
    for number, (gap, size, run) in enumerate(rows):
        at += gap
        jobs.append(Job(f"small-{number:03}", at, asks(size), run))
    return jobs


@settings(max_examples=150)
@given(
    st.lists(st.integers(10, 16), min_size=1, max_size=3),
    streams,
    st.integers(0, 100),
    st.data(),
)
def test_a_big_demand_starts_within_patience_and_the_longest_running_job(
    card_sizes: list[int], rows: list[tuple[int, int, int]], arrival: int, data: st.DataObject
) -> None:
    gpus, small = machine(*card_sizes), stream(rows)
    demand = data.draw(
        st.one_of(
            st.builds(asks, st.integers(6, max(card_sizes))),
            st.builds(lambda cards: Demand(whole=cards), st.integers(1, len(gpus))),
            st.builds(lambda size: asks(size, gpus=len(gpus)), st.integers(6, min(card_sizes))),
        )
    )
    big = Job("big", arrival, demand, LONGEST)
    started = simulate(gpus, [*small, big])
    assert set(started) == {job.id for job in [*small, big]}, "all start in the end"
    older = [started[job.id] for job in small if job.arrival <= arrival]
    assert started["big"] <= max([arrival + PATIENCE, *older]) + LONGEST


@settings(max_examples=100)
@given(streams, st.lists(st.tuples(st.integers(1, 3), runs), min_size=2, max_size=4))
def test_several_big_ones_start_one_after_the_other_at_the_latest(
    rows: list[tuple[int, int, int]], wholes: list[tuple[int, int]]
) -> None:
    small = [replace(job, arrival=job.arrival + 1) for job in stream(rows)]
    bigs = [Job(f"big-{at}", 0, Demand(whole=cards), run) for at, (cards, run) in enumerate(wholes)]
    running = [Job(f"a-{at}", 0, asks(6), LONGEST) for at in range(3)]
    started = simulate(machine(10, 10, 10), [*running, *bigs, *small])
    for at, big in enumerate(bigs, start=1):
        assert started[big.id] <= PATIENCE + at * LONGEST


def test_without_holding_a_steady_stream_would_starve_the_big_one() -> None:
    small = [Job(f"small-{number:03}", number * 4, asks(3), 15) for number in range(100)]
    big = Job("big", 1, asks(10), 5)
    started = simulate(machine(10), [*small, big])
    assert started["big"] <= 1 + PATIENCE + 15
    assert sum(started[job.id] < started["big"] for job in small) > 10, "it was passed while it was patient"
    assert simulate(machine(10), [*small, big], patience=inf)["big"] > small[-1].arrival


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
        served = serve(Ledger(machine(10)), line, 1000, PATIENCE, DEFAULT_TYPICAL, Fairness(turns))
        (id,) = admitted(served)
        assert served.turns == (id,)
        started.append(id)
        turns[next(each.owner for each in line if each.id == id)] = number
        line = remembered(line, served)
    assert started[:8] == ["a0", "b0", "c0", "a1", "b1", "a2", "b2", "a3"]


def test_what_overtakes_its_owner_s_first_costs_no_turn() -> None:
    ledger = filled(machine(10, 4), 5, 0)
    line = [Waiting("big", asks(10), 0, 0, owner="ann"), Waiting("small", asks(2), 0, 1, owner="ann")]
    served = serve(ledger, line, 2, PATIENCE, DEFAULT_TYPICAL, Fairness({"ann": 1}))
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
        served = serve(
            Ledger(gpus, grants=running), line, at * 10, PATIENCE, DEFAULT_TYPICAL, Fairness(turns)
        )
        owners = {each.id: each.owner for each in line}
        turns |= {owners[id]: at for id in served.turns}
        running += served.admitted
        line = remembered(line, served)
        if "big" in admitted(served):
            break
    assert "big" in {grant.id for grant in running}
    assert at <= PATIENCE // 10 + 3

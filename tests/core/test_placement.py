"""Which cards are taken: each policy by example, then what holds for all of them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.demand import PLACEMENTS, Demand, Memory
from cotenant.core.errors import NoRoom
from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant, Share
from cotenant.core.learning import Supply, learn
from cotenant.core.ledger import Ledger
from cotenant.core.loss import Loss, Outlook
from cotenant.core.placement import POLICIES, place
from cotenant.core.seen_pods import SeenPods

GI = 2**30


def cards(*free_of: tuple[int, int], typical_model: str = "T4") -> Ledger:
    """Cards with so much free of so much in all, in GiB; the rest is granted."""
    ledger = Ledger(GPU(str(at), at, typical_model, size * GI) for at, (_, size) in enumerate(free_of))
    for at, (free, size) in enumerate(free_of):
        if free < size:
            ledger.charge(Grant(f"before-{at}", (Share(str(at), (size - free) * GI),)))
    return ledger


def gib(size: int, gpus: int = 1, placement: str = "frag", compute: int | None = None) -> Demand:
    return Demand(Memory(bytes=size * GI), gpus=gpus, placement=placement, compute=compute)


def learned(ledger: Ledger, *seen: Demand) -> Loss:
    """The measure where these demands were seen a thousand times each."""
    return learn(SeenPods.of([demand for demand in seen for _ in range(1000)]), Supply.of(ledger.gpus))


def taken(ledger: Ledger, demand: Demand, *seen: Demand) -> list[str] | None:
    shares = place(ledger, demand, learned(ledger, *seen))
    return None if shares is None else [share.uuid for share in shares]


def cost(ledger: Ledger, demand: Demand, uuid: str) -> int:
    """What a placement on this card loses, by the measure of a new machine."""
    rooms = list(ledger.room())
    taken = Share(uuid, demand.per_card(ledger.room_on(uuid).gpu.memory), demand.compute)
    after = [room.after(taken) if room.gpu.uuid == uuid else room for room in rooms]
    return Outlook(learned(ledger)).cost(rooms, after)


def test_the_table_has_the_policies_that_a_demand_may_name() -> None:
    assert tuple(POLICIES) == PLACEMENTS


def test_binpack_takes_the_card_where_least_is_left() -> None:
    ledger = cards((16, 16), (5, 16), (9, 16))
    assert taken(ledger, gib(4, placement="binpack")) == ["1"]
    assert taken(ledger, gib(6, placement="binpack")) == ["2"]
    assert taken(ledger, gib(4, gpus=2, placement="binpack")) == ["1", "2"]


def test_spread_takes_the_card_with_most_room() -> None:
    ledger = cards((10, 16), (5, 16), (12, 16))
    assert taken(ledger, gib(4, placement="spread")) == ["2"]
    assert taken(ledger, gib(4, gpus=2, placement="spread")) == ["0", "2"]


def test_frag_leaves_room_that_the_typical_demand_can_use() -> None:
    """Best fit would leave 7Gi on the first card, which is lost to everybody who asks for 8Gi."""
    ledger = cards((9, 16), (10, 16))
    assert taken(ledger, gib(2), gib(8)) == ["1"]
    assert taken(ledger, gib(2, placement="binpack"), gib(8)) == ["0"]


def test_frag_keeps_whole_cards_whole_for_those_who_want_them() -> None:
    ledger = cards((16, 16), (16, 16), (6, 16))
    assert taken(ledger, gib(4), Demand(whole=2)) == ["2"]
    assert taken(ledger, gib(4)) == ["2"]


def test_frag_keeps_the_only_card_that_does_for_a_model() -> None:
    gpus = [GPU("rare", 0, "H100", 16 * GI), GPU("plain", 1, "T4", 40 * GI)]
    wishes = Demand(Memory(bytes=16 * GI), models=("H100",))
    assert taken(Ledger(gpus), gib(2), wishes) == ["plain"]
    assert taken(Ledger(gpus), gib(2, placement="binpack"), wishes) == ["rare"]


def test_ties_go_to_the_best_fit_then_to_the_smaller_index() -> None:
    for placement in PLACEMENTS:
        assert taken(cards((16, 16), (16, 16)), gib(4, placement=placement)) == ["0"]
    assert taken(cards((16, 16), (12, 16)), gib(4), gib(1)) == ["1"]
    shuffled = [GPU("b", 1, "T4", 16 * GI), GPU("a", 0, "T4", 16 * GI)]
    assert taken(Ledger(shuffled), gib(4)) == ["a"]


@pytest.mark.parametrize("placement", ["frag", "binpack"])
def test_a_whole_card_is_the_smallest_that_does(placement: str) -> None:
    ledger = cards((80, 80), (16, 16), (15, 16))
    assert taken(ledger, Demand(whole=1, placement=placement), gib(1)) == ["1"]
    assert taken(ledger, Demand(whole=2, placement=placement)) == ["0", "1"]
    assert taken(ledger, Demand(whole=3, placement=placement)) is None


def test_a_whole_card_is_granted_with_all_its_memory() -> None:
    assert place(cards((16, 16)), Demand()) == (Share("0", 16 * GI, None, whole=True),)
    assert place(Ledger([GPU("0", 0, "T4", 16 * GI)], {"0": 1}), Demand()) is None


def test_a_percentage_is_of_the_card_it_lands_on() -> None:
    ledger = cards((10, 80), (8, 16))
    half = Demand(Memory(percent=Fraction(50)))
    assert place(ledger, half) == (Share("1", 8 * GI),)
    assert place(cards((80, 80), (16, 16)), replace(half, gpus=2)) == (
        Share("0", 40 * GI),
        Share("1", 8 * GI),
    )


def test_compute_must_be_free_on_the_same_card_as_the_memory() -> None:
    ledger = cards((16, 16), (16, 16))
    ledger.charge(Grant("x", (Share("0", GI, 80),)))
    assert taken(ledger, gib(2, compute=20)) == ["0"]
    assert taken(ledger, gib(2, compute=30)) == ["1"]
    assert taken(ledger, gib(4, gpus=2, compute=30)) is None


def test_closed_sick_and_unwished_cards_are_not_taken() -> None:
    ledger = Ledger(
        [
            GPU("a", 0, "T4", 16 * GI),
            GPU("b", 1, "A100", 80 * GI),
            GPU("c", 2, "A100", 80 * GI, healthy=False),
        ]
    )
    assert place(ledger, gib(4), closed={"a", "b"}) is None
    assert place(ledger, gib(4), closed=["a"]) == (Share("b", 4 * GI),)
    assert place(ledger, replace(gib(4), models=("A100",))) == (Share("b", 4 * GI),)
    assert place(ledger, replace(gib(4), uuids=("c",))) is None


def test_a_demand_that_was_seen_and_fits_nowhere_has_no_say() -> None:
    ledger = cards((9, 16), (5, 16))
    for never in (gib(100), Demand(whole=9)):
        assert taken(ledger, gib(4), never) == ["1"]


def test_a_machine_without_cards_or_with_empty_ones_has_no_room() -> None:
    assert place(Ledger([]), Demand()) is None
    assert place(Ledger([GPU("a", 0, "?", 0)]), gib(1)) is None


sizes = st.integers(1, 24)
gpu_list = st.lists(
    st.tuples(sizes, st.sampled_from(["T4", "A100"]), st.booleans() | st.just(True)), min_size=1, max_size=5
).map(lambda rows: [GPU(str(at), at, model, size, ok) for at, (size, model, ok) in enumerate(rows)])
memories = st.integers(4, 60).map(lambda size: Memory(bytes=size)) | st.sampled_from([10, 25, 50, 100]).map(
    lambda percent: Memory(percent=Fraction(percent))
)
demands = st.builds(
    Demand,
    memories,
    gpus=st.integers(1, 3),
    compute=st.none() | st.integers(1, 100),
    models=st.sampled_from([(), ("T4",), ("A100", "T4")]),
    placement=st.sampled_from(PLACEMENTS),
) | st.builds(Demand, whole=st.integers(1, 3), placement=st.sampled_from(PLACEMENTS))
seen_demands = st.lists(st.tuples(st.integers(1, 40), demands), max_size=5).map(
    lambda seen: SeenPods.of([demand for count, demand in seen for _ in range(count)])
)


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    gpus = draw(gpu_list)
    ledger = Ledger(gpus, {gpu.uuid: draw(st.just(0) | st.integers(0, gpu.memory)) for gpu in gpus})
    for number, demand in enumerate(draw(st.lists(demands, max_size=5))):
        shares = place(ledger, demand)
        if shares:
            ledger.charge(Grant(f"g{number}", shares))
    return ledger


def fitting(ledger: Ledger, demand: Demand) -> list[str]:
    """Cards that the ledger itself would charge with one part of the demand: found by trying."""
    fit = []
    for gpu in ledger.gpus:
        whole = demand.memory is None
        if not demand.accepts(gpu):
            continue
        try:
            part = Share(gpu.uuid, demand.per_card(gpu.memory), demand.compute, whole)
            ledger.copy().charge(Grant("probe", (part,)))
        except NoRoom:
            continue
        fit.append(gpu.uuid)
    return fit


@given(ledgers(), demands, seen_demands)
def test_what_is_placed_can_be_charged_and_what_can_be_charged_is_placed(
    ledger: Ledger, demand: Demand, seen: SeenPods
) -> None:
    shares, fit = place(ledger, demand, learn(seen, Supply.of(ledger.gpus))), fitting(ledger, demand)
    if shares is None:
        assert len(fit) < demand.count
        return
    assert len(shares) == demand.count
    assert {share.uuid for share in shares} <= set(fit)
    ledger.charge(Grant("new", shares))


@given(ledgers(), demands, seen_demands)
def test_frag_takes_the_card_in_use_or_the_unused_one_after_which_least_is_lost(
    ledger: Ledger, demand: Demand, seen: SeenPods
) -> None:
    if demand.memory is None or demand.count > 1:
        demand = Demand(Memory(bytes=5))
    demand = replace(demand, placement="frag", models=())
    loss = learn(seen, Supply.of(ledger.gpus))
    loss = replace(loss, usual={})
    now = {room.gpu.uuid: room for room in ledger.room()}

    def after(uuid: str) -> Ledger:
        share = Share(uuid, demand.per_card(now[uuid].gpu.memory), demand.compute)
        changed = ledger.copy()
        changed.charge(Grant("new", (share,)))
        return changed

    def on_card(uuid: str) -> tuple[int, int]:
        lost = [loss.card(now[uuid].gpu.memory).of(room) for room in (after(uuid).room_on(uuid), now[uuid])]
        return lost[0] - lost[1], now[uuid].gpu.index

    def on_node(uuid: str) -> int:
        changed = after(uuid)
        return Outlook(loss).cost(list(now.values()), [changed.room_on(each) for each in now])

    fit = fitting(ledger, demand)
    groups = [[each for each in fit if now[each].unused is unused] for unused in (False, True)]
    best = [min(group, key=on_card) for group in groups if group]
    shares = place(ledger, demand, loss)
    assert (shares and [share.uuid for share in shares]) == ([min(best, key=on_node)] if best else None)


@given(ledgers(), demands, seen_demands, st.randoms(use_true_random=False))
def test_the_order_in_which_cards_are_listed_makes_no_difference(
    ledger: Ledger, demand: Demand, seen: SeenPods, chance: Random
) -> None:
    gpus = list(ledger.gpus)
    chance.shuffle(gpus)
    outside = {gpu.uuid: ledger.outside(gpu.uuid) for gpu in gpus}
    loss = learn(seen, Supply.of(gpus))
    assert place(Ledger(gpus, outside, ledger.grants.values()), demand, loss) == place(ledger, demand, loss)


@given(gpu_list, demands, st.integers(2, 2**30))
def test_the_unit_of_memory_makes_no_difference(gpus: list[GPU], demand: Demand, factor: int) -> None:
    if demand.memory is not None and demand.memory.bytes is not None:
        even = demand.memory.bytes * demand.gpus
        demand = replace(demand, memory=Memory(bytes=even))
        scaled = replace(demand, memory=Memory(bytes=even * factor))
    else:
        scaled = demand
    larger = Ledger(replace(gpu, memory=gpu.memory * 100 * factor) for gpu in gpus)
    if scaled is not demand:
        larger = Ledger(replace(gpu, memory=gpu.memory * factor) for gpu in gpus)
    same = (
        Ledger(gpus)
        if scaled is not demand
        else Ledger(replace(gpu, memory=gpu.memory * 100) for gpu in gpus)
    )
    by_larger, by_same = taken(larger, scaled), taken(same, demand)
    if by_larger == by_same:
        return
    assert by_larger is not None
    assert by_same is not None
    assert (demand.placement, demand.count) == ("frag", 1)
    assert (
        abs(cost(same, demand, *by_larger) - cost(same, demand, *by_same)) <= 2
    )  # each is rounded to a byte

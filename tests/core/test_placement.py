"""Which cards are taken: each policy by example, then what holds for all of them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.demand import PLACEMENTS, Demand, Memory
from cotenant.core.errors import NoRoom
from cotenant.core.fragmentation import Typical, coarse, fragmentation, stranded
from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant, Share
from cotenant.core.ledger import Ledger
from cotenant.core.placement import DEFAULT_TYPICAL, POLICIES, place, typical_of

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


def taken(ledger: Ledger, demand: Demand, typical: Typical = DEFAULT_TYPICAL) -> list[str] | None:
    shares = place(ledger, demand, typical)
    return None if shares is None else [share.uuid for share in shares]


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
    typical = ((1, gib(8)),)
    assert taken(ledger, gib(2), typical) == ["1"]
    assert taken(ledger, gib(2, placement="binpack"), typical) == ["0"]


def test_frag_keeps_whole_cards_whole_for_those_who_want_them() -> None:
    ledger = cards((16, 16), (16, 16), (6, 16))
    assert taken(ledger, gib(4), ((1, Demand(whole=2)),)) == ["2"]
    assert taken(ledger, gib(4)) == ["2"]


def test_frag_keeps_the_only_card_that_does_for_a_model() -> None:
    gpus = [GPU("rare", 0, "H100", 16 * GI), GPU("plain", 1, "T4", 40 * GI)]
    wishes = ((1, Demand(Memory(bytes=16 * GI), models=("H100",))),)
    assert taken(Ledger(gpus), gib(2), wishes) == ["plain"]
    assert taken(Ledger(gpus), gib(2, placement="binpack"), wishes) == ["rare"]


def test_a_small_gain_in_the_measure_does_not_outweigh_a_tight_fit() -> None:
    """A kind of demand that is one in fifty must not decide; a tenth of a card is the least that counts."""
    ledger = cards((9, 16), (10, 16))
    assert taken(ledger, gib(2), ((49, gib(1)), (1, gib(8)))) == ["0"]


def test_ties_go_to_the_best_fit_then_to_the_smaller_index() -> None:
    for placement in PLACEMENTS:
        assert taken(cards((16, 16), (16, 16)), gib(4, placement=placement)) == ["0"]
    assert taken(cards((16, 16), (12, 16)), gib(4), ((1, gib(1)),)) == ["1"]
    shuffled = [GPU("b", 1, "T4", 16 * GI), GPU("a", 0, "T4", 16 * GI)]
    assert taken(Ledger(shuffled), gib(4)) == ["a"]


@pytest.mark.parametrize("placement", ["frag", "binpack"])
def test_a_whole_card_is_the_smallest_that_does(placement: str) -> None:
    ledger = cards((80, 80), (16, 16), (15, 16))
    assert taken(ledger, Demand(whole=1, placement=placement), ((1, gib(1)),)) == ["1"]
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


def test_the_measure_is_the_papers() -> None:
    """Four cards with 2, 16, 16 and 8 of 16 free: worked out by hand."""
    rooms = cards((2, 16), (16, 16), (16, 16), (8, 16)).room()
    assert stranded(rooms, gib(1)) == 0
    assert stranded(rooms, gib(8)) == 2 * GI
    assert stranded(rooms, gib(9)) == 10 * GI
    assert stranded(rooms, Demand(whole=2)) == 10 * GI
    assert stranded(rooms, Demand(whole=3)) == 42 * GI
    assert stranded(rooms, gib(17)) == 42 * GI
    assert stranded(rooms, Demand(models=("H100",))) == 42 * GI
    assert stranded(rooms, gib(24, gpus=3)) == 2 * GI
    assert fragmentation(rooms, ((3, gib(8)), (1, Demand(whole=3)))) == 48 * GI
    assert coarse(48 * GI, ((4, gib(8)),), 16 * GI) == 7
    assert coarse(-1, ((4, gib(8)),), 16 * GI) == -1


def test_a_demand_that_fits_nowhere_in_future_or_weighs_nothing_has_no_say() -> None:
    ledger = cards((9, 16), (5, 16))
    for typical in ((), ((0, gib(8)),), ((1, gib(100)),), ((1, Demand(whole=9)),)):
        assert taken(ledger, gib(4), typical) == ["1"]


def test_a_machine_without_cards_or_with_empty_ones_has_no_room() -> None:
    assert place(Ledger([]), Demand()) is None
    assert place(Ledger([GPU("a", 0, "?", 0)]), gib(1)) is None


def test_typical_demands_are_the_most_frequent_that_cover_95_percent() -> None:
    past = (
        [gib(4)] * 90
        + [gib(8, placement="spread"), replace(gib(8), uuids=("x",))] * 2
        + [Demand(whole=1)] * 3
    )
    past += [gib(size) for size in (1, 2, 3)]
    assert typical_of(past) == ((90, gib(4)), (4, gib(8)), (3, Demand(whole=1)))
    assert typical_of(past[:90]) == ((90, gib(4)),)
    assert typical_of(reversed(past)) == typical_of(past)
    assert typical_of([]) == DEFAULT_TYPICAL
    assert len(typical_of(past, Fraction(1))) == 6


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
typicals = st.lists(st.tuples(st.integers(0, 9), demands), max_size=5)


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    gpus = draw(gpu_list)
    ledger = Ledger(gpus, {gpu.uuid: draw(st.just(0) | st.integers(0, gpu.memory)) for gpu in gpus})
    for number, demand in enumerate(draw(st.lists(demands, max_size=5))):
        shares = place(ledger, demand, ())
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


@given(ledgers(), demands, typicals)
def test_what_is_placed_can_be_charged_and_what_can_be_charged_is_placed(
    ledger: Ledger, demand: Demand, typical: Typical
) -> None:
    shares, fit = place(ledger, demand, typical), fitting(ledger, demand)
    if shares is None:
        assert len(fit) < demand.count
        return
    assert len(shares) == demand.count
    assert {share.uuid for share in shares} <= set(fit)
    ledger.charge(Grant("new", shares))


@given(ledgers(), demands, typicals)
def test_frag_takes_the_card_of_the_least_increase_by_the_plain_measure(
    ledger: Ledger, demand: Demand, typical: Typical
) -> None:
    if demand.count > 1:
        demand = Demand(placement="frag")
    demand = replace(demand, placement="frag")

    def cost(uuid: str) -> tuple[int, int, int, int]:
        gpu = ledger.room_on(uuid).gpu
        after = ledger.copy()
        after.charge(
            Grant("new", (Share(uuid, demand.per_card(gpu.memory), demand.compute, demand.memory is None),))
        )
        increase = fragmentation(after.room(), typical) - fragmentation(ledger.room(), typical)
        largest = max(each.memory for each in ledger.gpus)
        return coarse(increase, typical, largest), after.free(uuid), gpu.memory, gpu.index

    best = min(fitting(ledger, demand), key=cost, default=None)
    assert taken(ledger, demand, typical) == (None if best is None else [best])


@given(ledgers(), demands, typicals, st.randoms(use_true_random=False))
def test_the_order_in_which_cards_are_listed_makes_no_difference(
    ledger: Ledger, demand: Demand, typical: Typical, chance: object
) -> None:
    gpus = list(ledger.gpus)
    chance.shuffle(gpus)  # type: ignore[attr-defined]
    outside = {gpu.uuid: ledger.outside(gpu.uuid) for gpu in gpus}
    assert place(Ledger(gpus, outside, ledger.grants.values()), demand, typical) == place(
        ledger, demand, typical
    )


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
    assert taken(larger, scaled) == taken(same, demand)

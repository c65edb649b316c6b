"""What is learned from pods seen: worked out by hand, and that only the pods and the supply decide."""

from __future__ import annotations

import json
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.cutting import STEPS, prices, room_values
from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU
from cotenant.core.learning import FIRST, RARELY, Supply, learn, next_lesson
from cotenant.core.ledger import room_of
from cotenant.core.loss import LOST, Loss, Spare
from cotenant.core.seen_pods import MOST_KINDS, MOST_PODS, PodKind, SeenPods

GI = 2**30


def gib(size: float, gpus: int = 1, **more: object) -> Demand:
    return Demand(Memory(bytes=int(size * GI)), gpus=gpus, **more)  # type: ignore[arg-type]


def supply(*nodes: tuple[list[int], Spare]) -> Supply:
    there = Supply()
    for sizes, has in nodes:
        there.add([GPU(str(at), at, "T4", size * GI) for at, size in enumerate(sizes)], has)
    return there


def many(*pods: tuple[Demand | None, int, int]) -> SeenPods:
    """A thousand pods of each: demand, CPU and memory."""
    seen = SeenPods()
    for demand, cpu, memory in pods:
        for _ in range(1000):
            seen.add(() if demand is None else (demand,), cpu, memory)
    return seen


def test_room_is_worth_what_the_best_filling_of_it_is() -> None:
    """Two of 40 steps fill a card best; what is beside them is worth nothing."""
    worth = room_values({40: 1.0})
    assert [worth[step] for step in (0, 39, 40, 79, 80, 100)] == pytest.approx([0, 0, 0.5, 0.5, 1, 1])
    worth = room_values({70: 10, 30: 10})
    assert worth[70] + worth[30] == pytest.approx(1)
    assert worth[100] == pytest.approx(1)
    assert room_values({}) == (0.0,) * (STEPS + 1)


def cuts(sizes: list[int], room: int) -> list[tuple[int, ...]]:
    """All ways to cut a card."""
    if not sizes:
        return [()]
    return [
        (number, *rest)
        for number in range(room // sizes[0] + 1)
        for rest in cuts(sizes[1:], room - number * sizes[0])
    ]


@given(st.dictionaries(st.integers(8, STEPS), st.integers(1, 50), min_size=1, max_size=4))
def test_no_cut_of_a_card_is_worth_more_than_a_card_and_some_is_worth_one(parts: dict[int, int]) -> None:
    sizes = sorted(parts)
    price = prices(sizes, [parts[size] for size in sizes])
    values = [sum(n * p for n, p in zip(cut, price, strict=True)) for cut in cuts(sizes, STEPS)]
    assert max(values) == pytest.approx(1, abs=1e-5)


@given(
    st.dictionaries(st.integers(20, STEPS), st.integers(1, 9), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
)
def test_prices_add_up_to_no_more_cards_than_any_packing_needs(parts: dict[int, int], chance: Random) -> None:
    """Weak duality, against first fit in a random order."""
    sizes = sorted(parts)
    price = prices(sizes, [parts[size] for size in sizes])
    items = [size for size in sizes for _ in range(parts[size])]
    chance.shuffle(items)
    cards: list[int] = []
    for item in items:
        at = next((at for at, used in enumerate(cards) if used + item <= STEPS), len(cards))
        if at == len(cards):
            cards.append(0)
        cards[at] += item
    bound = sum(each * parts[size] for each, size in zip(price, sizes, strict=True))
    assert bound <= len(cards) + 1e-6


def test_a_card_in_use_loses_what_those_who_need_more_cannot_use() -> None:
    """Cards of two sizes: nothing but shares. Of 1,000 demands of 8Gi and 1,000 of 4Gi two thirds of the GPU
    memory is asked for in 8Gi; the prior is so small that it is lost in rounding to a hundredth.
    """
    loss = learn(many((gib(8), 0, 0), (gib(4), 0, 0)), supply(([16, 24], Spare())))
    card = loss.card(16 * GI)
    assert card.used(6 * GI) / GI == pytest.approx(LOST * 6 * 2 / 3, abs=0.05)
    assert card.used(3 * GI) / GI == pytest.approx(LOST * 3, abs=0.05)
    assert card.used(8 * GI) / GI == pytest.approx(0, abs=0.05)
    assert card.used(0) == 0
    assert card.unused == pytest.approx(0, abs=0.05 * GI)


def test_where_cards_are_of_one_size_what_no_filling_uses_is_lost_too() -> None:
    loss = learn(many((gib(8), 0, 0)), supply(([16, 16], Spare())))
    card = loss.card(16 * GI)
    assert card.used(3 * GI) / GI == pytest.approx(LOST * 3 + 3, abs=0.2)
    assert card.used(8 * GI) / GI == pytest.approx(0, abs=0.1)
    assert card.used(0) == 0


def test_several_cards_are_kept_only_where_there_is_cpu_and_memory_for_them() -> None:
    loss = learn(many((Demand(whole=2), 8000, GI)), supply(([16] * 4, Spare(64000, 64 * GI, 110))))
    (several,) = loss.several
    assert several.kept(2, 32 * GI, Spare(8000, GI)) / GI == pytest.approx(LOST * 32, rel=0.02)
    assert several.kept(1, 32 * GI, Spare(8000, GI)) == 0
    assert several.kept(2, 32 * GI, Spare(7999, GI)) == 0
    assert several.kept(2, 32 * GI, Spare(8000, GI - 1)) == 0


def test_the_fewer_nodes_can_serve_several_cards_the_more_is_kept_there() -> None:
    """Demands for four cards are two fifths of what is asked for."""
    pods = many((Demand(whole=4), 60_000, GI), *[(Demand(whole=1), 1000, GI)] * 6)
    large, small = ([16] * 4, Spare(64_000, 64 * GI)), ([16] * 4, Spare(32_000, 64 * GI))
    kept = [
        learn(pods, supply(*[large] * number, *[small] * (10 - number))).several[0].kept(4, 64 * GI, large[1])
        for number in (10, 5, 1)
    ]
    assert [each / (LOST * 64 * GI) for each in kept] == pytest.approx([0.4, 0.8, 1], rel=0.02), "at most all"


def test_other_models_memory_and_cards_do_not_serve_a_demand_either() -> None:
    pods = many((Demand(whole=2, models=("T4",)), 1000, 8 * GI), *[(Demand(whole=1), 1000, GI)] * 8)
    there = Supply()
    for model, count, memory in (("T4", 2, 8), ("T4", 2, 4), ("A100", 2, 8), ("T4", 1, 8), ("T4", 1, 8)):
        there.add([GPU(str(at), at, model, 16 * GI) for at in range(count)], Spare(9000, memory * GI))
    kept = learn(pods, there).several[0].kept(2, 32 * GI, Spare(9000, 8 * GI))
    assert kept / (LOST * 32 * GI) == pytest.approx(0.2 * 8 / 2, rel=0.02)


def test_cards_that_are_sick_or_too_small_do_not_serve_a_demand() -> None:
    pods = many((Demand(Memory(bytes=80 * GI), gpus=2), 0, 0), *[(gib(16), 0, 0)] * 15)
    there = supply(([80, 80], Spare()), ([16] * 10, Spare()))
    share = 80 / (80 + 15 * 16)
    kept = learn(pods, there).several[0].kept(2, 80 * GI, Spare())
    assert kept / (LOST * 80 * GI) == pytest.approx(share * 320 / 160, rel=0.02)
    there.add([GPU(f"s{at}", at, "T4", 80 * GI, healthy=False) for at in range(2)], Spare())
    kept = learn(pods, there).several[0].kept(2, 80 * GI, Spare())
    assert kept / (LOST * 80 * GI) == pytest.approx(share * 480 / 160, rel=0.02)


def test_what_has_no_cpu_is_stranded() -> None:
    """A card usually comes with 16 CPUs, of which there are enough."""
    there = supply(([16] * 4, Spare(128_000, 64 * GI, 110)))
    loss = learn(many((Demand(whole=1), 16000, 0)), there)
    stranded = loss.beside.lost(16 * GI, Spare(7200, 64 * GI))
    assert stranded / GI == pytest.approx(8, abs=0.2)
    assert loss.beside.lost(16 * GI, Spare(16000, 64 * GI)) == 0


def test_pods_without_gpu_make_cpu_scarce() -> None:
    there = supply(([16] * 4, Spare(64_000, 64 * GI, 110)))
    alone = learn(many((Demand(whole=1), 8000, 0)), there)
    beside = learn(many((Demand(whole=1), 8000, 0), (None, 16000, 0)), there)
    assert alone.beside.weight == 0
    assert beside.beside.weight > 0
    assert beside.beside.cpu > alone.beside.cpu


def test_a_model_is_kept_while_more_of_it_is_asked_for_by_name_than_is_free() -> None:
    there = Supply.of(
        [GPU("a", 0, "NVIDIA H100", 80 * GI), *(GPU(str(n), n, "T4", 16 * GI) for n in range(5))]
    )
    loss = learn(SeenPods.of([gib(16)] * 500 + [gib(16, models=("H100",))] * 500), there)
    assert set(loss.usual) == {"NVIDIA H100"}
    assert loss.usual["NVIDIA H100"] == pytest.approx(80 * GI, rel=0.03)
    full = {"NVIDIA H100": 80 * GI}
    assert loss.reserved(full, {}) == (
        frozenset(full) if loss.usual["NVIDIA H100"] == 80 * GI else frozenset()
    )
    assert loss.reserved({"NVIDIA H100": 40 * GI}, {}) == frozenset(full)
    assert loss.reserved({"NVIDIA H100": 40 * GI}, {}, ("H100",)) == frozenset()
    assert loss.reserved({"NVIDIA H100": 40 * GI}, {"NVIDIA H100": 60 * GI}) == frozenset()


def test_without_cards_or_figures_nothing_is_lost() -> None:
    assert learn(SeenPods(), Supply()) == Loss()
    loss = learn(many((gib(8), 8000, GI)), Supply.of([GPU("a", 0, "T4", 16 * GI)]))
    assert loss.beside.lost(16 * GI, Spare(0, 0, 0)) == 0
    one = room_of(GPU("a", 0, "T4", 16 * GI), (), 0)
    assert loss.on_node([one], Spare()) == 0


demands = st.builds(
    Demand,
    st.integers(1, 80).map(lambda size: Memory(bytes=size * GI))
    | st.sampled_from([25, 50]).map(lambda percent: Memory(percent=Fraction(percent))),
    gpus=st.integers(1, 3),
    models=st.sampled_from([(), ("T4",), ("H100", "T4")]),
) | st.builds(Demand, whole=st.integers(1, 4))
pods = st.lists(st.tuples(st.none() | demands, st.integers(0, 64000), st.integers(0, 64 * GI)), max_size=12)
supplies = st.lists(
    st.tuples(
        st.lists(st.sampled_from([16, 24, 40, 80]), max_size=4),
        st.just(Spare()) | st.just(Spare(64000, GI, 9)),
    ),
    max_size=4,
)


@given(pods, supplies, st.randoms(use_true_random=False))
def test_the_order_of_pods_and_nodes_does_not_matter_nor_does_learning_twice(
    some: list[tuple[Demand | None, int, int]],
    nodes: list[tuple[list[int], Spare]],
    chance: Random,
) -> None:
    seen = SeenPods()
    for demand, cpu, memory in some:
        seen.add(() if demand is None else (demand,), cpu, memory)
    first = learn(seen, supply(*nodes))
    assert learn(seen, supply(*nodes)) == first
    chance.shuffle(some)
    again = SeenPods()
    for demand, cpu, memory in some:
        again.add(() if demand is None else (demand,), cpu, memory)
    assert learn(again, supply(*nodes)).card(16 * GI) == first.card(16 * GI)
    assert learn(again, supply(*reversed(nodes))) == first


@given(supplies, supplies)
def test_what_is_added_to_the_supply_can_be_taken_away(
    nodes: list[tuple[list[int], Spare]], more: list[tuple[list[int], Spare]]
) -> None:
    there = supply(*nodes, *more)
    for sizes, has in more:
        there.add([GPU(str(at), at, "T4", size * GI) for at, size in enumerate(sizes)], has, -1)
    assert there == supply(*nodes)


@given(pods)
def test_statistics_survive_being_written_and_read(some: list[tuple[Demand | None, int, int]]) -> None:
    seen = SeenPods()
    for demand, cpu, memory in some:
        seen.add(() if demand is None else (demand,), cpu, memory)
    assert SeenPods.from_json(json.loads(json.dumps(seen.to_json()))) == seen


@pytest.mark.parametrize("damaged", [{"count": -1}, {"count": "many"}, {"count": 1, "cpu": 1.5}])
def test_damaged_statistics_are_refused(damaged: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        SeenPods.from_json([damaged])


def test_statistics_are_bounded_and_what_was_seen_long_ago_counts_less() -> None:
    seen = SeenPods()
    for number in range(MOST_KINDS + 10):
        seen.add((), cpu=number)
    assert len(seen.counts) <= MOST_KINDS
    for _ in range(2 * MOST_PODS):
        seen.add((gib(1),))
    assert seen.total == sum(seen.counts.values()) <= MOST_PODS


def test_uuids_compute_and_policy_say_nothing_about_others() -> None:
    seen = SeenPods.of([gib(4), gib(4, uuids=("x",)), gib(4, compute=20), gib(4, placement="spread")])
    assert seen.counts == {PodKind(gib(4)): 4}


def test_lessons_become_rarer() -> None:
    assert next_lesson(0) == next_lesson(FIRST - 1) == FIRST
    assert next_lesson(100) == 125
    assert next_lesson(10**6) == 10**6 + RARELY

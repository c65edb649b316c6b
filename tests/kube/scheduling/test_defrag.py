"""The fewest evictions that open room on GPUs, compared with all sequences of evictions on small clusters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.core.loss import Requests, Spare
from cotenant.dialects.dialect import SlotDemand
from cotenant.dialects.pod_grant import PodGrant, SlotGrant
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.defrag import Search, defragment
from cotenant.kube.scheduling.hole import Wanted
from cotenant.kube.scheduling.moving import Movable, Trial
from cotenant.kube.scheduling.node_sums import NodeSums
from cotenant.kube.scheduling.placing import place_pod
from cotenant.kube.scheduling.ranking import best
from cotenant.kube.scheduling.waiting import WaitingPod

GI = 2**30
WHOLE = Wanted((Demand(whole=1),))


@dataclass
class Small:
    """A cluster that a test writes down: CPU of each node, sizes of its cards, pods."""

    nodes: dict[str, tuple[int, list[int]]]
    pods: dict[str, tuple[str, tuple[int, ...], int, int]] = field(default_factory=dict)
    """By name: node, cards, GiB in all, CPU."""
    stays: frozenset[str] = frozenset()
    waiting: tuple[WaitingPod, ...] = ()

    def ledger(self) -> ClusterLedger:
        ledger = ClusterLedger()
        for name, (cpu, sizes) in self.nodes.items():
            gpus = [GPU(f"{name}-{at}", at, "A100", size * GI) for at, size in enumerate(sizes)]
            ledger.set_node(name, gpus, {}, Spare(cpu, 2**50, 100))
        for name, (node, cards, size, cpu) in self.pods.items():
            shares = tuple(Share(f"{node}-{card}", size * GI // len(cards)) for card in cards)
            ledger.load(node, PodGrant(name, (SlotGrant("c", shares),)))
            ledger.request(name, node, Requests(cpu, 0))
        return ledger

    def sums(self) -> NodeSums:
        has = {name: {"cpu": cpu, "pods": 100} for name, (cpu, _) in self.nodes.items()}
        return NodeSums(has, [(node, takes(cpu)) for node, _, _, cpu in self.pods.values()])

    def movable(self) -> list[Movable]:
        return [
            Movable(name, slots(size, len(cards)), Requests(cpu, 0), takes(cpu))
            for name, (_, cards, size, cpu) in self.pods.items()
            if name not in self.stays
        ]

    def search(self, wanted: Wanted = WHOLE, most: int = 4) -> Search:
        return defragment(Trial(self.ledger(), self.sums(), self.waiting), wanted, self.movable(), most)


def takes(cpu: int) -> dict[str, int]:
    return {"cpu": cpu, "pods": 1}


def slots(size: int, cards: int = 1) -> tuple[SlotDemand, ...]:
    return (SlotDemand("c", 0, Demand(Memory(bytes=size * GI), gpus=cards), ()),)


def memory(size: int, cards: int = 1, cpu: int = 0) -> Wanted:
    beside = {"takes": takes(cpu), "requests": Requests(cpu, 0)} if cpu else {}
    return Wanted((Demand(Memory(bytes=size * GI), gpus=cards),), **beside)  # type: ignore[arg-type]


def told(search: Search) -> list[tuple[str, str]]:
    assert search.plan is not None
    return [(move.pod.uid, move.node) for move in search.plan.moves]


def test_one_pod_is_moved_to_the_card_that_another_uses_already():
    small = Small({"a": (100, [80]), "b": (100, [80])}, {"p": ("a", (0,), 20, 1), "q": ("b", (0,), 40, 1)})
    found = small.search()
    assert len(told(found)) == 1
    assert found.fewest


def test_room_that_is_there_needs_no_move():
    small = Small({"a": (100, [80, 80])}, {"p": ("a", (0,), 20, 1)})
    found = small.search()
    assert told(found) == []
    assert found.plan is not None
    assert found.plan.hole.cards == {"a-1"}


def test_a_pod_that_stays_keeps_its_card():
    small = Small({"a": (100, [80]), "b": (100, [80])}, {"p": ("a", (0,), 20, 1), "q": ("b", (0,), 40, 1)})
    small.stays = frozenset({"p"})
    assert told(small.search()) == [("q", "a")]
    small.stays = frozenset({"p", "q"})
    assert small.search() == Search(None, fewest=True)


def chain() -> Small:
    """p needs 30 and nobody has them, until q has gone to the card that has 20."""
    return Small(
        {"a": (100, [40]), "b": (100, [40]), "c": (100, [40])},
        {
            "p": ("a", (0,), 30, 1),
            "q": ("b", (0,), 15, 1),
            "stays-b": ("b", (0,), 1, 1),
            "stays-c": ("c", (0,), 20, 1),
        },
        frozenset({"stays-b", "stays-c"}),
    )


def test_a_place_that_another_move_opens_comes_after_it():
    small = chain()
    found = small.search()
    assert told(found) == [("q", "c"), ("p", "b")]
    assert found.fewest


def test_a_new_place_has_the_cpu_for_the_pod():
    small = Small({"a": (10, [80]), "b": (10, [80])}, {"p": ("a", (0,), 20, 6), "q": ("b", (0,), 40, 5)})
    assert small.search() == Search(None, fewest=True)


def test_the_node_has_the_cpu_for_the_pod_that_wants_the_room():
    """On a the card is free already, and only another pod's CPU is in the way."""
    small = Small(
        {"a": (10, [80, 80]), "b": (10, [80])},
        {"p": ("a", (1,), 20, 6), "q": ("b", (0,), 40, 1)},
    )
    assert told(small.search(memory(50, cpu=8))) == [("p", "b")]
    assert told(small.search(memory(50, cpu=3))) == []


def test_nobody_is_moved_onto_a_card_that_is_held_for_another():
    small = Small({"a": (100, [80]), "b": (100, [80])}, {"p": ("a", (0,), 20, 1), "q": ("b", (0,), 40, 1)})
    ledger = small.ledger()
    ledger.hold("other", "b", ["b-0"])
    trial = Trial(ledger, small.sums())
    assert defragment(trial, WHOLE, small.movable()).plan is None


def test_a_pod_in_line_that_would_take_a_place_between_two_moves_forbids_them():
    small = chain()
    small.waiting = (WaitingPod("w", (Demand(Memory(bytes=35 * GI)),), 0, 0.0),)
    assert small.search().plan is None


def test_several_cards_of_one_node_are_opened_at_once():
    small = Small(
        {"a": (100, [80, 80, 80]), "b": (100, [80, 80])},
        {
            "p": ("a", (0,), 10, 1),
            "q": ("a", (1,), 10, 1),
            "r": ("a", (2,), 70, 1),
            "s": ("b", (0,), 60, 1),
            "t": ("b", (1,), 60, 1),
        },
    )
    found = small.search(Wanted((Demand(whole=2),)))
    assert found.plan is not None
    assert found.plan.hole.cards == {"a-0", "a-1"}
    assert len(found.plan.moves) == 2


def test_the_ledger_is_as_before():
    small = Small(
        {"a": (100, [40, 40]), "b": (100, [40]), "c": (100, [40])},
        {"p": ("a", (0,), 30, 1), "q": ("b", (0,), 15, 1), "r": ("c", (0,), 20, 1), "s": ("a", (1,), 5, 1)},
    )
    ledger, fresh = small.ledger(), small.ledger()
    defragment(Trial(ledger, small.sums()), WHOLE, small.movable(), 3)
    assert ledger.pods == fresh.pods
    for field_ in ("free", "compute", "unused", "held", "cpu", "memory", "pods"):
        assert (getattr(ledger.matrix, field_) == getattr(fresh.matrix, field_)).all()


@st.composite
def fragmented(draw: st.DrawFn) -> Small:
    """Clusters where every card has a pod or two, but for one now and then."""
    small = Small({})
    for number in range(draw(st.integers(2, 4))):
        node, sizes = f"n{number}", draw(st.lists(st.sampled_from([24, 40]), min_size=1, max_size=2))
        small.nodes[node] = draw(st.integers(5, 12)), sizes
        left, free = small.nodes[node][0], list(sizes)
        for at in [*range(len(sizes)), *draw(st.lists(st.integers(0, len(sizes) - 1), max_size=1))]:
            both = len(sizes) == 2 and draw(st.integers(0, 7)) == 0
            cards = (0, 1) if both else (at,)
            least = min(free[card] for card in cards)
            if least < 2 or left < 1:
                continue
            size, cpu = draw(st.integers(1, max(1, least * 2 // 3))), draw(st.integers(1, min(3, left)))
            small.pods[f"p{len(small.pods)}"] = node, cards, size * len(cards), cpu
            left -= cpu
            for card in cards:
                free[card] -= size
    small.stays = frozenset(draw(st.sets(st.sampled_from(sorted(small.pods)), max_size=2)))
    return small


wishes = st.one_of(
    st.just(WHOLE),
    st.just(Wanted((Demand(whole=2),))),
    st.builds(memory, st.integers(18, 40)),
    st.builds(memory, st.integers(12, 36), st.just(1), st.integers(1, 6)),
    st.builds(lambda size: memory(2 * size, 2), st.integers(12, 24)),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fragmented(), wishes)
def test_no_sequence_of_evictions_is_shorter(small: Small, wanted: Wanted):
    found = small.search(wanted, most=3)
    plain = fewest_by_trying_all(small, wanted, most=3)
    assert found.fewest
    assert (None if found.plan is None else len(found.plan.moves)) == plain
    if found.plan is not None:
        hole, moved = found.plan.hole, [move.pod for move in found.plan.moves]
        assert opens(small, wanted, hole.node, hole.cards, moved)


def fewest_by_trying_all(small: Small, wanted: Wanted, most: int) -> int | None:
    for length in range(most + 1):
        for order in permutations(small.movable(), length):
            for node, cards in places(small, wanted):
                if opens(small, wanted, node, cards, order):
                    return length
    return None


def places(small: Small, wanted: Wanted) -> Iterator[tuple[str, frozenset[str]]]:
    for node, (_, sizes) in small.nodes.items():
        for some in combinations(range(len(sizes)), wanted.demands[0].count):
            yield node, frozenset(f"{node}-{at}" for at in some)


def opens(small: Small, wanted: Wanted, node: str, cards: frozenset[str], order: Sequence[Movable]) -> bool:
    """Carries the evictions out one after another on a ledger of its own, and looks whether the room is there."""
    ledger = small.ledger()
    for pod in order:
        charged = ledger.charged(pod.uid)
        assert charged is not None
        left = {share.uuid for slot in charged[1].slots for share in slot.shares}
        drain(small, ledger, {*cards, *left})
        while_it_ends = policy(small, ledger, pod)
        ledger.release(pod.uid)
        when_it_ended = policy(small, ledger, pod)
        if when_it_ended is None or while_it_ends not in (None, when_it_ended):
            return False
        ledger.charge(*when_it_ended)
        ledger.request(pod.uid, when_it_ended[0], pod.requests)
    drain(small, ledger, set())
    rooms = [ledger.ledger(node).room_on(card) for card in cards]
    return (
        all(room.fits(wanted.demands[0]) for room in rooms) and ledger.spare(node).cpu >= wanted.requests.cpu
    )


def drain(small: Small, ledger: ClusterLedger, cards: set[str]) -> None:
    for node, (cpu, _) in small.nodes.items():
        gpus = [replace(gpu, healthy=gpu.uuid not in cards) for gpu in ledger.gpus(node)]
        ledger.set_node(node, gpus, {}, Spare(cpu, 2**50, 100))


def policy(small: Small, ledger: ClusterLedger, pod: Movable) -> tuple[str, PodGrant] | None:
    able = [node for node in small.nodes if ledger.spare(node).cpu >= pod.requests.cpu]
    row = best(ledger, "new", pod.demands, ledger.rows(able), pod.requests)
    if row is None:
        return None
    grant = place_pod(ledger, ledger.name(row), pod.uid, pod.slots, pod.requests)
    assert grant is not None
    return ledger.name(row), grant


@pytest.mark.parametrize("most", [0, 1])
def test_a_plan_is_not_longer_than_allowed(most: int):
    small = Small(
        {"a": (100, [80]), "b": (100, [80])},
        {"p": ("a", (0,), 20, 1), "q": ("a", (0,), 20, 1), "r": ("b", (0,), 20, 1), "s": ("b", (0,), 20, 1)},
    )
    assert small.search(most=most).plan is None
    assert len(told(small.search(most=2))) == 2

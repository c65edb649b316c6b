"""The obviously right and slow way: core ledgers and nothing else. And clusters to try it on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction

from hypothesis import strategies as st

from cotenant.core.demand import PLACEMENTS, Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.grant import Grant, Share
from cotenant.core.ledger import Ledger
from cotenant.core.loss import Requests, Spare
from cotenant.core.placement import place
from cotenant.core.seen_pods import SeenPods
from cotenant.dialects.dialect import SlotDemand
from cotenant.dialects.pod_grant import PodGrant, SlotGrant
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.scan import Verdict

GI = 2**30


def gib(size: int, gpus: int = 1, placement: str = "frag", compute: int | None = None) -> Demand:
    return Demand(Memory(bytes=size * GI), gpus=gpus, placement=placement, compute=compute)


def slots(*demands: Demand) -> list[SlotDemand]:
    return [SlotDemand(f"c{at}", at, demand, ()) for at, demand in enumerate(demands)]


def granted(uid: str, *shares: Share) -> PodGrant:
    """Each share in a slot of its own."""
    return PodGrant(uid, tuple(SlotGrant(f"c{at}", (share,)) for at, share in enumerate(shares)))


def ledger_of_cluster(*nodes: Sequence[tuple[int, int]]) -> ClusterLedger:
    """Nodes `n0`, `n1`, ... with cards that have so much free of so much in all, in GiB; the rest is granted."""
    cluster = ClusterLedger()
    for number, cards in enumerate(nodes):
        cluster.set_node(
            f"n{number}",
            [GPU(f"n{number}-{at}", at, "T4", size * GI) for at, (_, size) in enumerate(cards)],
            {},
        )
        for at, (free, size) in enumerate(cards):
            if free < size:
                uuid = f"n{number}-{at}"
                cluster.charge(f"n{number}", granted(f"on-{uuid}", Share(uuid, (size - free) * GI)))
    cluster.take_gained()
    return cluster


def slow_place(ledger: Ledger, demands: Sequence[Demand], closed: Collection[str] = ()) -> Ledger | None:
    """The ledger with all of them charged by best fit, whole cards first, then the larger; None if one has no room."""
    after = ledger.copy()
    order = sorted(
        demands,
        key=lambda d: (
            d.memory is not None,
            not d.uuids,
            not d.models,
            -d.per_card(2**36),
            -d.count,
            -(d.compute or 0),
            d.uuids,
            d.models,
        ),
    )
    for number, demand in enumerate(order):
        shares = place(after, replace(demand, placement="binpack"), None, closed)
        if shares is None:
            return None
        after.charge(Grant(f"new-{number}", shares))
    return after


def slow_verdict(ledger: Ledger, demands: Sequence[Demand], closed: Collection[str] = ()) -> Verdict:
    if not ledger.gpus:
        return Verdict.NO_CARDS
    if slow_place(ledger, demands, closed) is not None:
        return Verdict.FITS
    if slow_place(ledger, demands) is not None:
        return Verdict.HELD
    if any(not any(demand.accepts(gpu) for gpu in ledger.gpus) for demand in demands):
        return Verdict.UNKNOWN_MODEL
    empty = Ledger(replace(gpu, healthy=True) for gpu in ledger.gpus)
    return Verdict.TOO_BIG if slow_place(empty, demands) is None else Verdict.NO_ROOM


sizes = st.integers(0, 24)
amounts = st.integers(0, 40)
models = st.sampled_from(["T4", "NVIDIA A100-SXM4-80GB"])
memories = st.integers(4, 40).map(lambda size: Memory(bytes=size)) | st.sampled_from([10, 33, 50, 100]).map(
    lambda percent: Memory(percent=Fraction(percent))
)
wishes = {
    "models": st.just(()) | st.sampled_from([("T4",), ("A100", "T4"), ("A100-80GB",), ("H100",)]),
    "uuids": st.just(()) | st.just(()) | st.sampled_from([("n0-0",), ("n0-1", "n1-0"), ("elsewhere",)]),
}


def demands(placements: Sequence[str] = PLACEMENTS, most: int = 3) -> st.SearchStrategy[Demand]:
    placement = st.sampled_from(list(placements))
    shared = st.builds(
        Demand,
        memories,
        gpus=st.integers(1, most),
        compute=st.none() | st.integers(1, 100),
        placement=placement,
        **wishes,
    )
    return shared | st.builds(Demand, whole=st.integers(1, most), placement=placement, **wishes)


pods = st.lists(demands(), min_size=1, max_size=4)


@st.composite
def gpus(draw: st.DrawFn, node: str) -> list[GPU]:
    count = draw(st.integers(0, 5))
    order = draw(st.permutations(range(count)))
    return [
        GPU(f"{node}-{at}", at, draw(models), draw(sizes), draw(st.booleans() | st.just(True)))
        for at in order
    ]


@st.composite
def fleets(draw: st.DrawFn, most: int = 4) -> ClusterLedger:
    """Some nodes, some charges that fit, some that do not, some holds."""
    cluster = ClusterLedger()
    cluster.learned.remember(draw(seen_pods))
    for number in range(draw(st.integers(1, most))):
        name = f"n{number}"
        cards = draw(gpus(name))
        outside = {gpu.uuid: draw(st.just(0) | st.integers(0, gpu.memory)) for gpu in cards}
        has = Spare() if draw(st.booleans()) else Spare(draw(amounts), draw(amounts), draw(st.integers(1, 8)))
        cluster.set_node(name, cards, {uuid: size for uuid, size in outside.items() if size}, has)
        for at in range(draw(st.integers(0, 2))):
            cluster.request(f"{name}-plain-{at}", name, Requests(draw(amounts), draw(amounts)))
        for at, demand in enumerate(draw(st.lists(demands(), max_size=4))):
            shares = place(cluster.ledger(name), demand)
            if shares is not None:
                uid = f"{name}-pod-{at}"
                cluster.charge(name, PodGrant(uid, (SlotGrant("c", shares),)))
                cluster.request(uid, name, Requests(draw(amounts), draw(amounts), bool(demand.models)))
        if cards and draw(st.booleans()):
            share = Share(
                draw(st.sampled_from(cards)).uuid, draw(st.integers(1, 30)), draw(st.none() | st.just(70))
            )
            cluster.load(name, granted(f"{name}-loaded", share))
        if cards and draw(st.booleans()):
            held = draw(st.lists(st.sampled_from([gpu.uuid for gpu in cards]), min_size=1, unique=True))
            cluster.hold(draw(st.sampled_from(["me", f"{name}-waiting"])), name, held)
    cluster.take_gained()
    return cluster


def seen(*pods: tuple[int, Demand | None]) -> SeenPods:
    """Statistics with so many pods of each demand, of which CPU and memory are not known."""
    statistics = SeenPods()
    for count, demand in pods:
        for _ in range(count):
            statistics.add(() if demand is None else (demand,))
    return statistics


@st.composite
def some_pods(draw: st.DrawFn) -> SeenPods:
    """Statistics of some pods, with and without GPU."""
    statistics = SeenPods()
    for demand in draw(st.lists(st.none() | demands(), max_size=5)):
        cpu, memory = draw(st.integers(0, 16)), draw(st.integers(0, 64))
        for _ in range(draw(st.integers(1, 40))):
            statistics.add(() if demand is None else (demand,), cpu, memory)
    return statistics


seen_pods = some_pods()


def closed_to(cluster: ClusterLedger, node: str, uid: str) -> set[str]:
    return {
        card
        for who, (where, cards) in cluster.holds().items()
        if where == node and who != uid
        for card in cards
    }

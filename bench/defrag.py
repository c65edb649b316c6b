"""Measures plans that open GPUs by moving pods (`cotenant plan defrag`), where no GPU is unused.

    python -m bench.defrag [--nodes 1000] [--clusters 50]

The clusters are simulated: every GPU of 80 GiB has pods, placed at random. On small clusters every plan is
carried out on a ledger, which accepts a charge only if it fits. CPU time, since nothing here waits. Exit 1 if
a promise is not kept.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from dataclasses import dataclass

from bench.figures import Figure, record
from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.core.loss import Requests, Spare
from cotenant.dialects.dialect import SlotDemand
from cotenant.dialects.pod_grant import PodGrant, SlotGrant
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.defrag import DefragPlan, Search, defragment
from cotenant.kube.scheduling.hole import Wanted
from cotenant.kube.scheduling.moving import Movable, Trial
from cotenant.kube.scheduling.node_sums import NodeSums

GI = 2**30
CARD = 80
SIZES = (4, 8, 10, 16, 20, 24, 40)
MIXES = ((16, 20, 24, 28), (24, 28, 32, 36), (10, 30, 36), (12, 18, 24, 30), (20, 26, 33))
"""GiB of pods that leave a remainder on most GPUs."""
MOST_OPENED = 0.8
"""In how many of the small clusters a plan is promised; in some there is none."""
CPU, PODS = 128_000, 110
TAKES = {"cpu": 2000, "pods": 1}
REQUESTS = Requests(2000, 0)
SECONDS = 10.0
"""In which a plan for the large cluster is promised, the ledger being there."""


@dataclass
class Cluster:
    ledger: ClusterLedger
    sums: NodeSums
    pods: list[Movable]

    def plan(self, demand: Demand) -> Search:
        return defragment(Trial(self.ledger, self.sums), Wanted((demand,)), self.pods)


def fragmented(
    nodes: int, cards: int, full: float, seed: int, sizes: tuple[int, ...] = SIZES, least: int = 1
) -> Cluster:
    """Builds a cluster whose GPUs all have `least` pods, and more of them the nearer `full` is to 1."""
    chance, ledger, pods, on = random.Random(seed), ClusterLedger(), list[Movable](), list[str]()
    for number in range(nodes):
        node = f"node-{number:05}"
        gpus = [GPU(f"{node}-{at}", at, "NVIDIA A100-SXM4-80GB", CARD * GI) for at in range(cards)]
        ledger.set_node(node, gpus, {}, Spare(CPU, 2**40, PODS))
        for gpu in gpus:
            free, there = CARD, 0
            while (size := chance.choice(sizes)) <= free and (there < least or chance.random() < full):
                free, there = free - size, there + 1
                demand = Demand(Memory(bytes=size * GI))
                pod = Movable(f"pod-{len(pods)}", (SlotDemand("main", 0, demand, ()),), REQUESTS, TAKES)
                ledger.load(node, PodGrant(pod.uid, (SlotGrant("main", (Share(gpu.uuid, size * GI),)),)))
                ledger.request(pod.uid, node, REQUESTS)
                ledger.learned.see((demand,), REQUESTS.cpu, 0)
                pods.append(pod)
                on.append(node)
    has = {node: {"cpu": CPU, "pods": PODS} for node in ledger.nodes}
    return Cluster(ledger, NodeSums(has, ((node, TAKES) for node in on)), pods)


def is_carried_out(cluster: Cluster, plan: DefragPlan) -> bool:
    """Charges the plan on the ledger, move by move; reports whether its GPUs are unused then."""
    for move in plan.moves:
        cluster.ledger.release(move.pod.uid)
        cluster.ledger.charge(move.node, move.after)
    ledger = cluster.ledger.ledger(plan.hole.node)
    return all(ledger.room_on(card).unused for card in plan.hole.cards)


def small(clusters: int) -> list[Figure]:
    """Opens a whole GPU in many small clusters that are nearly full."""
    lengths, fewest, seconds = list[int](), 0, list[float]()
    for seed in range(clusters):
        cluster = fragmented(4, 4, 0.97, seed, MIXES[seed % len(MIXES)], least=2)
        began = time.process_time()
        found = cluster.plan(Demand(whole=1))
        seconds.append(time.process_time() - began)
        if found.plan is not None and is_carried_out(cluster, found.plan):
            lengths.append(len(found.plan.moves))
            fewest += found.fewest
    mean = statistics.mean(lengths) if lengths else 0.0
    where = f"{clusters} clusters of 16 GPUs, nearly full, none unused"
    return [
        Figure(f"{where}: a plan opens one", f"{len(lengths)}", f"{int(MOST_OPENED * clusters)}"),
        Figure(f"{where}: known to have the fewest moves", f"{fewest} of {len(lengths)}"),
        Figure(f"{where}: moves, mean and most", f"{mean:.1f}, {max(lengths, default=0)}"),
        Figure(f"{where}: slowest search", f"{max(seconds):.1f} s", f"{SECONDS:.0f} s"),
    ]


def large(nodes: int) -> tuple[list[Figure], float]:
    """Plans in a large cluster."""
    figures, slowest = list[Figure](), 0.0
    for what, full, sizes, demand in (
        ("a whole GPU, a quarter of the memory free", 0.9, SIZES, Demand(whole=1)),
        ("four whole GPUs of one node", 0.9, SIZES, Demand(whole=4)),
        ("a whole GPU where nothing can be moved", 0.0, (41, 42), Demand(whole=1)),
    ):
        cluster = fragmented(nodes, 8, full, 1, sizes)
        began = time.process_time()
        found = cluster.plan(demand)
        seconds = time.process_time() - began
        slowest = max(slowest, seconds)
        moves = "no plan" if found.plan is None else f"moves: {len(found.plan.moves)}"
        where = f"{nodes:,} nodes with 8 GPUs, {len(cluster.pods):,} pods"
        figures.append(Figure(f"{where}: {what}", f"{seconds:.1f} s ({moves})", f"{SECONDS:.0f} s"))
    return figures, slowest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--clusters", type=int, default=50)
    options = parser.parse_args()
    few = small(options.clusters)
    many, slowest = large(options.nodes)
    for figure in (*few, *many):
        print(f"{figure.what:<80} {figure.measured:<22} {figure.promised}")
    record("bench.defrag", [*few, *many])
    return int(int(few[0].measured) < int(few[0].promised) or slowest > SECONDS)


if __name__ == "__main__":
    sys.exit(main())

"""How full does each placement policy fill a real cluster?

Replays the protocol of "Beware of Fragmentation" (FGD, USENIX ATC '23) on the trace that its authors published:
nodes with GPUs only; pods shuffled by a seed, random resamples appended until the requested GPU is 1.3 times the
cluster's; nobody leaves; CPU and memory of the nodes are enforced; a pod that fits nowhere is dropped. What counts
is how much of the cluster's GPU is allocated in the end.

Cards and their rooms, which card of a node is taken and what a node's fragmentation is come from `cotenant.core`:
here is only what is not there, the choice among nodes with their CPU and memory. A result of the core is remembered
per state of a node, since over a thousand nodes pass through the same few states.

    python bench/placement.py [--data FOLDER] [--seeds 42 43 44] [--load 1.3]
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.ledger import Room
from cotenant.core.placement import choose, fragmentation

CARD = 1000
"""The trace counts thousandths of a card; they stand for bytes here."""

PUBLISHED = {"binpack": ("BestFit", 93.08), "frag": ("FGD", 95.39)}
COVER = 0.95
NOWHERE = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Pod:
    """What is asked; demand is None if it needs no GPU."""

    cpu: int
    memory: int
    demand: Demand | None

    @property
    def gpu(self) -> int:
        if self.demand is None:
            return 0
        return self.demand.count * self.demand.per_card(CARD)


@dataclass
class Node:
    """What is left. The cards are kept sorted: which of two equal cards is taken makes no difference."""

    model: str
    cpu: int
    memory: int
    free: tuple[int, ...]


def read_nodes(path: Path) -> list[Node]:
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["gpu"]) > 0]
    return [
        Node(row["model"], int(row["cpu_milli"]), int(row["memory_mib"]), (CARD,) * int(row["gpu"]))
        for row in rows
    ]


def read_pods(path: Path, placement: str) -> list[Pod]:
    with path.open(newline="") as file:
        return [_pod(row, placement) for row in csv.DictReader(file)]


def _pod(row: dict[str, str], placement: str) -> Pod:
    cards, milli = int(row["num_gpu"]), int(row["gpu_milli"])
    models = tuple(filter(None, row["gpu_spec"].split("|")))
    demand = None
    if cards and milli == CARD:
        demand = Demand(whole=cards, gpus=cards, models=models, placement=placement)
    elif cards:
        demand = Demand(Memory(bytes=milli * cards), gpus=cards, models=models, placement=placement)
    return Pod(int(row["cpu_milli"]), int(row["memory_mib"]), demand)


def arrivals(pods: Sequence[Pod], cards: int, load: float, seed: int) -> list[Pod]:
    """Shuffled, then resampled until the load is reached."""
    chance = random.Random(seed)
    coming = list(pods)
    chance.shuffle(coming)
    asked = sum(pod.gpu for pod in coming)
    while asked < load * cards * CARD:
        coming.append(chance.choice(pods))
        asked += coming[-1].gpu
    return coming


class Cluster:
    """All nodes, and for each kind of pod the rank of every node, brought up to date only where a node changed."""

    def __init__(self, nodes: Sequence[Node], pods: Iterable[Pod], placement: str) -> None:
        self.nodes = list(nodes)
        self.placement = placement
        kinds = Counter(Pod(pod.cpu, 0, pod.demand) for pod in pods)
        self.typical = [(count, kind) for kind, count in _most_frequent(kinds)]
        self.cpu_steps = sorted({kind.cpu for _, kind in self.typical})
        self._ranks: dict[Pod, np.ndarray] = {}
        self._seen: dict[Pod, int] = {}
        self._changes: list[int] = []
        self.take = lru_cache(maxsize=None)(self._take)
        self.loss = lru_cache(maxsize=None)(self._loss)

    def put(self, pod: Pod) -> bool:
        """Place one pod; False if it fits nowhere."""
        ranks = self._ranks.get(pod)
        if ranks is None:
            ranks = self._ranks[pod] = np.array([self._rank(node, pod) for node in self.nodes], dtype=np.int64)
        else:
            for at in set(self._changes[self._seen[pod] :]):
                ranks[at] = self._rank(self.nodes[at], pod)
        self._seen[pod] = len(self._changes)
        best = int(ranks.argmin())
        if ranks[best] == NOWHERE:
            return False
        node = self.nodes[best]
        if pod.demand is not None:
            taken = self.take(node.model, node.free, self._level(node.cpu - pod.cpu), pod.demand)
            assert taken is not None
            node.free = taken
        node.cpu -= pod.cpu
        node.memory -= pod.memory
        self._changes.append(best)
        return True

    def _rank(self, node: Node, pod: Pod) -> int:
        """The policy's figure, then what is left on the cards, then what is left of the CPU, as one whole number."""
        cpu = node.cpu - pod.cpu
        if cpu < 0 or node.memory < pod.memory:
            return int(NOWHERE)
        after: tuple[int, ...] | None = node.free
        if pod.demand is not None:
            after = self.take(node.model, node.free, self._level(cpu), pod.demand)
            if after is None:
                return int(NOWHERE)
        left = sum(after) if pod.demand is None or pod.demand.memory is None else _left_on_card(node.free, after)
        first = 0
        if self.placement == "frag":
            first = self.loss(node.model, after, self._level(cpu)) - self.loss(
                node.model, node.free, self._level(node.cpu)
            )
        elif self.placement == "spread":
            left, cpu = -left, -cpu
        return (first * 10**4 + left) * 10**4 + cpu // 100

    def _level(self, cpu: int) -> int:
        """How many of the typical pods' CPU figures there is enough for: all that a node's CPU means to them."""
        return bisect_right(self.cpu_steps, cpu)

    def _able(self, level: int) -> list[tuple[int, Pod]]:
        return [(count, kind) for count, kind in self.typical if bisect_right(self.cpu_steps, kind.cpu) <= level]

    def _take(self, model: str, free: tuple[int, ...], level: int, demand: Demand) -> tuple[int, ...] | None:
        """What is free on the node's cards once the core has chosen among them. Typical pods that lack the CPU lose
        all that is free whichever card is taken, so they have no say here."""
        able = [(count, kind.demand) for count, kind in self._able(level) if kind.demand is not None]
        taken = choose(_rooms(model, free), demand, able)
        if taken is None:
            return None
        part = demand.per_card(CARD)
        return tuple(sorted(size - part if at in taken else size for at, size in enumerate(free)))

    def _loss(self, model: str, free: tuple[int, ...], level: int) -> int:
        """The node's fragmentation. Pods without GPU, and those that lack the CPU, lose all that is free."""
        able = [(count, kind.demand) for count, kind in self._able(level) if kind.demand is not None]
        unable = sum(count for count, _ in self.typical) - sum(count for count, _ in able)
        return int(fragmentation(_rooms(model, free), able)) + unable * sum(free)


def _most_frequent(kinds: Counter[Pod]) -> list[tuple[Pod, int]]:
    taken, total = 0, kinds.total()
    frequent = list[tuple[Pod, int]]()
    for kind, count in kinds.most_common():
        if taken >= COVER * total:
            break
        frequent.append((kind, count))
        taken += count
    return frequent


def _left_on_card(before: tuple[int, ...], after: tuple[int, ...]) -> int:
    """What is left on the card that was taken: the least that is there now and was not before."""
    return min((Counter(after) - Counter(before)).keys(), default=0)


def _rooms(model: str, free: tuple[int, ...]) -> list[Room]:
    return [
        Room(
            gpu=GPU(f"{at}", at, model, CARD),
            free=size,
            granted=CARD - size,
            outside=0,
            compute_free=100,
            whole=False,
            grants=int(size < CARD),
        )
        for at, size in enumerate(free)
    ]


def replay(folder: Path, placement: str, seed: int, load: float) -> float:
    """Allocated GPU in percent of the cluster's."""
    nodes, pods = read_nodes(folder / "nodes.csv"), read_pods(folder / "pods.csv", placement)
    cards = sum(len(node.free) for node in nodes)
    cluster = Cluster(nodes, pods, placement)
    allocated = sum(pod.gpu for pod in arrivals(pods, cards, load, seed) if cluster.put(pod))
    assert allocated == cards * CARD - sum(sum(node.free) for node in cluster.nodes)
    return 100 * allocated / (cards * CARD)


def main(arguments: Sequence[str] | None = None) -> None:
    here = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=here.parent / "shared" / "data" / "openb")
    parser.add_argument("--seeds", type=int, nargs="+", default=[42, 43, 44])
    parser.add_argument("--load", type=float, default=1.3)
    options = parser.parse_args(arguments)
    if not (options.data / "pods.csv").is_file():
        sys.exit(f"no trace in {options.data}: get nodes.csv and pods.csv of the FGD simulator, name them with --data")
    print(f"trace: {options.data} (openb, published with FGD, USENIX ATC '23; Apache-2.0)")
    print(f"allocated GPU in % at {options.load} times the cluster's; published: mean of seeds 42 to 51 at 1.3")
    print(f"{'policy':8} {'mean':>7}  {'published':>16}  {'s/seed':>6}  seeds {options.seeds}")
    for placement in ("binpack", "spread", "frag"):
        began = time.perf_counter()
        figures = [replay(options.data, placement, seed, options.load) for seed in options.seeds]
        took = (time.perf_counter() - began) / len(figures)
        name, figure = PUBLISHED.get(placement, ("", None))
        published = f"{name} {figure:.2f}" if figure else "-"
        each = " ".join(f"{value:.2f}" for value in figures)
        print(f"{placement:8} {sum(figures) / len(figures):7.2f}  {published:>16}  {took:6.1f}  {each}", flush=True)


if __name__ == "__main__":
    main()

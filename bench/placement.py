"""Measures how full each placement policy fills a real cluster.

Replays the protocol of "Beware of Fragmentation" (FGD, USENIX ATC '23) on the trace that its authors
published: nodes with GPUs only; pods shuffled by a seed, random resamples appended until the requested
GPU is 1.3 times the cluster's; nobody leaves; CPU and memory of the nodes are enforced; a pod that fits
nowhere is dropped. What counts is how much of the cluster's GPU is allocated in the end.

Rooms, the choice among the GPUs of a node and the measure of fragmentation come from `cotenant.core`;
here is only the choice among nodes with their CPU and memory. What the core answers is cached by the
state of a node, since a thousand nodes pass through the same few states.

    python -m bench.placement [--data FOLDER] [--seeds 42 43 44] [--load 1.3]
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
from functools import cache
from pathlib import Path

import numpy as np

from bench.figures import Figure, record
from cotenant.core.demand import Demand, Memory
from cotenant.core.fragmentation import Typical, coarse, fragmentation
from cotenant.core.gpu import GPU
from cotenant.core.ledger import Room
from cotenant.core.placement import choose

CARD = 1000
"""The trace counts thousandths of a GPU; they stand for bytes here."""

PUBLISHED = {"binpack": ("BestFit", 93.08), "frag": ("FGD", 95.39)}
COVER = 0.95
NEVER = Demand(Memory(bytes=1), uuids=("nowhere",))
"""Represents a typical pod that needs no GPU, or lacks the CPU: all free GPU memory is lost to it."""
NOWHERE = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Pod:
    """What a pod asks for; demand is None if it needs no GPU."""

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
    """What a node has left. Its GPUs are sorted: which of two equal GPUs is taken makes no difference."""

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
    """Shuffles the pods, then resamples them until the load is reached."""
    chance = random.Random(seed)
    coming = list(pods)
    chance.shuffle(coming)
    asked = sum(pod.gpu for pod in coming)
    while asked < load * cards * CARD:
        coming.append(chance.choice(pods))
        asked += coming[-1].gpu
    return coming


class Cluster:
    """Keeps all nodes, and for each kind of pod the rank of every node, updated when a node changes."""

    def __init__(self, nodes: Sequence[Node], pods: Iterable[Pod], placement: str) -> None:
        self.nodes = list(nodes)
        self.placement = placement
        kinds = Counter(Pod(pod.cpu, 0, pod.demand) for pod in pods)
        self.kinds = _most_frequent(kinds)
        self.cpu_steps = sorted({kind.cpu for _, kind in self.kinds})
        self._ranks: dict[Pod, np.ndarray] = {}
        self._seen: dict[Pod, int] = {}
        self._changes: list[int] = []
        self.take, self.loss = cache(self._take), cache(self._loss)
        self.typical_at = cache(self._typical_at)

    def put(self, pod: Pod) -> bool:
        """Places one pod; False if it fits nowhere."""
        ranks = self._ranks.get(pod)
        if ranks is None:
            ranks = self._ranks[pod] = np.array([self._rank(node, pod) for node in self.nodes], np.int64)
        else:
            for at in set(self._changes[self._seen[pod] :]):
                ranks[at] = self._rank(self.nodes[at], pod)
        self._seen[pod] = len(self._changes)
        best = int(ranks.argmin())
        if ranks[best] == NOWHERE:
            return False
        node = self.nodes[best]
        if pod.demand is not None:
            node.free = self.take(node.model, node.free, self._level(node.cpu - pod.cpu), pod.demand) or ()
        node.cpu -= pod.cpu
        node.memory -= pod.memory
        self._changes.append(best)
        return True

    def _rank(self, node: Node, pod: Pod) -> int:
        """Ranks by one whole number: the policy's figure, what is left on GPU, node and its CPU."""
        cpu = node.cpu - pod.cpu
        if cpu < 0 or node.memory < pod.memory:
            return NOWHERE
        after: tuple[int, ...] | None = node.free
        if pod.demand is not None:
            after = self.take(node.model, node.free, self._level(cpu), pod.demand)
        if after is None:
            return NOWHERE
        sign, figure = -1 if self.placement == "spread" else 1, 0
        if self.placement == "frag":
            then, now = self._level(cpu), self._level(node.cpu)
            increase = self.loss(node.model, after, then) - self.loss(node.model, node.free, now)
            figure = coarse(increase, self.typical_at(then), CARD)
        on_card = min((Counter(after) - Counter(node.free)).keys(), default=0)
        return figure * 10**12 + sign * ((on_card * 10**4 + sum(after)) * 10**4 + cpu // 100)

    def _level(self, cpu: int) -> int:
        """Returns how many of the typical pods' CPU requests fit: all that CPU means to them."""
        return bisect_right(self.cpu_steps, cpu)

    def _typical_at(self, level: int) -> Typical:
        return [
            (count, kind.demand if kind.demand is not None and self._level(kind.cpu) <= level else NEVER)
            for count, kind in self.kinds
        ]

    def _take(self, model: str, free: tuple[int, ...], level: int, demand: Demand) -> tuple[int, ...] | None:
        """Returns what is free on the node's GPUs once the core has chosen among them."""
        taken = choose(_rooms(model, free), demand, self.typical_at(level))
        if taken is None:
            return None
        part = demand.per_card(CARD)
        return tuple(sorted(size - part if at in taken else size for at, size in enumerate(free)))

    def _loss(self, model: str, free: tuple[int, ...], level: int) -> int:
        return int(fragmentation(_rooms(model, free), self.typical_at(level)))


def _most_frequent(kinds: Counter[Pod]) -> list[tuple[int, Pod]]:
    taken, total = 0, kinds.total()
    frequent = list[tuple[int, Pod]]()
    for kind, count in kinds.most_common():
        if taken >= COVER * total:
            break
        frequent.append((count, kind))
        taken += count
    return frequent


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
    """Replays the arrivals; returns the allocated GPU in percent of the cluster's."""
    nodes, pods = read_nodes(folder / "nodes.csv"), read_pods(folder / "pods.csv", placement)
    cards = sum(len(node.free) for node in nodes)
    cluster = Cluster(nodes, pods, placement)
    allocated = sum(pod.gpu for pod in arrivals(pods, cards, load, seed) if cluster.put(pod))
    assert allocated == cards * CARD - sum(sum(node.free) for node in cluster.nodes)
    return 100 * allocated / (cards * CARD)


def main(arguments: Sequence[str] | None = None) -> None:
    here = Path(__file__).resolve().parent.parent
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--data", type=Path, default=here.parent / "shared" / "data" / "openb")
    parser.add_argument("--seeds", type=int, nargs="+", default=[42, 43, 44])
    parser.add_argument("--load", type=float, default=1.3)
    options = parser.parse_args(arguments)
    if not (options.data / "pods.csv").is_file():
        sys.exit(f"no trace in {options.data}: name a folder with the openb nodes.csv and pods.csv by --data")
    print(f"trace: {options.data} (openb, published with FGD, USENIX ATC '23; Apache-2.0)")
    print(f"allocated GPU in % at {options.load} times the cluster's; published: mean of 10 seeds at 1.3")
    print(f"{'policy':8} {'mean':>7}  {'published':>16}  {'s/seed':>6}  seeds {options.seeds}")
    for placement in ("binpack", "spread", "frag"):
        began = time.perf_counter()
        figures = [replay(options.data, placement, seed, options.load) for seed in options.seeds]
        took = (time.perf_counter() - began) / len(figures)
        name, figure = PUBLISHED.get(placement, ("", None))
        published = f"{name} {figure:.2f}" if figure else "-"
        each = " ".join(f"{value:.2f}" for value in figures)
        mean = sum(figures) / len(figures)
        beside = f"{name}: {figure:.2f} %" if figure else ""
        record("bench.placement", [Figure(f"`{placement}`", f"{mean:.2f} %", beside)])
        print(f"{placement:8} {mean:7.2f}  {published:>16}  {took:6.1f}  {each}", flush=True)


if __name__ == "__main__":
    main()

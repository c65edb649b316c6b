"""Measures time and memory of `cotenant simulate placement` on a dump of 1,000 nodes.

    python -m bench.simulated_placement [--nodes 1000] [--pods 10000]

The dump is what `cotenant status -o json` writes of a cluster with cards of 16, 24, 40 and 80 GB, on which
pods ask for memory, for whole cards and for models, and others for no GPU. The command runs as people run it,
in a process of its own, with a plot: placing all anew, and with what runs kept and a node added. Exit 1 if it
takes longer than promised.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from bench.figures import Figure, record
from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.loss import Spare
from cotenant.kube.operating.status.snapshot import document
from cotenant.observe.view import GpuView, NodeView, PodView, ShareView
from cotenant.simulate.placement.cluster import SimulatedCluster
from cotenant.simulate.placement.workload import SimulatedNode, SimulatedPod

GI = 2**30
KINDS = (
    ("Tesla V100-PCIE-16GB", 16, 8, 64, 256),
    ("NVIDIA A10", 24, 4, 48, 192),
    ("NVIDIA A100-SXM4-40GB", 40, 8, 96, 512),
    ("NVIDIA A100-SXM4-80GB", 80, 8, 128, 1024),
)
"""Model, GiB of a card, cards of a node, CPUs, GiB of the host."""
FILLED = 0.6
"""The part of the GPU memory that pods hold in the dump."""
PROMISED = 20.0


def nodes(count: int) -> list[SimulatedNode]:
    found = list[SimulatedNode]()
    for number in range(count):
        model, size, cards, cpu, memory = KINDS[number % len(KINDS)]
        name = f"node-{number:05d}"
        gpus = tuple(GPU(f"GPU-{name}-{at}", at, model, size * GI) for at in range(cards))
        found.append(SimulatedNode(name, gpus, Spare(cpu * 1000, memory * GI, 110)))
    return found


def draw(chance: random.Random) -> SimulatedPod:
    kind = chance.random()
    if kind < 0.15:
        return SimulatedPod((), chance.choice((500, 1000, 4000)), chance.choice((1, 2, 8)) * GI)
    if kind < 0.30:
        models = ("A100",) if chance.random() < 0.3 else ()
        return SimulatedPod((Demand(whole=chance.choice((1, 1, 2, 4, 8)), models=models),), 8000, 32 * GI)
    size = chance.choice((2, 4, 4, 6, 8, 10, 12, 16, 20, 24, 32))
    return SimulatedPod((Demand(Memory(bytes=size * GI)),), chance.choice((1000, 2000, 4000)), 2 * size * GI)


def write_dump(path: Path, count: int) -> int:
    """Fills a cluster and writes it down; returns how many pods are on it."""
    chance, there = random.Random(1), nodes(count)
    cluster, pods = SimulatedCluster(there), defaultdict[str, list[PodView]](list)
    shares = defaultdict[str, list[ShareView]](list)
    room, held, number = sum(node.bytes for node in there), 0, 0
    while held < FILLED * room:
        pod, uid, number = draw(chance), f"uid-{number:06d}", number + 1
        node = cluster.place(uid, pod)
        if node is None:
            break
        name = f"pod-{number:06d}"
        asked = tuple(("main", demand) for demand in pod.demands)
        workload = f"team/deployment/web-{number % 200}"
        pods[node].append(
            PodView(uid, name, "team", pod.cpu, pod.memory, asked, workload, "v1", created=1e9 + number)
        )
        grant = cluster.ledger.charged(uid)
        for slot in grant[1].slots if grant is not None else ():
            for share in slot.shares:
                view = ShareView(uid, name, share.uuid, share.memory, share.compute, share.whole, "team")
                shares[share.uuid].append(view)
                held += share.memory
    for node in there:
        agent = PodView(f"agent-{node.name}", f"agent-{node.name}", "cotenant", 100, GI // 8, pinned=True)
        pods[node.name].append(replace(agent, workload="cotenant/daemonset/agent"))
    seen = [
        NodeView(
            node.name,
            tuple(GpuView(gpu, node.name, shares=tuple(shares[gpu.uuid])) for gpu in node.gpus),
            has=node.has,
            pods=tuple(pods[node.name]),
        )
        for node in there
    ]
    path.write_text(json.dumps(document(seen, "GiB"), indent=2), encoding="ascii")
    return number + len(there)


def run(words: list[str]) -> tuple[float, float, float, dict[str, float]]:
    """Runs the command; returns wall seconds, CPU seconds, the most memory in MiB, and its first row."""
    command = [sys.executable, "-m", "cotenant.cli.main", "simulate", "placement", "-o", "json", *words]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    if status:
        sys.exit("it failed")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, json.loads(said)["rows"][0]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10_000)
    asked = parser.parse_args()
    found, slow = list[Figure](), False
    with tempfile.TemporaryDirectory() as folder:
        dump, plot = Path(folder, "cluster.json"), Path(folder, "plot.svg")
        there = write_dump(dump, asked.nodes)
        size = dump.stat().st_size / 2**20
        print(f"dump of {asked.nodes} nodes and {there} pods: {size:.0f} MiB")
        for what, words in (
            ("all placed anew", []),
            ("what runs is kept, and the same with 4xA100-80GB", ["--keep-running", "--add", "4xA100-80GB"]),
        ):
            wall, cpu, memory, row = run(
                ["--cluster", str(dump), "--count", str(asked.pods), "--plot", str(plot), *words]
            )
            pods = asked.pods * (2 if words else 1)
            promised = f"under {PROMISED:.0f} s" if not words else ""
            slow |= bool(promised) and wall >= PROMISED
            measured = f"{wall:.1f} s, {cpu:.1f} s of CPU, {memory:.0f} MiB"
            found.append(Figure(f"{pods} pods, {what}", measured, promised))
            print(f"{pods} pods, {what}: {measured}; allocated {row['allocatedPercent']:.2f} %")
    record("bench.simulated_placement", found)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())

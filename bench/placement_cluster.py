"""Compares what the real kube-scheduler allocates with what the simulator says, for the same nodes and pods.

    python -m bench.placement_cluster [--data FOLDER] [--nodes 100] [--seeds 42 43] [--load 1.3] [--turns 3]

Nodes with GPUs of the openb trace are sampled by the seed and created as hollow nodes, with their cards, CPU
and memory. Pods of the trace come in random order, one after another, until they ask for 1.3 times the GPU
that there is; one that fits nowhere is dropped. Two ways: pods without GPU are placed by kube-scheduler's
defaults, or are ranked by the policy, too (`settings.extender.pods_without_gpu`). kube-scheduler chooses one
of equally good nodes at random, so where it decides, both are run several times, and their means count.

Exit 1 if these differ by more than half a point on average over the samples.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.extender import NAMESPACE, OURS, TESTS, Bench
from bench.figures import Figure, record
from bench.kubernetes import running, schedule_by

# isort: split
from cluster.cotenant.gpunodes import gpu_node
from cluster.testbed import hollow, places
from cluster.testbed.controlplane import ControlPlane

from cotenant.core.demand import Demand
from cotenant.dialects import names
from cotenant.kube.api.client import Client, Selection
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.resources import PODS
from cotenant.kube.pods.unschedulable import unschedulable_message
from cotenant.simulate.placement.cluster import DefaultScheduler, SimulatedCluster
from cotenant.simulate.placement.running import run
from cotenant.simulate.placement.trace import CARD, MOST_PODS, read_nodes, read_pods
from cotenant.simulate.placement.workload import Arrival, SimulatedNode, SimulatedPod

MODULE = "bench.placement_cluster"
APART = 0.5
"""Points of the cluster's GPU that simulator and cluster may differ by."""
TIES = 10
"""Runs of the simulator where equally good nodes are chosen from at random."""
WAYS = {False: "pods without GPU by kube-scheduler", True: "all pods by the policy"}


@dataclass(frozen=True)
class Sample:
    """Nodes and pods, in the order in which they come."""

    nodes: list[SimulatedNode]
    pods: list[SimulatedPod]

    @property
    def room(self) -> int:
        return sum(node.bytes for node in self.nodes)


def draw(data: Path, count: int, load: float, seed: int) -> Sample:
    chance = random.Random(seed)
    nodes = chance.sample(read_nodes(data / "nodes.csv"), count)
    all_pods = read_pods(data / "pods.csv")
    named = [replace(node, name=f"{hollow.PREFIX}{node.name}") for node in nodes]
    coming, asked, room = list[SimulatedPod](), 0, sum(node.bytes for node in nodes)
    order = chance.sample(all_pods, len(all_pods))
    while asked < load * room:
        coming.append(order.pop() if order else chance.choice(all_pods))
        asked += coming[-1].bytes(CARD)
    return Sample(named, coming)


def simulated(sample: Sample, *, all_pods: bool) -> list[float]:
    """Returns the percent of the GPU that is allocated, for each way to choose among equal nodes."""
    arrivals, found = [Arrival(pod) for pod in sample.pods], list[float]()
    for seed in range(1 if all_pods else TIES):
        scheduler = None if all_pods else DefaultScheduler(sample.nodes, seed)
        outcome = run(SimulatedCluster(sample.nodes, scheduler), arrivals, CARD)
        found.append(100 * outcome.allocated / sample.room)
    return found


async def on_cluster(sample: Sample, *, all_pods: bool) -> float:
    """Returns the percent of the GPU that the real kube-scheduler and the server allocate."""
    plane = ControlPlane()
    try:
        plane.start()
        bench = Bench(plane, pods_without_gpu=all_pods)
        bench.prepare()
        hollow.add(plane.api, (_node(node) for node in sample.nodes))
        with running(bench.server()):
            schedule_by(plane, bench.settings, OURS)
            async with Client(bench.access) as client:
                allocated = await _drive(client, sample.pods)
    finally:
        plane.stop()
    return 100 * allocated / sample.room


async def _drive(client: Client, pods: Sequence[SimulatedPod]) -> int:
    """Creates the pods one after another. Returns the bytes of those that were placed."""
    allocated = 0
    async with _changes(client) as changes:
        for number, pod in enumerate(pods):
            name = f"pod-{number}"
            await client.create(PODS, _pod(name, pod), NAMESPACE)
            async with asyncio.timeout(60):
                async for seen in changes:
                    if seen.metadata.name == name and (seen.spec.node_name or unschedulable_message(seen)):
                        break
            if seen.spec.node_name:
                allocated += pod.bytes(CARD)
            else:
                await client.delete(PODS, name, NAMESPACE, grace_seconds=0)
            if sys.stderr.isatty():
                print(f"\r{number + 1} of {len(pods)} pods", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return allocated


@asynccontextmanager
async def _changes(client: Client) -> AsyncIterator[AsyncIterator[Pod]]:
    """Yields the pods as they change."""
    listed = await client.list(PODS, Selection(NAMESPACE), newest=True)
    watch = client.watch(PODS, Selection(NAMESPACE), resource_version=listed.resource_version, seconds=3600)

    async def changed() -> AsyncIterator[Pod]:
        async for event in watch:
            if event.object is not None:
                yield event.object

    try:
        yield changed()
    finally:
        await watch.aclose()


def _node(node: SimulatedNode) -> dict[str, Any]:
    made = gpu_node(node.name, [gpu.memory for gpu in node.gpus], model=node.gpus[0].model)
    has = {"cpu": f"{node.has.cpu}m", "memory": str(node.has.memory), "pods": str(MOST_PODS)}
    for kind in ("capacity", "allocatable"):
        made["status"][kind] = {**made["status"][kind], **has}
    return made


def _pod(name: str, pod: SimulatedPod) -> dict[str, Any]:
    """As admission leaves it."""
    amounts, annotations = {"cpu": f"{pod.cpu}m", "memory": str(pod.memory)}, dict[str, str]()
    for demand in pod.demands:
        amounts |= _gpu(demand)
        if demand.memory is not None and demand.count > 1:
            annotations[names.gpu_count("main")] = str(demand.count)
        if demand.models:
            annotations[names.GPU_MODEL] = ",".join(demand.models)
    container = {"name": "main", "image": "none", "resources": {"limits": amounts, "requests": amounts}}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "schedulerName": "cotenant",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def _gpu(demand: Demand) -> dict[str, str]:
    if demand.memory is None:
        return {names.GPU: str(demand.count), names.GPU_SLOT: "1"}
    return {names.GPU_MEMORY: str(demand.memory.bytes), names.GPU_SLOT: "1"}


def main(arguments: Sequence[str] | None = None) -> int:
    here = Path(__file__).resolve().parent.parent
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--data", type=Path, default=here.parent / "shared" / "data" / "openb")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[42, 43, 44])
    parser.add_argument("--load", type=float, default=1.3)
    parser.add_argument(
        "--turns", type=int, default=3, help="runs on the cluster where kube-scheduler chooses at random"
    )
    options = parser.parse_args(arguments)
    if not (options.data / "pods.csv").is_file():
        sys.exit(f"no trace in {options.data}: name a folder with the openb nodes.csv and pods.csv by --data")
    if not places.inside():
        inside = [sys.executable, "-m", "cluster.testbed", "run", "--", sys.executable, "-m", MODULE]
        asked = sys.argv[1:] if arguments is None else list(arguments)
        env = {**os.environ, "PYTHONPATH": str(TESTS)}
        return subprocess.run([*inside, *asked], env=env, check=False).returncode
    print(f"allocated GPU in percent, {options.nodes} nodes of {options.data}, {options.load} times asked")
    print(f"{'':36}{'seed':>6}{'pods':>6}{'simulator':>11}{'from':>7}{'to':>7}{'cluster':>9}{'apart':>7}")
    kept = True
    for all_pods, way in WAYS.items():
        both = list[tuple[float, float]]()
        for seed in options.seeds:
            sample = draw(options.data, options.nodes, options.load, seed)
            runs = simulated(sample, all_pods=all_pods)
            turns = range(1 if all_pods else options.turns)
            real = statistics.mean(asyncio.run(on_cluster(sample, all_pods=all_pods)) for _ in turns)
            both.append((statistics.mean(runs), real))
            spread = f"{min(runs):7.2f}{max(runs):7.2f}"
            apart = f"{real - both[-1][0]:7.2f}"
            figures = f"{both[-1][0]:11.2f}{spread}{real:9.2f}{apart}"
            print(f"{way:36}{seed:6}{len(sample.pods):6}{figures}", flush=True)
        simulator, cluster = (statistics.mean(each) for each in zip(*both, strict=True))
        print(f"{way:36}{'mean':>6}{'':6}{simulator:11.2f}{'':14}{cluster:9.2f}{cluster - simulator:7.2f}")
        kept &= abs(cluster - simulator) <= APART
        beside = f"simulator: {simulator:.2f} %"
        record(MODULE, [Figure(way, f"{cluster:.2f} %", beside, "allocated")])
    if not kept:
        print("NOT KEPT")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

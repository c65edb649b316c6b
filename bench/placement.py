"""Measures how full the policies of a cluster fill a real one, and what they refuse where pods come and go.

Replays the protocol of "Beware of Fragmentation" (FGD, USENIX ATC '23) on the trace that its authors
published: nodes with GPUs only; pods shuffled by a seed, random ones appended until the requested GPU is
1.3 times the cluster's; nobody leaves; CPU and memory of the nodes are enforced; a pod that fits nowhere is
dropped. What counts is how much of the cluster's GPU is allocated in the end. With departures, pods come at
random and stay for a random time, so that on average as much GPU is asked for as there is; what counts is the
part of it that is refused.

Ours goes through the cluster's own ledger and policy (`cotenant.simulate.placement`), and learns while it
runs. BestFit and FGD are replicas (`bench/replicas.py`), and FGD knows beforehand which pods come. Each is
run twice: with all pods placed by the policy, and with those without GPU placed as kube-scheduler does by
default, since they never reach an extender.

    python -m bench.placement [--data FOLDER] [--seeds 42 43 ...] [--load 1.3] [--departures 2] [--jobs 2]

Exit 1 if a promise is not kept.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from bench.figures import Figure, record
from bench.replicas import BestFit, Fgd
from cotenant.simulate.placement.cluster import DefaultScheduler, SimulatedCluster
from cotenant.simulate.placement.running import Outcome, Placer, run
from cotenant.simulate.placement.trace import CARD, read_nodes, read_pods
from cotenant.simulate.placement.workload import SimulatedNode, SimulatedPod, inflated, with_departures

POLICIES = ("BestFit", "FGD", "frag")
PUBLISHED = {"BestFit": 93.08, "FGD": 95.39}
LEAST = 96.0
"""Percent that are to be allocated where the policy places all pods."""
MEAN, P99 = 1.0, 4.0
"""Milliseconds that a decision over all nodes of the trace may take."""
LIFETIMES = 5.0
"""How long pods come and go, in mean stays; before the half of it nothing is counted."""
BY_POLICY, BY_SCHEDULER = "all pods by the policy", "pods without GPU by kube-scheduler"


@dataclass(frozen=True)
class Job:
    """One run of one policy."""

    data: Path
    policy: str
    others: str
    """Who places the pods without GPU."""
    seed: int
    load: float
    departures: bool


@dataclass(frozen=True)
class Result:
    allocated: float
    """Percent of the cluster's GPU, at the end."""
    refused: float
    """Percent of the GPU asked for."""
    mean: float
    """Milliseconds of CPU time for a decision."""
    p99: float


def placer(job: Job, nodes: list[SimulatedNode], pods: list[SimulatedPod]) -> Placer:
    scheduler = DefaultScheduler(nodes, job.seed) if job.others == BY_SCHEDULER else None
    if job.policy == "BestFit":
        return BestFit(nodes, scheduler)
    if job.policy == "FGD":
        return Fgd(nodes, pods, scheduler)
    return SimulatedCluster(nodes, scheduler)


def replay(job: Job) -> Result:
    nodes, pods = read_nodes(job.data / "nodes.csv"), read_pods(job.data / "pods.csv")
    room = sum(node.bytes for node in nodes)
    where = placer(job, nodes, pods)
    if job.departures:
        stay = room * len(pods) / sum(pod.bytes(CARD) for pod in pods)
        count = round(LIFETIMES * stay)
        arrivals = with_departures(pods, room, CARD, 1.0, job.seed, count)
        outcome = run(where, arrivals, CARD, count // 2, time.thread_time)
    else:
        outcome = run(where, inflated(pods, room, CARD, job.load, job.seed), CARD, 0, time.thread_time)
    return _result(outcome, room)


def _result(outcome: Outcome, room: int) -> Result:
    took = sorted(outcome.seconds)
    return Result(
        100 * outcome.allocated / room,
        100 * outcome.refused / outcome.asked,
        1000 * sum(took) / len(took),
        1000 * took[int(0.99 * (len(took) - 1))],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    here = Path(__file__).resolve().parent.parent
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--data", type=Path, default=here.parent / "shared" / "data" / "openb")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(42, 52)))
    parser.add_argument("--load", type=float, default=1.3)
    parser.add_argument(
        "--departures", type=int, default=3, metavar="N", help="seeds that run with departures"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args(arguments)
    if not (options.data / "pods.csv").is_file():
        sys.exit(f"no trace in {options.data}: name a folder with the openb nodes.csv and pods.csv by --data")
    print(f"trace: {options.data} (openb, published with FGD, USENIX ATC '23; Apache-2.0)")
    print(f"allocated at {options.load} times the cluster's GPU, seeds {options.seeds}; refused where pods")
    print(f"come and go at the load that fits, seeds {options.seeds[: options.departures]}; in % of the GPU")
    print(f"{'':36}{'policy':9}{'allocated':>10}{'from':>7}{'to':>7}{'refused':>9}{'ms':>7}{'p99':>7}")
    kept, found = True, dict[tuple[str, str], tuple[float, float]]()
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for others in (BY_POLICY, BY_SCHEDULER):
            for policy in POLICIES:
                stays = [
                    Job(options.data, policy, others, seed, options.load, False) for seed in options.seeds
                ]
                leaves = [
                    Job(options.data, policy, others, seed, options.load, True)
                    for seed in options.seeds[: options.departures]
                ]
                results = list(pool.map(replay, stays + leaves))
                found[others, policy] = _show(others, policy, results[: len(stays)], results[len(stays) :])
                kept &= policy != "frag" or _in_time(results[: len(stays)])
    for others in (BY_POLICY, BY_SCHEDULER):
        ours, fgd = found[others, "frag"], found[others, "FGD"]
        kept &= ours[0] >= fgd[0] and ours[1] <= fgd[1]
    kept &= found[BY_POLICY, "frag"][0] >= LEAST
    if not kept:
        print("NOT KEPT")
    return 0 if kept else 1


def _show(others: str, policy: str, stays: Sequence[Result], leaves: Sequence[Result]) -> tuple[float, float]:
    allocated = [each.allocated for each in stays]
    mean = sum(allocated) / len(allocated)
    refused = sum(each.refused for each in leaves) / len(leaves) if leaves else 0.0
    took, p99 = sum(each.mean for each in stays) / len(stays), max(each.p99 for each in stays)
    spread = f"{min(allocated):7.2f}{max(allocated):7.2f}"
    print(f"{others:36}{policy:9}{mean:10.2f}{spread}{refused:9.2f}{took:7.2f}{p99:7.2f}", flush=True)
    published = PUBLISHED.get(policy) if others == BY_POLICY else None
    beside = f"{policy}: {published:.2f} %" if published else ""
    figures = [
        Figure(f"{policy}, {others}", f"{mean:.2f} %", beside, "allocated"),
        Figure(f"{policy}, {others}", f"{refused:.2f} %", "", "refused with departures"),
    ]
    if policy == "frag":
        figures.append(
            Figure(f"{policy}, {others}", f"{took:.2f} / {p99:.2f} ms", "", "a decision, mean / p99")
        )
    record("bench.placement", figures)
    return mean, refused


def _in_time(results: Sequence[Result]) -> bool:
    return all(each.mean < MEAN and each.p99 < P99 for each in results)


if __name__ == "__main__":
    sys.exit(main())

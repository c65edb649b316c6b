"""Places simulated pods by the ledger and the policy of a cluster, as kube-scheduler and the extender do.

What kube-scheduler does is only what concerns a cluster of GPU nodes: it keeps a pod from nodes without the
CPU, memory or place for it, and if it is to place pods without GPU, it scores nodes by its default plugins.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from cotenant.core.grant import Share
from cotenant.core.loss import Requests
from cotenant.dialects.dialect import SlotDemand
from cotenant.dialects.pod_grant import PodGrant, SlotGrant
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.matrix import Bools, Bytes, Rows, Window
from cotenant.kube.scheduling.placing import place_pod
from cotenant.kube.scheduling.ranking import best
from cotenant.simulate.placement.workload import SimulatedNode, SimulatedPod


class SimulatedCluster:
    """A cluster's ledger, and the decisions of those who place pods on it."""

    def __init__(self, nodes: Iterable[SimulatedNode], scheduler: DefaultScheduler | None = None) -> None:
        """`scheduler` places the pods without GPU; by default the policy places them, too."""
        self.ledger = ClusterLedger()
        self.ledger.learned.spread = scheduler is not None
        cordoned = list[bool]()
        for node in nodes:
            self.ledger.set_node(node.name, node.gpus, node.outside, node.has)
            cordoned.append(node.cordoned)
        self.cordoned: Bools = np.array(cordoned, np.bool_)
        """By row."""
        self._some_cordoned = any(cordoned)
        self._scheduler = scheduler

    def place(self, uid: str, pod: SimulatedPod) -> str | None:
        """Places a pod and charges it; returns its node, None if it fits nowhere. As in a cluster, it counts
        as seen when it is placed.
        """
        requests, ledger = _requests(pod), self.ledger
        row = self._choose(uid, pod, requests)
        if row is None:
            return None
        node = ledger.name(row)
        if pod.demands:
            slots = [SlotDemand(f"c{at}", at, demand, ()) for at, demand in enumerate(pod.demands)]
            grant = place_pod(ledger, node, uid, slots, requests)
            if grant is None:
                raise AssertionError(f"{uid} was promised room on {node}, and has none")
            ledger.charge(node, grant)
        ledger.request(uid, node, requests)
        ledger.learned.see(pod.demands, pod.cpu, pod.memory)
        return node

    def keep(self, uid: str, node: str, pod: SimulatedPod, shares: Sequence[Share]) -> None:
        """Charges a pod that runs on a node already, whatever the policy would say."""
        self.ledger.learned.see(pod.demands, pod.cpu, pod.memory)
        if shares:
            self.ledger.load(node, PodGrant(uid, (SlotGrant("c", tuple(shares)),)))
        self.ledger.request(uid, node, _requests(pod))

    def end(self, uid: str) -> None:
        self.ledger.release(uid)

    def _choose(self, uid: str, pod: SimulatedPod, requests: Requests) -> int | None:
        rows, ledger = self._with_room_beside(pod), self.ledger
        if not len(rows):
            return None
        if not pod.demands and self._scheduler is not None:
            return self._scheduler.choose(pod, rows, ledger.matrix.cpu, ledger.matrix.memory)
        return best(ledger, uid, pod.demands, rows, requests)

    def _with_room_beside(self, pod: SimulatedPod) -> Rows:
        there = Window(self.ledger.matrix, None)
        fits = (there.cpu >= pod.cpu) & (there.memory >= pod.memory) & (there.pods >= 1)
        if self._some_cordoned:
            fits &= ~self.cordoned
        rows: Rows = np.flatnonzero(fits).astype(np.int32)
        return rows


def _requests(pod: SimulatedPod) -> Requests:
    return Requests(pod.cpu, pod.memory, any(demand.models for demand in pod.demands))


class DefaultScheduler:
    """Chooses nodes as kube-scheduler 1.37 does by default: the least allocated (`NodeResourcesFit`), and
    those that become more balanced (`NodeResourcesBalancedAllocation`), by CPU and memory; one of equals at
    random.
    """

    def __init__(self, nodes: Sequence[SimulatedNode], seed: int) -> None:
        self._cpu = np.array([max(1, node.has.cpu) for node in nodes], np.float64)
        self._memory = np.array([max(1, node.has.memory) for node in nodes], np.float64)
        self._chance = Random(seed)

    def choose(self, pod: SimulatedPod, rows: Rows, cpu: Bytes, memory: Bytes) -> int:
        """Returns one of these rows; `cpu` and `memory` is what each of all rows has left."""
        cpus = (cpu[rows] - pod.cpu) / self._cpu[rows]
        memories = (memory[rows] - pod.memory) / self._memory[rows]
        least = (np.floor(100 * cpus) + np.floor(100 * memories)) // 2
        before = _balance(cpu[rows] / self._cpu[rows], memory[rows] / self._memory[rows])
        score = least + (50 + _balance(cpus, memories) - before) // 2
        equal = np.flatnonzero(score == score.max())
        return int(rows[equal[self._chance.randrange(len(equal))]])


def _balance(cpus: NDArray[np.float64], memories: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns 100 where the same part of CPU and memory is left, 50 where all of one and nothing of the other
    is.
    """
    balance: NDArray[np.float64] = np.floor(100 * (1 - np.abs(cpus - memories) / 2))
    return balance

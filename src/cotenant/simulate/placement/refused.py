"""Finds why a pod was refused: what the cluster lacked at that moment."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

import numpy as np

from cotenant.core.demand import Demand
from cotenant.kube.scheduling.matrix import Bools, Window
from cotenant.kube.scheduling.scan import Verdict, scan
from cotenant.simulate.placement.cluster import SimulatedCluster
from cotenant.simulate.placement.workload import SimulatedPod


class Lack(StrEnum):
    """What a pod that was refused did not find."""

    CPU = "cpu"
    MEMORY = "memory"
    PODS = "pods"
    """Nodes with room on their GPUs have too little CPU or memory left, or no place for another pod."""
    MODEL = "model"
    """Only cards of models that it does not name have room, or there is no such card at all."""
    ROOM = "room"
    """No node has the room on its GPUs."""
    CORDONED = "cordoned"
    """Only cordoned nodes have the room."""
    SIZE = "size"
    """It would not fit any node, even if all were empty."""


def lack(cluster: SimulatedCluster, uid: str, pod: SimulatedPod) -> Lack:
    """Returns what is missing for a pod that was just refused."""
    if not pod.demands:
        return _beside(cluster, pod, ~cluster.cordoned) if not cluster.cordoned.all() else Lack.CORDONED
    verdicts = _verdicts(cluster, uid, pod.demands)
    room = (verdicts == Verdict.FITS) & ~cluster.cordoned
    if room.any():
        return _beside(cluster, pod, room)
    if (verdicts == Verdict.FITS).any():
        return Lack.CORDONED
    if any(demand.models or demand.uuids for demand in pod.demands):
        anywhere = tuple(replace(demand, models=(), uuids=()) for demand in pod.demands)
        others = _verdicts(cluster, uid, anywhere)
        known = (verdicts != Verdict.UNKNOWN_MODEL) & (verdicts != Verdict.NO_CARDS)
        if not known.any() or ((others == Verdict.FITS) & ~cluster.cordoned).any():
            return Lack.MODEL
    return Lack.ROOM if (verdicts == Verdict.NO_ROOM).any() else Lack.SIZE


def _verdicts(cluster: SimulatedCluster, uid: str, demands: tuple[Demand, ...]) -> np.ndarray:
    rows = np.arange(cluster.ledger.matrix.rows, dtype=np.int32)
    return scan(cluster.ledger, uid, demands, rows)


def _beside(cluster: SimulatedCluster, pod: SimulatedPod, rows: Bools) -> Lack:
    """Returns what most of these nodes have too little of."""
    there = Window(cluster.ledger.matrix, None)
    full = there.pods < 1
    short = {
        Lack.CPU: (there.cpu < pod.cpu) & ~full,
        Lack.MEMORY: (there.memory < pod.memory) & ~full,
        Lack.PODS: full,
    }
    return max(short, key=lambda each: int((short[each] & rows).sum()))

"""Finds GPUs whose free memory a pod cannot use, since their node has no CPU, memory or place for the pod."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.loss import Requests, Spare
from cotenant.core.units import format_apart, format_bytes
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.placing import rooms_of


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that a pod asks for beside GPUs, and of which a node has less left."""

    kind: str
    """Stable, for scripts: `cpu` (in thousandths), `memory` (bytes), `pods`."""
    left: int
    asked: int

    def __str__(self) -> str:
        if self.kind == "pods":
            return "takes no more pods"
        name = "CPU" if self.kind == "cpu" else "memory"
        if not self.left:
            return f"has no {name} left"
        left, asked = (
            (_cpus(self.left), _cpus(self.asked))
            if self.kind == "cpu"
            else format_apart(self.left, self.asked)
        )
        return f"has {left} {name} left and {asked} is asked for"


@dataclass(frozen=True, slots=True)
class StrandedGpu:
    """A GPU with room for a pod on a node that has no room for it otherwise."""

    node: str
    gpu: GPU
    free: int
    lacks: tuple[Lack, ...]

    def __str__(self) -> str:
        why = " and ".join(str(each) for each in self.lacks)
        return f"{self.gpu} of {self.node} has {format_bytes(self.free)} free; the node {why}"

    def to_json(self) -> dict[str, Any]:
        lacks = [{"kind": each.kind, "left": each.left, "asked": each.asked} for each in self.lacks]
        return {
            "node": self.node,
            "gpu": self.gpu.index,
            "uuid": self.gpu.uuid,
            "free": self.free,
            "lacks": lacks,
            "sentence": str(self),
        }


def lacks(left: Spare, requests: Requests) -> tuple[Lack, ...]:
    """Lists what a node with so much left does not have for a pod. Without a place for it nothing else
    counts.
    """
    if left.pods < 1:
        return (Lack("pods", 0, 1),)
    both = (Lack("cpu", left.cpu, requests.cpu), Lack("memory", left.memory, requests.memory))
    return tuple(each for each in both if each.asked > each.left)


def stranded_gpus(
    cluster: ClusterLedger,
    node: str,
    demands: Sequence[Demand],
    requests: Requests,
    closed: Collection[str] = (),
) -> list[StrandedGpu]:
    """Lists the GPUs of a node that have room for one of the demands, where the node lacks something else;
    those with most free first. `closed`: UUIDs of GPUs that are held for others.
    """
    missing = lacks(cluster.spare(node), requests)
    if not missing:
        return []
    found = [
        StrandedGpu(node, room.gpu, room.free, missing)
        for room in rooms_of(cluster, node)
        if room.gpu.uuid not in closed and any(room.fits(demand) for demand in demands)
    ]
    return sorted(found, key=lambda each: (-each.free, each.gpu.index))


def _cpus(milli: int) -> str:
    return f"{milli / 1000:.3f}".rstrip("0").rstrip(".")

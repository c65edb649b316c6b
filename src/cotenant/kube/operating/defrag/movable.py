"""Decides which pods may be evicted so that others get their room, and says why the others stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cotenant.kube.api.objects import Meta, OwnerReference, Pod
from cotenant.kube.operating.defrag.budgets import Budget
from cotenant.kube.pods.demand import is_mirror
from cotenant.kube.pods.eligibility import Placement

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""On pods, written by people, for every tool that evicts: `false` keeps it where it is."""
_NOT_REPLACED_ELSEWHERE = ("DaemonSet", "Node")
"""Controllers whose pods belong to one node."""


class _Port(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    host_port: int = 0


class _Container(msgspec.Struct, frozen=True, gc=False):
    ports: tuple[_Port, ...] = ()


class PlacementSpec(Placement, frozen=True, rename="camel"):
    """All of a pod's spec that decides on which nodes it may be placed, beside what it requests."""

    topology_spread_constraints: tuple[dict[str, Any], ...] = ()
    volumes: tuple[dict[str, Any], ...] = ()
    resource_claims: tuple[dict[str, Any], ...] = ()
    containers: tuple[_Container, ...] = ()

    @property
    def plain(self) -> Placement:
        """What pods of one workload have in common: names of volumes differ."""
        return Placement(self.node_selector, self.tolerations, self.affinity)

    @property
    def not_judged(self) -> str:
        """What kube-scheduler looks at and we do not, so that we cannot say where the pod would go; empty if
        there is nothing of the kind.
        """
        for kind in ("podAffinity", "podAntiAffinity"):
            rule = (self.affinity or {}).get(kind) or {}
            if rule.get("requiredDuringSchedulingIgnoredDuringExecution"):
                return f"its {kind} decides where it may go"
        if any(
            each.get("whenUnsatisfiable") != "ScheduleAnyway" for each in self.topology_spread_constraints
        ):
            return "its topologySpreadConstraints decide where it may go"
        if any(port.host_port for container in self.containers for port in container.ports):
            return "it uses a port of its node"
        if self.resource_claims:
            return "it uses resource claims"
        return ""

    @property
    def keeps_data(self) -> bool:
        """Whether it has a volume that may tie it to its node."""
        return any("persistentVolumeClaim" in each or "hostPath" in each for each in self.volumes)


class PlacedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod with the fields that say on which nodes it may be placed."""

    metadata: Meta = Meta()
    spec: PlacementSpec = PlacementSpec()


def controller_of(pod: Pod) -> OwnerReference | None:
    return next((each for each in pod.metadata.owner_references if each.controller), None)


def why_it_stays(pod: Pod, spec: PlacementSpec, budgets: Sequence[Budget]) -> str:
    """Continues a sentence after the pod's name; empty if it may be moved. `budgets`: those that cover it."""
    owner, safe = controller_of(pod), pod.metadata.annotations.get(SAFE_TO_EVICT, "")
    if pod.metadata.deletion_timestamp is not None:
        return "is being deleted"
    if is_mirror(pod) or (owner is not None and owner.kind in _NOT_REPLACED_ELSEWHERE):
        return "belongs to its node"
    if owner is None:
        return "has no controller that would make it anew"
    if safe == "false":
        return f"is kept by its annotation {SAFE_TO_EVICT}"
    if spec.not_judged:
        return f"stays: {spec.not_judged}"
    if spec.keeps_data and safe != "true":
        return f"stays: its volumes may tie it to its node (annotation {SAFE_TO_EVICT}: true moves it)"
    if len(budgets) > 1:
        return f"stays: several PodDisruptionBudgets cover it ({', '.join(each.name for each in budgets)})"
    if budgets and budgets[0].allowed < 1:
        return f"stays: {budgets[0]} allows no eviction now"
    return ""

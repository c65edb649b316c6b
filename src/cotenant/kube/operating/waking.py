"""Brings back a workload that was scaled to zero because it idled (`cotenant wake`).

How many replicas it had is noted on the workload itself, by the server, in the patch that released it. What a
GpuScaler has released carries no such note: it sizes the workload itself as soon as work comes. Until then a
wake gives it its minimum, at least one, and the GpuScaler respects that as any scaling by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cotenant.core.errors import BadInput
from cotenant.dialects import names
from cotenant.kube.api.client import Client, Selection
from cotenant.kube.api.errors import Conflict, Forbidden, NotFound
from cotenant.kube.api.objects import Generic
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import (
    DEPLOYMENTS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)
from cotenant.kube.operating.explain.workloads import parse_asked
from cotenant.kube.scaler.conflicts import aim_of
from cotenant.kube.scaler.resource import GPU_SCALERS, GpuScaler, read_spec
from cotenant.scaling.specification import GpuScalerSpec

KINDS = (DEPLOYMENTS, STATEFUL_SETS, REPLICATION_CONTROLLERS, REPLICA_SETS)
"""In the order in which a bare name is looked for."""
MOST = 10_000
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Woken:
    kind: str
    namespace: str
    name: str
    before: int
    replicas: int
    scaler: str | None = None
    """The GpuScaler that sizes it."""
    threshold: str | None = None
    """After how much idleness that GpuScaler releases it again."""

    @property
    def sentence(self) -> str:
        what = f"{self.kind.lower()} {self.namespace}/{self.name}"
        if self.before == self.replicas:
            return f"{what} has {self.replicas} replicas already: nothing to wake"
        done = f"{what}: scaled from {self.before} to {self.replicas}"
        if self.scaler is None:
            return done
        until = "until its load changes"
        if self.threshold == "auto":
            until += ", or until it has been idle for as long as it has learned"
        elif self.threshold is not None:
            until += f", or until it has been idle for {self.threshold} from now"
        return f"{done}; GpuScaler {self.scaler} keeps that {until}"

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "before": self.before,
            "replicas": self.replicas,
            "scaler": self.scaler,
            "scaleDownThreshold": self.threshold,
        }


async def wake(client: Client, asked: str, namespace: str, replicas: int | None = None) -> Woken:
    """Scales a released workload to what it was, or to `replicas`; one that a GpuScaler sizes, to its minimum
    and at least 1. One that runs is left alone.
    """
    if replicas is not None and not 1 <= replicas <= MOST:
        raise BadInput(f"--replicas: {replicas} is not from 1 to {MOST}")
    for attempt in range(_ATTEMPTS):
        resource, found = await _find(client, asked, namespace)
        meta, before = found.metadata, _wanted(found)
        if before:
            return Woken(resource.kind, meta.namespace, meta.name, before, before)
        scaler = await _scaler_of(client, resource, found)
        to = replicas or _before_release(resource, found, scaler)
        note = {"metadata": {"annotations": {names.RELEASED_REPLICAS: None}}}
        try:
            await client.merge_patch(
                resource, meta.name, {**note, "spec": {"replicas": to}}, namespace, guard=Guard.of(found)
            )
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        if scaler is None:
            return Woken(resource.kind, meta.namespace, meta.name, before, to)
        name, spec = scaler
        threshold = spec.scale_down_threshold
        return Woken(resource.kind, meta.namespace, meta.name, before, to, name, threshold)
    raise AssertionError("unreachable")


async def _find(client: Client, asked: str, namespace: str) -> tuple[Resource[Generic], Generic]:
    wish = parse_asked(asked)
    kinds = [each for each in KINDS if wish.kind in {None, each.plural}]
    if not kinds:
        known = ", ".join(each.kind.lower() for each in KINDS)
        raise BadInput(f"NAME: {wish.kind} are not scaled to zero by Cotenant: there is {known}")
    found: list[tuple[Resource[Generic], Generic]] = []
    refused: Forbidden | None = None
    for each in kinds:
        try:
            found.append((each, await client.get(each, wish.name, namespace)))
        except NotFound:
            continue
        except Forbidden as error:
            refused = error  # most people have rights to some of the kinds only
    released = [each for each in found if names.RELEASED_REPLICAS in each[1].metadata.annotations]
    if not found and refused is not None:
        raise refused
    if not found:
        words = " or ".join(each.kind for each in kinds)
        raise BadInput(f"NAME: no {words} {wish.name!a} in namespace {namespace}: choose another with -n")
    return (released or found)[0]


def _wanted(found: Generic) -> int:
    replicas = found.spec.get("replicas")
    return replicas if isinstance(replicas, int) else 1


async def _scaler_of(
    client: Client, resource: Resource[Generic], found: Generic
) -> tuple[str, GpuScalerSpec] | None:
    """Returns the GpuScaler that acts on this workload, with its spec: the oldest. None also if this person
    may not list them, or the cluster has none.
    """
    meta = found.metadata
    try:
        listed = (await client.list(GPU_SCALERS, Selection(meta.namespace))).items
    except (NotFound, Forbidden):
        return None
    aim = (meta.namespace, resource.group, resource.kind, meta.name)
    for scaler in sorted(listed, key=_created):
        try:
            spec = read_spec(scaler)
        except BadInput:
            continue
        if spec.mode == "act" and aim_of(spec.target, meta.namespace) == aim:
            return scaler.metadata.name, spec
    return None


def _created(scaler: GpuScaler) -> tuple[float, str]:
    at = scaler.metadata.creation_timestamp
    return (at.timestamp() if at is not None else 0.0), scaler.metadata.uid


def _before_release(
    resource: Resource[Generic], found: Generic, scaler: tuple[str, GpuScalerSpec] | None
) -> int:
    if scaler is not None and names.RELEASED_REPLICAS not in found.metadata.annotations:
        return max(1, scaler[1].replicas.min)
    return _remembered(resource, found)


def _remembered(resource: Resource[Generic], found: Generic) -> int:
    text = found.metadata.annotations.get(names.RELEASED_REPLICAS)
    what = f"{resource.kind.lower()}/{found.metadata.name}"
    if text is None:
        raise BadInput(
            f"{what} has 0 replicas, was not released by its idle threshold, and has no GpuScaler: say how "
            f"many it should have: cotenant wake {what} --replicas 1"
        )
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= MOST and len(text) < 6):
        raise BadInput(
            f"annotation {names.RELEASED_REPLICAS} of {what}: {text[:40]!a} is not a number of replicas: "
            f"cotenant wake {what} --replicas 1"
        )
    return int(text)

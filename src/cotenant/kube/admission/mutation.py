"""Changes a GPU pod at admission. It is pure and idempotent: a second call changes nothing.

Afterwards the pod requests everything that the rest needs: each container that uses a slot requests one, and
the container that holds the slot requests, in native resources, what the slot is charged. So Kubernetes' own
sums (quotas, a node's allocatable) equal the pod's charge exactly, in every dialect.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cotenant.core.errors import BadInput
from cotenant.dialects import names
from cotenant.dialects.binding import environment, largest_annotations
from cotenant.dialects.dialect import ContainerDemand, Env, SlotDemand
from cotenant.dialects.quantity import format_whole, parse_whole, show
from cotenant.dialects.registry import Dialects
from cotenant.dialects.wishes import read_wishes
from cotenant.hardware.enforcers.shim import IN_CONTAINER, PRELOAD_FILE
from cotenant.kube.admission.compute import compute_environment, compute_warnings
from cotenant.kube.admission.doubts import check_meaning
from cotenant.kube.admission.json_patch import json_patch
from cotenant.kube.admission.settings import AdmissionSettings
from cotenant.kube.admission.slot_claims import check_slot_claims
from cotenant.kube.api.patches import Operation
from cotenant.kube.pods.annotation_size import RESERVE_AT_ADMISSION, overflow, size_of
from cotenant.kube.pods.pod_json import LISTS, annotations_of, as_list, as_object, containers_of, labels_of
from cotenant.kube.pods.slots import MOST_IN_ALL, PodDemand, slots_of_pod

_NO_CARDS = Env(names.VISIBLE_DEVICES, value="void")
"""For a GPU pod's other containers: many images set `all`, and a runtime class applies to the whole pod."""


_OURS = (str(PRELOAD_FILE), str(IN_CONTAINER))
"""What the device plugin mounts into a container."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """The result of admission."""

    pod: dict[str, Any]
    patch: list[Operation]
    """Turns the pod that came into `pod`; empty if nothing changes."""
    demand: PodDemand
    warnings: tuple[str, ...] = ()
    """Shown to the person who creates the pod."""


def mutate(pod: Mapping[str, Any], admission: AdmissionSettings, dialects: Dialects) -> Mutation:
    """Raises BadInput if the pod must be refused; its message is for the person who creates the pod."""
    annotations = annotations_of(pod)
    _check_arriving(annotations)
    containers = containers_of(pod)
    demand = slots_of_pod(containers, annotations, dialects)
    result = dict(pod)
    if not demand.slots:
        _strip(result, [key for key in annotations if names.only_server_writes(key)])
        return Mutation(result, list(json_patch(pod, result)), demand)
    if len(containers) > MOST_IN_ALL:
        raise BadInput(
            f"spec: {len(containers)} containers: a pod that requests a GPU has at most {MOST_IN_ALL}: "
            "put them in several pods"
        )
    wishes = read_wishes(annotations)
    check_slot_claims(demand, wishes, dialects)
    doubts = check_meaning(containers, annotations, labels_of(pod), demand, dialects)
    spec = _child(result, "spec")
    _check_unplaced(spec)
    _strip(result, [key for key in annotations if dialects.only_server_writes(key)])
    bodies = {body["name"]: body for kind in LISTS for body in _bodies(spec, kind)}
    unheld: list[str] = []
    for slot in demand.slots:
        for member in slot.members:
            body = bodies.pop(member.container)
            unheld += compute_warnings(body, slot)
            _equip(body, slot, member, dialects)
        _count_cards(result, slot, wishes.counts.get(slot.container, 1))
    for body in bodies.values():
        _set_env(body, (_NO_CARDS,))
    if admission.runtime_class and not spec.get("runtimeClassName"):
        spec["runtimeClassName"] = admission.runtime_class
    warnings = (*_set_scheduler(spec, admission), *doubts, *unheld)
    _check_size(annotations_of(result), demand, dialects)
    return Mutation(result, list(json_patch(pod, result)), demand, warnings)


def _check_size(annotations: Mapping[str, str], demand: PodDemand, dialects: Dialects) -> None:
    """Refuses annotations that leave no room for the grant: it could not be written at bind."""
    granted = largest_annotations(demand.slots, dialects)
    excess = overflow(size_of({**annotations, **granted}), RESERVE_AT_ADMISSION)
    if excess:
        raise BadInput(
            f"metadata.annotations: with those that Cotenant adds when the pod is bound, {excess}: remove or "
            "shorten some"
        )


def _check_arriving(annotations: Mapping[str, str]) -> None:
    """Refuses what Kubernetes will refuse: it measures after webhooks, and reading it all would take long."""
    excess = overflow(size_of(annotations), 0)
    if excess:
        raise BadInput(f"metadata.annotations: {excess}: remove or shorten some")


def _check_unplaced(spec: Mapping[str, Any]) -> None:
    if spec.get("nodeName"):
        raise BadInput(
            f"spec.nodeName: {show(spec['nodeName'])}: a pod that requests a GPU is placed by the scheduler, "
            "which knows what the GPUs have free: leave it out, and choose nodes by nodeSelector or affinity"
        )


def _strip(pod: dict[str, Any], keys: list[str]) -> None:
    if keys:
        annotations = _child(_child(pod, "metadata"), "annotations")
        for key in keys:
            del annotations[key]


def _equip(body: dict[str, Any], slot: SlotDemand, member: ContainerDemand, dialects: Dialects) -> None:
    _check_mounts(body)
    demand = slot.demand if member is slot.members[-1] else member.demand
    _ask(body, {**dialects.native.write(demand), names.GPU_SLOT: 1})
    _set_env(body, (*environment(slot, member, dialects), *compute_environment(body, slot)))


def _check_mounts(body: Mapping[str, Any]) -> None:
    """Refuses volumes at our paths: the kubelet mounts them over a device's, which hides the limit."""
    where = f"container {body['name']!r}: volumeMounts"
    for mount in as_list(body.get("volumeMounts"), where):
        path = as_object(mount, where).get("mountPath")
        if isinstance(path, str) and _hides(posixpath.normpath(f"/{path}")):
            raise BadInput(
                f"{where}: {show(path)}: Cotenant mounts the container's limit there: choose another path"
            )


def _hides(path: str) -> bool:
    path = "/" + path.lstrip("/")
    path = path.removeprefix("/var") if path.startswith("/var/run/") else path
    return any(path == ours or path.startswith(f"{ours}/") for ours in _OURS)


def _ask(body: dict[str, Any], amounts: Mapping[str, int]) -> None:
    """Writes an amount only where it differs: `4Gi` and `4294967296` are equal."""
    resources = _child(body, "resources")
    for kind in ("limits", "requests"):
        asked = _child(resources, kind)
        for name, amount in amounts.items():
            if name not in asked or parse_whole(asked[name], name, "1") != amount:
                asked[name] = format_whole(amount) if name == names.GPU_MEMORY else str(amount)


def _count_cards(pod: dict[str, Any], slot: SlotDemand, wished: int) -> None:
    """Spreads the holder's memory over as many GPUs as the slot's: it is the same memory."""
    if slot.demand.memory is not None and slot.demand.gpus != wished:
        annotations = _child(_child(pod, "metadata"), "annotations")
        annotations[names.gpu_count(slot.container)] = str(slot.demand.gpus)


def _set_env(body: dict[str, Any], variables: tuple[Env, ...]) -> None:
    """Replaces variables of the same name, and puts ours first, so that others may refer to them."""
    where = f"container {body['name']!r}: env"
    present = [as_object(each, where) for each in as_list(body.get("env"), where)]
    ours = [_env_json(variable) for variable in variables]
    own = [variable.name for variable in variables]
    there = [each for each in present if each.get("name") in own]
    if len(there) != len(ours) or any(each not in there for each in ours):
        body["env"] = [*ours, *(each for each in present if each.get("name") not in own)]


def _env_json(variable: Env) -> dict[str, Any]:
    if variable.annotation is None:
        return {"name": variable.name, "value": variable.value}
    path = f"metadata.annotations['{variable.annotation}']"
    return {"name": variable.name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _set_scheduler(spec: dict[str, Any], admission: AdmissionSettings) -> tuple[str, ...]:
    name = spec.get("schedulerName") or "default-scheduler"
    if name == admission.scheduler:
        return ()
    if name in admission.replaced_schedulers:
        spec["schedulerName"] = admission.scheduler
        return ()
    warning = (
        f"spec.schedulerName: {show(name)} is kept: it must call Cotenant's extender, or the containers do "
        f"not start; Cotenant's own is {admission.scheduler!r}"
    )
    return (warning,)


def _child(parent: dict[str, Any], key: str) -> dict[str, Any]:
    """Puts a copy of the child object in its place, to be changed: the pod that came stays as it is."""
    child = dict(as_object(parent.get(key), key))
    parent[key] = child
    return child


def _bodies(spec: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Puts copies of the containers in their place."""
    if spec.get(kind):
        spec[kind] = [dict(body) for body in spec[kind]]
    return spec.get(kind) or []

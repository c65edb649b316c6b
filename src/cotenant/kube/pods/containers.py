"""The parts of a pod's JSON that decide about GPUs, taken out with care: what is not a pod is BadInput."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cotenant.core.errors import BadInput
from cotenant.kube.pods.slots import PodContainer

LISTS = ("initContainers", "containers")
"""In the order in which the kubelet starts them. Ephemeral containers cannot ask for resources."""


def containers_of(pod: Mapping[str, Any]) -> tuple[PodContainer, ...]:
    """In the order in which the kubelet starts them."""
    spec = as_object(_pod(pod).get("spec"), "spec")
    bodies = {kind: as_list(spec.get(kind), f"spec.{kind}") for kind in LISTS}
    start = {"initContainers": len(bodies["containers"]), "containers": 0}
    return tuple(
        _container(as_object(body, f"spec.{kind}[{index}]"), kind, index, start[kind] + index)
        for kind in LISTS
        for index, body in enumerate(bodies[kind])
    )


def _container(body: Mapping[str, Any], kind: str, index: int, position: int) -> PodContainer:
    name = body.get("name")
    if not isinstance(name, str) or not name:
        raise BadInput(f"spec.{kind}[{index}]: a container needs a name")
    where = f"container {name!r}: resources"
    resources = as_object(body.get("resources"), where)
    return PodContainer(
        name,
        position,
        kind == "initContainers" and body.get("restartPolicy") != "Always",
        {each: as_object(resources.get(each), f"{where}.{each}") for each in ("limits", "requests")},
    )


def annotations_of(pod: Mapping[str, Any]) -> dict[str, str]:
    """The pod's annotations; all are texts."""
    metadata = as_object(_pod(pod).get("metadata"), "metadata")
    annotations = as_object(metadata.get("annotations"), "metadata.annotations")
    for key, text in annotations.items():
        if not isinstance(text, str):
            raise BadInput(f"annotation {key}: its value must be a text: put it in quotes")
    return dict(annotations)


def _pod(value: object) -> Mapping[str, Any]:
    if value is None:
        raise BadInput("pod: there is none")
    return as_object(value, "pod")


def as_object(value: object, where: str) -> Mapping[str, Any]:
    """What Kubernetes leaves out is empty."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput(f"{where}: this must be an object")
    return value


def as_list(value: object, where: str) -> list[Any]:
    """What Kubernetes leaves out is empty."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadInput(f"{where}: this must be a list")
    return value

"""Reads containers and annotations of a pod's unchecked JSON; BadInput says what is not valid."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cotenant.core.errors import BadInput
from cotenant.dialects.quantity import show
from cotenant.dialects.wishes import LONGEST_CONTAINER
from cotenant.kube.pods.containers import PodContainer, in_start_order, pod_container

LISTS = INIT, MAIN = "initContainers", "containers"
_NAME = re.compile(rf"[a-z0-9]([-a-z0-9]{{0,{LONGEST_CONTAINER - 2}}}[a-z0-9])?")
_SHOWN = 100
"""Characters that are shown of an annotation's name."""


def containers_of(pod: Mapping[str, Any]) -> tuple[PodContainer, ...]:
    """Returns the containers in the order in which the kubelet starts them."""
    spec = as_object(_pod(pod).get("spec"), "spec")
    inits, mains = ([*enumerate(as_list(spec.get(kind), f"spec.{kind}"))] for kind in LISTS)
    return tuple(
        _container(body, f"spec.{INIT if is_init else MAIN}[{index}]", position, is_init=is_init)
        for (index, body), position, is_init in in_start_order(inits, mains)
    )


def _container(value: object, where: str, position: int, *, is_init: bool) -> PodContainer:
    body = as_object(value, where)
    name = body.get("name")
    if not isinstance(name, str) or not name:
        raise BadInput(f"{where}: a container needs a name")
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"{where}: {show(name)} is not a container's name: write it in small letters, digits and -, at "
            f"most {LONGEST_CONTAINER} of them"
        )
    field = f"container {name!r}: resources"
    resources = as_object(body.get("resources"), field)
    limits, requests = (as_object(resources.get(each), f"{field}.{each}") for each in ("limits", "requests"))
    return pod_container(name, position, body.get("restartPolicy"), limits, requests, is_init=is_init)


def annotations_of(pod: Mapping[str, Any]) -> dict[str, str]:
    """Returns the pod's annotations, all of which are strings."""
    metadata = as_object(_pod(pod).get("metadata"), "metadata")
    annotations = as_object(metadata.get("annotations"), "metadata.annotations")
    for key, text in annotations.items():
        if not isinstance(text, str):
            raise BadInput(
                f"annotation {ascii(key[:_SHOWN])[1:-1]}: its value must be a text: put it in quotes"
            )
    return dict(annotations)


def labels_of(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the pod's labels as they are."""
    return as_object(as_object(_pod(pod).get("metadata"), "metadata").get("labels"), "metadata.labels")


def _pod(value: object) -> Mapping[str, Any]:
    if value is None:
        raise BadInput("pod: it is missing")
    return as_object(value, "pod")


def as_object(value: object, where: str) -> Mapping[str, Any]:
    """Returns the value; empty if it is missing, as Kubernetes leaves out what is empty."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput(f"{where}: this must be an object")
    return value


def as_list(value: object, where: str) -> list[Any]:
    """Returns the value; empty if it is missing, as Kubernetes leaves out what is empty."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadInput(f"{where}: this must be a list")
    return value

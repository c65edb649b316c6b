"""Nodes without a kubelet: objects with a capacity and a Ready condition. 5,000 of them cost the machine nothing."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar

from .api import Api, Object, Refused

PREFIX = "hollow-"
"""The hollow kubelet looks after pods on nodes called so, and leaves others to real kubelets."""

THREADS = 8
T = TypeVar("T")
NODES = "/api/v1/nodes"
MARK = "testbed.cotenant.dev/hollow"
LABELS = {MARK: "", "kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux"}
"""With the old name of the system too, or a controller adds it to each node by a patch."""


def node(
    name: str,
    resources: Mapping[str, str] | None = None,
    *,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Object:
    """As a kubelet registers one: the API server keeps the status of a node that is created with it."""
    if not name.startswith(PREFIX):
        raise ValueError(f"{name}: hollow nodes are called {PREFIX}...")
    capacity = {
        "cpu": "64",
        "memory": "512Gi",
        "pods": "500",
        "ephemeral-storage": "1Ti",
        **(resources or {}),
    }
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Hollow",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }
    named = {"kubernetes.io/hostname": name, **LABELS, **(labels or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": named, "annotations": dict(annotations or {})},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
    }


def add(api: Api, nodes: Iterable[Object]) -> None:
    """One request a node: the control plane gives new nodes no taint that a controller would have to take off."""

    def make(each: Object) -> None:
        api.create(NODES, each)

    _at_once(make, list(nodes))


def set_capacity(api: Api, name: str, resources: Mapping[str, str]) -> None:
    """Through nodes/status, as the agent does it."""
    api.patch(
        f"{NODES}/{name}/status", {"status": {"capacity": dict(resources), "allocatable": dict(resources)}}
    )


def remove(api: Api, names: Iterable[str]) -> None:
    def drop(name: str) -> None:
        try:
            api.delete(f"{NODES}/{name}")
        except Refused as refused:
            if refused.code != 404:
                raise

    _at_once(drop, list(names))


def clear(api: Api) -> None:
    """All of them, in one request."""
    api.request("DELETE", NODES, query={"labelSelector": MARK})


def _at_once(act: Callable[[T], None], things: Sequence[T]) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(act, things))

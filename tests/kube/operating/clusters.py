"""Nodes and pods as an API server tells of them, for tests of what is pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from cotenant.core.grant import Share
from cotenant.dialects import names
from cotenant.dialects.pod_grant import PodGrant, SlotGrant, write_grant
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.nodes.gpus import VERSION, NodeCard, NodeGpus, write_gpus

GI = 2**30
MODEL = "NVIDIA A100-SXM4-80GB"
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
READY = {"type": "Ready", "status": "True"}


def card_of(node: str, index: int) -> str:
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node}/{index}')}"


def uid_of(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def node(
    name: str,
    cards: Sequence[int],
    *,
    address: str = "10.0.0.1",
    model: str = MODEL,
    dialects: Dialects | None = None,
    problems: Mapping[int, str] | None = None,
    drained: Sequence[int] = (),
    annotations: Mapping[str, str] | None = None,
    capacity: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    conditions: Sequence[Mapping[str, str]] = (READY,),
    agent: str = "",
    outside: int = 0,
    shared: bool = False,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Node:
    told = [
        NodeCard(
            card_of(name, index),
            index,
            model,
            size,
            problem=(problems or {}).get(index),
            outside=outside,
            shared=shared,
        )
        for index, size in enumerate(cards)
    ]
    shown = (dialects or Dialects()).capacity([card.gpu() for card in told])
    body = {
        "metadata": {
            "name": name,
            "uid": uid_of(name),
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": {
                names.GPUS: write_gpus(
                    NodeGpus(VERSION, tuple(told), agent=agent, resources=tuple(sorted(shown)))
                ),
                **({names.DRAINED: ",".join(card_of(name, each) for each in drained)} if drained else {}),
                **(annotations or {}),
            },
        },
        "spec": spec,
        "status": {
            "capacity": {**{key: str(amount) for key, amount in shown.items()}, **(capacity or {})},
            "allocatable": dict(allocatable or {}),
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": list(conditions),
        },
    }
    return msgspec.convert(body, Node)


def pod(
    name: str,
    memory: int = 0,
    *,
    on: str = "",
    cards: Sequence[int] = (0,),
    namespace: str = "team",
    whole: bool = False,
    asks: Mapping[str, str] | None = None,
    age: float = 10,
    priority: int = 0,
    phase: str = "",
    annotations: Mapping[str, str] | None = None,
    waits: str | None = None,
    idle: float | None = None,
    held: tuple[str, str, str] | None = None,
    uid: str = "",
    container: str = "main",
    scheduler: str = "cotenant",
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    """With `on`, a pod that holds `memory` bytes on those cards of that node, and has been `idle` for so many
    seconds; else one that waits. `held`: status, reason and message of what holds its limits.
    """
    own = uid or uid_of(f"{namespace}/{name}")
    asked = dict(asks or {})
    if not asks and (memory or whole):
        asked = {names.GPU: str(len(cards))} if whole else {names.GPU_MEMORY: str(memory)}
        asked[names.GPU_SLOT] = "1"
    notes = dict(annotations or {})
    if on and (memory or whole):
        shares = tuple(Share(card_of(on, each), memory // len(cards), whole=whole) for each in cards)
        notes.setdefault(names.GRANT, write_grant(PodGrant(own, (SlotGrant(container, shares),))))
    conditions = []
    if waits is not None:
        conditions = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": waits}
        ]
    if idle is not None:
        since = (NOW - timedelta(seconds=idle)).isoformat()
        conditions.append({"type": names.GPU_IDLE, "status": "True", "lastTransitionTime": since})
    if held is not None:
        said = dict(zip(("status", "reason", "message"), held, strict=True))
        conditions.append({"type": names.GPU_LIMIT_HELD, **said})
    body = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": own,
            "annotations": notes,
            "creationTimestamp": (NOW - timedelta(seconds=age)).isoformat(),
            **(metadata or {}),
        },
        "spec": {
            "nodeName": on,
            "schedulerName": scheduler,
            "priority": priority,
            "containers": [{"name": container, "resources": {"limits": asked, "requests": asked}}],
            **spec,
        },
        "status": {"phase": phase or ("Running" if on else "Pending"), "conditions": conditions},
    }
    return msgspec.convert(body, Pod)

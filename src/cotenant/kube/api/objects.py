"""Types of the Kubernetes objects that we read, with only the fields that we use: decoding skips the others.

Missing fields have defaults, unknown ones are ignored. The types are for reading only: an object that is
written back would lose every other field, so writes are patches or plain dicts. The Structs are not tracked
by the garbage collector (`gc=False`) and are kept in tuples instead of lists: ten thousand pods then cost
half as much to read, and no later collection scans them.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Protocol

import msgspec

Quantities = dict[str, str]
"""Quantities by resource name, as the server writes them: `4Gi`, `500m`."""

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with its zone, which servers always send; without it, times could not be compared."""


class OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class Meta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """metadata. The uid identifies an object; a name may be used again by another one."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    """Counts changes of `spec`."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: Moment | None = None
    deletion_timestamp: Moment | None = None
    deletion_grace_period_seconds: int | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    left_out: int = 0
    """Bytes of annotations that were not kept in memory; no server sends this."""


class HasMeta(Protocol):
    """An object that can be cached and watched."""

    @property
    def metadata(self) -> Meta: ...


class Condition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


def find_condition(conditions: Iterable[Condition], type: str) -> Condition | None:
    return next((each for each in conditions if each.type == type), None)


class EnvVar(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class Resources(msgspec.Struct, frozen=True, gc=False):
    requests: Quantities = {}
    limits: Quantities = {}


class Container(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    resources: Resources = Resources()
    restart_policy: str = ""
    """`Always` on an init container makes it a sidecar."""
    env: tuple[EnvVar, ...] = ()


class SchedulingGate(msgspec.Struct, frozen=True, gc=False):
    name: str = ""


class PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    """`Never`: no pod is evicted for it."""
    restart_policy: str = ""
    runtime_class_name: str = ""
    resources: Resources = Resources()
    """Of the pod as a whole: CPU, memory and huge pages only."""
    overhead: Quantities = {}
    """What its runtime class adds to every pod."""
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class Running(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    started_at: datetime | None = None


class Terminated(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    exit_code: int = 0
    reason: str = ""
    finished_at: datetime | None = None


class ContainerWaiting(msgspec.Struct, frozen=True, gc=False):
    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True, gc=False):
    """At most one is set; if none is, the container is waiting."""

    running: Running | None = None
    terminated: Terminated | None = None
    waiting: ContainerWaiting | None = None


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    state: ContainerState = ContainerState()
    ready: bool = False
    restart_count: int = 0
    container_id: str = msgspec.field(default="", name="containerID")


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str = ""
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(msgspec.Struct, frozen=True, gc=False):
    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Taint(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(msgspec.Struct, frozen=True, gc=False):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class Address(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    address: str = ""


class NodeInfo(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    kubelet_version: str = ""
    container_runtime_version: str = ""


class NodeStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    capacity: Quantities = {}
    allocatable: Quantities = {}
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[Address, ...] = ()
    node_info: NodeInfo = NodeInfo()


class Node(msgspec.Struct, frozen=True, gc=False):
    metadata: Meta = Meta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class LeaseSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class Lease(msgspec.Struct, frozen=True, gc=False):
    metadata: Meta = Meta()
    spec: LeaseSpec = LeaseSpec()


class ObjectReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class Event(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """core/v1 Event, as `kubectl describe` shows it."""

    metadata: Meta = Meta()
    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    last_timestamp: datetime | None = None
    reporting_component: str = ""

    @property
    def last_seen(self) -> float:
        """Unix time; 0 if the event has none."""
        at = self.last_timestamp or self.metadata.creation_timestamp
        return at.timestamp() if at is not None else 0.0


class Secret(msgspec.Struct, frozen=True, gc=False):
    """`data` is base64, and not in the repr: a Secret must not reach a log through a message."""

    metadata: Meta = Meta()
    data: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name})"


class WebhookClientConfig(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    ca_bundle: str = ""
    """PEM certificates, in base64."""


class MutatingWebhook(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    client_config: WebhookClientConfig = WebhookClientConfig()


class MutatingWebhookConfiguration(msgspec.Struct, frozen=True, gc=False):
    metadata: Meta = Meta()
    webhooks: tuple[MutatingWebhook, ...] = ()


class Generic(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Any object: typed metadata, all other fields as plain JSON."""

    metadata: Meta = Meta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
    data: dict[str, Any] = {}

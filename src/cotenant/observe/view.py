"""Defines the snapshot that commands draw from: GPUs, the grants on them, and who waits.

One machine and a cluster gather the same types, each from its own sources; tables and JSON are made of them
elsewhere. A value is None where its source does not know it: the API server does not report what a GPU has in
use. Sizes are bytes, shares of time percent, times seconds.

Only dataclasses: `cotenant ps` starts in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.ledger import Room, room_of
from cotenant.core.loss import Spare

NOT_REPORTED = Spare()
"""What a node has beside its GPUs where nobody says."""


@dataclass(frozen=True, slots=True)
class ShareView:
    """What one grant has of one GPU."""

    grant: str
    """Id of the grant: of a job, or the UID of a pod."""
    name: str
    """Of the job or the pod."""
    uuid: str
    memory: int
    """The limit."""
    compute: int | None = None
    """Percent; None if no compute was requested."""
    whole: bool = False
    namespace: str = ""
    """The pod's; empty on one machine."""
    index: int | None = None
    """Of the GPU; None if the GPU is gone."""
    used: int = 0
    peak: int = 0
    utilization: int | None = None
    """Percent of the GPU's time, of a container; None where it is not known."""
    idle_since: float | None = None
    """Unix time since which a pod has used none of its GPUs; None if it works, or if that is not known."""
    enforcer_asked: str = ""
    """The enforcer that was to hold the pod, as its agent reported; empty if it has not."""
    enforcer: str = ""
    """The one that holds its weakest container; empty if that was not reported."""
    limit_problem: str = ""
    """What is wrong with its limit: `NotHeld` or `OverLimit`; empty if nothing is."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class ProcessView:
    """A process on a GPU that belongs to no grant."""

    pid: int
    bytes: int | None
    """None where the driver does not report it."""
    command: str
    user: str = ""
    """Whose process it is; empty if it has ended."""


@dataclass(frozen=True, slots=True)
class GpuView:
    """A GPU or a MIG instance."""

    gpu: GPU
    """`healthy` is False also for a drained one: it takes no new grant."""
    node: str = ""
    problem: str | None = None
    """Why it is not healthy."""
    drained: bool = False
    outside: int = 0
    """Memory in use that no grant covers."""
    shares: tuple[ShareView, ...] = ()
    used: int | None = None
    """By any process."""
    used_by_grants: int | None = None
    utilization: int | None = None
    """Part of the last sampling period in which a kernel ran."""
    strangers: tuple[ProcessView, ...] = ()

    @property
    def room(self) -> Room:
        """What a new grant may take, by the ledger's own rule."""
        return room_of(self.gpu, self.shares, self.outside)

    @property
    def granted(self) -> int:
        return sum(share.memory for share in self.shares)

    @property
    def compute(self) -> int:
        """Percent that is granted; more than 100 where something is wrong."""
        return sum(share.compute or 0 for share in self.shares)

    def __str__(self) -> str:
        return f"{self.gpu} of {self.node}" if self.node else str(self.gpu)


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod, with or without GPU, on a node with GPUs or waiting for one: what it asks of a node."""

    id: str
    """Its UID."""
    name: str
    namespace: str
    cpu: int
    """Thousandths of a CPU that it requests."""
    memory: int
    """Bytes of the host's memory."""
    demands: tuple[tuple[str, Demand], ...] = ()
    """What each slot asks for, with the container that holds the slot; empty without GPU."""
    workload: str = ""
    """What it belongs to, as `cotenant recommend` writes it: `team/deployment/web`."""
    version: str = ""
    """Of the workload's template."""
    pinned: bool = False
    """Whether it was made for its node: it is of a DaemonSet, or the kubelet's own."""
    created: float | None = None
    """Unix time."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A machine with GPUs, or one whose report of its GPUs cannot be read."""

    name: str
    gpus: tuple[GpuView, ...] = ()
    """By index."""
    address: str = ""
    simulated: str | None = None
    """What its GPUs simulate; None if they are real, or if it is not known."""
    agent: str = ""
    """Version of its agent; empty on one machine."""
    enforcer: str = ""
    """The strongest that it offers."""
    mps: bool = False
    """Whether shares of compute are enforced."""
    resources: tuple[str, ...] = ()
    """Extended resources that the agent reports to Kubernetes."""
    capacity: Mapping[str, str] = field(default_factory=dict)
    """All resources of the node as Kubernetes counts them."""
    has: Spare = NOT_REPORTED
    """What it has beside its GPUs for all pods together."""
    cordoned: bool = False
    """Whether it takes no new pods."""
    pods: tuple[PodView, ...] = ()
    """All that are on it, as far as they are asked for."""
    trouble: str | None = None
    """Why its report cannot be read."""


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """What a pod or a job belongs to: all replicas of one version need about the same memory."""

    name: str
    kind: str = ""
    """Such as Deployment."""
    version: str = ""
    """Of the template that it was made from; empty where that is not known."""


@dataclass(frozen=True, slots=True)
class GrantView:
    """A job or a pod that holds GPUs; on the node itself, a container of the pod with its slot."""

    id: str
    """Of the job, or the UID of the pod."""
    name: str
    """Of the job or the pod."""
    shares: tuple[ShareView, ...]
    namespace: str = ""
    container: str = ""
    """The slot's container; empty for a job and for a whole pod."""
    slot: str = ""
    """Key of the slot on its node; empty where slots are not read one by one."""
    user: str = ""
    command: tuple[str, ...] = ()
    pid: int | None = None
    mode: str = ""
    enforcer: str = ""
    """What is really in force: `watch` as soon as a process without the shim is seen on the GPU; empty until
    something shows it.
    """
    enforcer_asked: str = ""
    """The enforcer that was to hold it: the one that was chosen or set; empty where that is not known."""
    over_bytes: int = 0
    """What its processes hold beyond the limit on its GPUs, as the driver counts it; of a container."""
    compute: str | None = None
    """What enforces its share of compute; None if it requested no compute."""
    denied: int = 0
    """Allocations beyond the limit that failed."""
    over: int = 0
    """Allocations beyond the limit that were allowed."""
    idle_seconds: float | None = None
    """Since the last kernel launch or allocation, or since its start if there was none; None where that is
    not known.
    """
    running_seconds: float | None = None
    processes: tuple[int, ...] = ()
    """Pids that hold memory, as they know themselves."""
    in_use: bool | None = None
    """Whether a process uses the slot; None where that is not read."""
    utilization: int | None = None
    """Of its GPUs' time."""
    unlimited: tuple[int, ...] = ()
    """Pids on the host of processes that use a GPU and are not held to the limit; of a container."""

    @property
    def limit(self) -> int:
        return sum(share.memory for share in self.shares)

    @property
    def used(self) -> int:
        return sum(share.used for share in self.shares)

    @property
    def peak(self) -> int:
        return sum(share.peak for share in self.shares)


@dataclass(frozen=True, slots=True)
class WaitingView:
    """A job or a pod in line."""

    id: str
    name: str
    place: int
    """1 is the first."""
    waited_seconds: float
    reason: str
    """Why it waits, as a sentence."""
    code: str = ""
    """Stable word for the reason, for scripts: `no-room`, `held`; empty on one machine."""
    namespace: str = ""
    """The pod's; empty on one machine."""
    user: str = ""
    command: tuple[str, ...] = ()
    pid: int | None = None
    demand: Mapping[str, Any] = field(default_factory=dict)
    held: tuple[str, ...] = ()
    """UUIDs of the GPUs that are held for it."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class TypicalView:
    """A demand that is likely to come, with what comes with it."""

    memory: int | None
    """Bytes in all; None for a percentage and for whole GPUs."""
    percent: str | None
    """Of each GPU, as a fraction."""
    gpus: int
    whole: bool
    models: tuple[str, ...]
    cpu: int
    """Thousandths of a CPU, of one pod."""
    host_memory: int
    """Bytes, of one pod."""
    pods: int
    """How many count; what was seen long ago counts less."""
    share: float
    """Of the GPU memory that is asked for, 0 to 1."""
    prior: bool = False
    """Whether it is assumed: it decides until pods were seen."""


@dataclass(frozen=True, slots=True)
class LearnedView:
    """What the policy `frag` judges placements by."""

    pods: int
    """Pods that were counted, each once."""
    since: float | None = None
    """Unix time since which pods that end are counted; None if only those that run are."""
    typical: tuple[TypicalView, ...] = ()
    """Those that ask for most first."""
    models: Mapping[str, int] = field(default_factory=dict)
    """Bytes of a model that are usually held by pods that name it."""
    without_gpu: int = 0
    """How many count that ask for no GPU and run on nodes with GPUs."""
    trouble: str | None = None
    """Why what was kept of ended pods is not counted."""


@dataclass(frozen=True, slots=True)
class View:
    """One machine or a cluster at one moment."""

    nodes: tuple[NodeView, ...]
    grants: tuple[GrantView, ...] = ()
    line: tuple[WaitingView, ...] = ()
    """The first in line first. Only `explain` asks for it in a cluster: elsewhere it is empty there."""
    length: int = 0
    """Of the whole line, where `line` lists a part of it: one namespace, or the first of very many."""
    left_out: int = 0
    """How many were asked for that `line` does not list, since they are too many."""
    workloads: Mapping[str, WorkloadView] = field(default_factory=dict)
    """By the id of a grant, as far as they are read."""
    pending: tuple[PodView, ...] = ()
    """Pods that need a GPU and have no node yet, as far as they are asked for."""
    others: tuple[GrantView, ...] = ()
    """Containers that use GPUs without a grant, as far as they are read: their shares have no memory."""
    learned: LearnedView | None = None
    """What placements are judged by, as far as it is read."""

    @property
    def gpus(self) -> tuple[GpuView, ...]:
        return tuple(gpu for node in self.nodes for gpu in node.gpus)


def with_utilization(view: View, busy: Mapping[str, Mapping[int, int]]) -> View:
    """Adds the share of its GPUs' time to each grant. `busy`: percent by UUID and pid, without GPUs of which
    the driver does not report it.
    """
    return replace(view, grants=tuple(replace(each, utilization=_busy(each, busy)) for each in view.grants))


def _busy(grant: GrantView, busy: Mapping[str, Mapping[int, int]]) -> int | None:
    """The mean over its GPUs."""
    reported = [busy[share.uuid] for share in grant.shares if share.uuid in busy]
    if not reported:
        return None
    total = sum(by_pid.get(pid, 0) for by_pid in reported for pid in grant.processes)
    return min(100, round(total / len(reported)))

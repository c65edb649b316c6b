"""Defines the JSON that servers and agents serve at /state, for those who write it and those who read it.

An agent is trusted with its own node only. So its state is bounded and validated as it is read: whatever one
agent sends, the reader gets a valid value or an error that names the agent, and goes on with the others.
Unknown fields are ignored and missing ones have defaults: versions may differ by one.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from cotenant.observe.view import LearnedView

LONGEST_REASON = 4096
MOST_PIDS = 64
"""Processes that a slot names."""
LARGEST_STATE = 32 * 2**20
"""Bytes of a state that a reader accepts: a server's with 100,000 pods has half as many."""

Name = Annotated[str, Meta(max_length=253)]
"""Of an object, a UID or a UUID. Kubernetes allows no longer name."""
Reason = Annotated[str, Meta(max_length=LONGEST_REASON)]
Bytes = Annotated[int, Meta(ge=0, le=2**63 - 1)]
ByGpu = Annotated[dict[Name, Bytes], Meta(max_length=64)]
"""Bytes by UUID."""


class SlotState(msgspec.Struct, frozen=True):
    """A container's slot on a node."""

    device: Name = ""
    uid: Name = ""
    """The pod's UID."""
    namespace: Name = ""
    pod: Name = ""
    container: Name = ""
    mode: Name = ""
    limits: ByGpu = {}
    used: ByGpu = {}
    held: bool = False
    """Whether a process uses it."""
    unlimited: Annotated[tuple[Annotated[int, Meta(ge=0, le=2**31)], ...], Meta(max_length=MOST_PIDS)] = ()
    """Pids on the host of processes that use a GPU and are not held to the limit."""
    enforcer_asked: Name = ""
    enforcer: Name = ""
    """What holds it; empty while that is unknown."""
    over: Bytes = 0
    """What its processes hold beyond the limit."""

    @property
    def holder(self) -> str:
        return f"{self.namespace}/{self.pod}/{self.container}"


class GpuState(msgspec.Struct, frozen=True):
    """A GPU as the driver reports it."""

    uuid: Name = ""
    index: Annotated[int, Meta(ge=0, le=2**31)] = 0
    memory: Bytes = 0
    used: Bytes = 0
    problem: Reason | None = None


class AgentState(msgspec.Struct, frozen=True):
    version: Name = ""
    waits: Annotated[tuple[Reason, ...], Meta(max_length=64)] = ()
    """What it is not ready for."""
    slots: Annotated[tuple[SlotState, ...], Meta(max_length=100_000)] = ()
    kubelet: (
        Annotated[
            dict[Name, Annotated[tuple[Annotated[str, Meta(max_length=1024)], ...], Meta(max_length=64)]],
            Meta(max_length=100_000),
        ]
        | None
    ) = None
    """`namespace/pod/container` by device, as the kubelet has them on record; None if it does not answer."""
    cards: Annotated[tuple[GpuState, ...], Meta(max_length=1024)] = ()
    enforcer: Name = ""
    """The strongest of memory that the node offers."""


class Charge(msgspec.Struct, frozen=True):
    """What a pod holds on the GPUs of its node."""

    node: str = ""
    gpus: dict[str, int] = {}
    """Bytes by UUID."""


class Hold(msgspec.Struct, frozen=True):
    """GPUs that are kept free for a pod in line."""

    node: str = ""
    gpus: tuple[str, ...] = ()
    """UUIDs."""


class TermState(msgspec.Struct, frozen=True):
    """The term of a server that holds the lease."""

    number: int = 0
    begun: bool = False
    """Whether all parts are ready for it: nothing is answered as leader before."""
    waits_for: Reason | None = None
    """The part that keeps it from beginning, and why."""


class ServerState(msgspec.Struct, frozen=True):
    """A server's ledger and line. Pods are named by UID: those who may know names ask the API server."""

    leads: bool = False
    charged: dict[str, Charge] = {}
    holds: dict[str, Hold] = {}
    line: tuple[str, ...] = ()
    """The first in line first."""
    term: TermState | None = None
    """None where the server does not hold the lease."""
    waits: Annotated[dict[Name, Reason], Meta(max_length=64)] = {}
    """Parts of a server that leads that are not ready, each with its reason."""
    learned: LearnedView | None = None
    """What a server that leads judges placements by."""


def encode(state: AgentState | ServerState) -> bytes:
    return msgspec.json.encode(state)

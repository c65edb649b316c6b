"""Declares what an enforcer does: it holds the processes of a slot to what was granted to them.

A slot has one enforcer for memory, which keeps the slot's files, and may have one for compute beside it.
`slot` is the slot's folder. An enforcer that needs more, such as the container's cgroup, is constructed with
the function that finds it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from cotenant.hardware.slots import Limits, Permissions


class Availability(NamedTuple):
    """Whether this node has what an enforcer needs."""

    available: bool
    reason: str
    """What was found, in words for a person."""


class Confirmation(NamedTuple):
    """Whether an enforcer holds the processes of a slot, as far as it can be seen now."""

    state: Literal["holds", "unknown", "fails"]
    """`unknown` until a process shows it; `fails` if it is known that the limit does not hold."""
    reason: str
    """What was seen, in words for a person."""
    free: frozenset[int] = frozenset()
    """Those of the processes that were seen that are not held to the limit."""
    by: str = ""
    """The enforcer that really holds it, which may be a weaker one; empty while it is unknown."""
    unrecorded: frozenset[int] = frozenset()
    """Those of the processes that were seen that the shim does not know: what they do is not recorded."""


class Mount(NamedTuple):
    container: Path
    host: Path
    read_only: bool = True


class Attachment(NamedTuple):
    """What a container must be started with to be held."""

    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = {}


class Enforcer(Protocol):
    """One way to make limits real."""

    @property
    def name(self) -> str:
        """As it is shown in tables, metrics and the pod's events."""
        ...

    @property
    def needs(self) -> str:
        """What a node must have, in words for a person."""
        ...

    def availability(self) -> Availability:
        """Checks whether this node has what it needs. Never assumed from a version: it is tried."""
        ...

    def process_environment(self, slot: Path, environ: Mapping[str, str]) -> dict[str, str]:
        """Returns the environment in which a process on this machine is held to the slot."""
        ...

    def container_attachment(self, slot: Path) -> Attachment:
        """Returns what a container must be started with. The kubelet stores it and uses it again at every
        restart: nothing in it may depend on a version, a pod or a GPU.
        """
        ...

    def prepare(self, slot: Path, limits: Limits, permissions: Permissions) -> None:
        """Makes the slot ready before its processes start. A file appears in the slot only once it is
        valid.
        """
        ...

    def confirm(self, slot: Path, seen: Collection[int] = ()) -> Confirmation:
        """Reports whether the limit holds. `seen`: the processes of the slot that the driver reports on its
        GPUs, by the pids that they know themselves by. Called while the processes run, again and again: an
        enforcer that acts on what exists only then, such as a cgroup, also acts here.
        """
        ...

    def change(self, slot: Path, sizes: Mapping[str, int]) -> None:
        """Changes the limits of running processes: bytes by GPU UUID. Other GPUs keep theirs."""
        ...

    def tear_down(self, slot: Path, *, force: bool = False) -> bool:
        """Ends the slot: no process can begin to use it. False, and nothing is changed, while one uses it.
        `force` ends it whatever holds a lock on it: the caller knows that no process of its owner lives.
        """
        ...

"""Keeps GPUs out of service while pods are moved off them, and puts them back whatever happens.

That is the annotation of `cotenant drain`, which servers respect: nothing is placed on a drained GPU, so an
evicted pod cannot return to the room that it left. A second annotation says which GPUs were drained for that,
and until when: if the command is killed, the next one puts them back. While one works, no other begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cotenant.core.errors import CotenantError
from cotenant.dialects import names
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import Conflict, KubeError, NotFound
from cotenant.kube.api.objects import Node
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import NODES
from cotenant.kube.api.timestamps import timestamp
from cotenant.kube.nodes.gpus import drained_of, write_drained
from cotenant.kube.nodes.opening_mark import mark_of, write_mark
from cotenant.kube.scheduling.moving import Cards

_ATTEMPTS = 8
_PAUSE = 0.5
"""Seconds between two attempts to put GPUs back."""


class AnotherWorks(CotenantError):
    """Another command moves pods in this cluster."""

    exit_code = 75


@dataclass
class Closing:
    """The GPUs that this command has drained."""

    client: Client
    lasts: float
    """Seconds after which another command may put them back, counted from the last change."""
    wall: Callable[[], float]
    pod: str = ""
    """UID of the pod that the room is for."""
    closed: dict[str, Cards] = field(default_factory=dict)
    """By node. What others had drained before is not among them."""

    async def clean_up(self, nodes: Sequence[Node]) -> list[str]:
        """Puts back what commands that were killed have left drained. Returns the nodes. AnotherWorks if one
        is at work.
        """
        found = [(node, mark) for node in nodes if (mark := mark_of(node)) is not None]
        for node, _ in found:
            self._check_alone(node)
        for node, mark in found:
            await self._write(node.metadata.name, frozenset(mark.cards), frozenset())
        return [node.metadata.name for node, _ in found]

    def _check_alone(self, node: Node) -> None:
        mark = mark_of(node)
        if mark is not None and not mark.is_over(self.wall()):
            until = f" until {timestamp(mark.until)} at the latest" if mark.until is not None else ""
            raise AnotherWorks(
                f"another `plan defrag --apply` moves pods off GPUs of {node.metadata.name}{until}: wait "
                f"for its end; if it was killed, kubectl annotate node {node.metadata.name} "
                f"{names.DEFRAG}- and cotenant undrain free its GPUs at once"
            )

    async def set(self, closed: Mapping[str, Cards]) -> bool:
        """Drains exactly these GPUs, by node. Returns whether any was not drained before."""
        more = any(cards - self.closed.get(node, frozenset()) for node, cards in closed.items())
        for node in sorted({*self.closed, *closed}):
            await self._write(node, self.closed.get(node, frozenset()), closed.get(node, frozenset()))
        return more

    async def end(self) -> None:
        """Puts all back. The API server may fail for a while."""
        for attempt in range(_ATTEMPTS):
            try:
                await self.set({})
            except KubeError:
                if attempt == _ATTEMPTS - 1:
                    raise
                await asyncio.sleep(_PAUSE * 2**attempt)
            else:
                return

    async def _write(self, name: str, before: Cards, after: Cards) -> None:
        """Changes a node's annotations, guarded by what was read. A node that is gone needs nothing. What
        somebody else has drained is not this command's, and stays so.
        """
        for attempt in range(_ATTEMPTS):
            try:
                node = await self.client.get(NODES, name)
            except NotFound:
                self.closed.pop(name, None)
                return
            if after and not before:
                self._check_alone(node)
            others = drained_of(node) - before
            own = after - others
            if own:
                self.closed[name] = before | own  # what may have been written is put back, too
            mark = write_mark(own, self.wall() + self.lasts, self.pod) if own else None
            changes: dict[str, Any] = {
                names.DRAINED: write_drained(sorted(others | after)),
                names.DEFRAG: mark,
            }
            try:
                patch = {"metadata": {"annotations": changes}}
                await self.client.merge_patch(NODES, name, patch, guard=Guard.of(node))
            except Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            if own:
                self.closed[name] = own
            else:
                self.closed.pop(name, None)
            return

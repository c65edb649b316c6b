"""The node's cards and capacity, written into its status and kept there.

Others write there too: the kubelet sets what it does not know to zero when it starts anew, people edit, and
the node may be deleted and come back as another. So what is wanted is compared with what is there at every
change of either, and only a difference is written. Capacity is never less than what the node's pods ask for:
the kubelet admits them anew when it restarts, and would turn away those that no longer fit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from cotenant.core.errors import BadInput
from cotenant.dialects import names
from cotenant.dialects.quantity import parse_whole
from cotenant.dialects.registry import Dialects
from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.api.backoff import Backoff
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import Conflict, KubeError, NotFound
from cotenant.kube.api.objects import Node
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import NODES
from cotenant.kube.logs import get_logger
from cotenant.kube.nodes.gpus import VERSION, GpusUnreadable, NodeCard, NodeGpus, read_gpus, write_gpus

log = get_logger(__name__)

_LONGEST_PROBLEM = 200
_CALM = 30.0
"""Seconds: who has not written for so long does not fight with anybody."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the node's status should say."""

    annotation: str
    capacity: Mapping[str, int]


def wanted(sight: Sight, dialects: Dialects, asked: Mapping[str, int], agent: str, *, mps: bool) -> Wanted:
    """`asked` is what the node's pods ask for by resource, `agent` its version. Sick cards count as capacity:
    that they take no grant is told by the annotation.
    """
    cards = tuple(
        NodeCard(
            card.gpu.uuid,
            card.gpu.index,
            card.gpu.model,
            card.gpu.memory,
            parent=card.gpu.parent,
            problem=card.problem[:_LONGEST_PROBLEM] if card.problem is not None else None,
            outside=sight.outside.get(card.gpu.uuid, 0),
        )
        for card in sight.cards
    )
    capacity = {
        name: max(amount, asked.get(name, 0))
        for name, amount in dialects.capacity([card.gpu for card in sight.cards]).items()
    }
    told = NodeGpus(VERSION, cards, agent=agent, mps=mps, resources=tuple(sorted(capacity)))
    return Wanted(write_gpus(told), capacity)


def told_before(node: Node) -> NodeGpus:
    """What an agent of this node wrote; nothing if nobody can read it."""
    try:
        return read_gpus(node.metadata.annotations.get(names.GPUS))
    except GpusUnreadable as error:
        log.warning("GPUs of the node cannot be read", node=node.metadata.name, error=error)
        return NodeGpus(VERSION, ())


def difference(node: Node, want: Wanted) -> dict[str, Any] | None:
    """The merge patch that makes the node what is wanted; None if it is so. What an agent put there and none
    wants any more (a dialect that was switched off) is removed; what others put there is left alone.

    The kubelet makes allocatable from capacity at its next report. It is set along with capacity, so that
    nobody waits for that, and never looked at.
    """
    changed: dict[str, str | None] = {
        name: str(amount)
        for name, amount in want.capacity.items()
        if _amount(node.status.capacity.get(name)) != amount
    }
    before = told_before(node).resources
    changed |= {name: None for name in before if name not in want.capacity and name in node.status.capacity}
    patch: dict[str, Any] = {}
    if node.metadata.annotations.get(names.GPUS) != want.annotation:
        patch["metadata"] = {"annotations": {names.GPUS: want.annotation}}
    if changed:
        patch["status"] = {"capacity": changed, "allocatable": changed}
    return patch or None


def _amount(text: str | None) -> int | None:
    try:
        return None if text is None else parse_whole(text, "capacity", "4Gi")
    except BadInput:
        return None


@dataclass
class Publisher:
    """`run()` keeps the node as `want` says until it is cancelled."""

    client: Client
    node: Callable[[], Node | None]
    """As the API server last showed it."""
    want: Callable[[], Wanted | None]
    """None while it is not known."""
    wrote: Callable[[Node], None] = lambda _: None
    """Called with what the API server made of it."""
    random: Random = field(default_factory=Random, repr=False)
    clock: Callable[[], float] = time.monotonic

    published: int = field(default=0, init=False)
    """How often something was written."""
    current: bool = field(default=False, init=False)
    """Whether the node is as it should be, as far as is known."""
    trouble: KubeError | None = field(default=None, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def again(self) -> None:
        """Compare soon: something has changed."""
        self._wake.set()

    async def run(self) -> None:
        """News are told at once. Only who writes the same again, because it failed or because somebody undoes
        it, takes more and more time.
        """
        backoff = Backoff(0.1, 5.0, self.random)
        last: tuple[float, Wanted | None] = (self.clock(), None)
        while True:
            await self._wake.wait()
            self._wake.clear()
            want = self.want()
            if want != last[1] or self.clock() - last[0] > _CALM:
                backoff.reset()
            try:
                if not await self.publish(want):
                    continue
            except KubeError as error:
                self._note(error)
                if not isinstance(error, NotFound):
                    self._wake.set()
            last = (self.clock(), want)
            await asyncio.sleep(backoff.next(self.trouble.retry_after if self.trouble else None))

    async def publish(self, want: Wanted | None) -> bool:
        """Whether anything had to be written."""
        node = self.node()
        if node is None or want is None:
            self.current = False
            return False
        patch = difference(node, want)
        if patch is None:
            self._note(None)
            self.current = True
            return False
        self.current = False
        made = await self.client.merge_patch(
            NODES, node.metadata.name, patch, guard=Guard(node.metadata.uid), subresource="status"
        )
        self._note(None)
        self.published += 1
        log.info("node published", node=node.metadata.name, changes=_summary(patch))
        self.wrote(made)
        self.current = True
        return True

    def _note(self, error: KubeError | None) -> None:
        """A node that has just been made anew is no trouble: its watch tells of it."""
        if isinstance(error, Conflict):
            error = None
        if error is not None and type(error) is not type(self.trouble):
            log.warning("node not published", error=error)
        self.trouble = error


def _summary(patch: Mapping[str, Any]) -> str:
    parts = ["GPUs"] if "metadata" in patch else []
    if "status" in patch:
        for name, amount in patch["status"]["capacity"].items():
            parts.append(f"{name} removed" if amount is None else f"{name}={amount}")
    return ", ".join(parts)

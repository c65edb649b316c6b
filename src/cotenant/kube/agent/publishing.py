"""Publishes the node's GPUs, capacity and condition in its status, and keeps them there.

Others write there too: the kubelet sets what it does not know to zero when it restarts, people edit, and the
node may be deleted and created again. So what is wanted is compared with what is there at every change of
either, and only a difference is written. Capacity is never less than what the node's pods request: the
kubelet admits them again when it restarts, and would reject those that no longer fit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
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
from cotenant.kube.nodes.condition import GpusCondition, condition_patch, gpus_condition
from cotenant.kube.nodes.gpus import VERSION, GpusUnreadable, NodeCard, NodeGpus, read_gpus, write_gpus

log = get_logger(__name__)

_LONGEST_PROBLEM = 200
"""Characters of a GPU's problem, in the annotation and in the condition."""
_CALM = 30.0
"""Seconds without a write after which the next one is written at once: nobody undoes ours."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the node's status should say."""

    condition: GpusCondition
    annotation: str | None = None
    """None while the driver has never answered: GPUs and capacity then stay as they are."""
    capacity: Mapping[str, int] = field(default_factory=dict)


def wanted(
    sight: Sight,
    dialects: Dialects,
    requested: Mapping[str, int],
    agent: str,
    *,
    mps: bool,
    enforcer: str = "shim",
    trouble: str | None = None,
    drained: AbstractSet[str] = frozenset(),
) -> Wanted:
    """`requested` is what the node's pods request by resource, `agent` its version, `enforcer` the strongest
    of memory that the node offers, `trouble` why the driver does not answer. Unhealthy GPUs count as
    capacity: the annotation says that they take no grant.
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
            shared=card.gpu.shared,
        )
        for card in sight.cards
    )
    condition = gpus_condition(cards, trouble, drained)
    if trouble is not None and not cards:
        return Wanted(condition)
    capacity = {
        name: max(amount, requested.get(name, 0))
        for name, amount in dialects.capacity([card.gpu for card in sight.cards]).items()
    }
    gpus = NodeGpus(
        VERSION, cards, agent=agent, enforcer=enforcer, mps=mps, resources=tuple(sorted(capacity))
    )
    return Wanted(condition, write_gpus(gpus), capacity)


def told_before(node: Node) -> NodeGpus:
    """Returns what an agent of this node wrote; no GPUs if it cannot be read."""
    try:
        return read_gpus(node.metadata.annotations.get(names.GPUS))
    except GpusUnreadable as error:
        log.warning("GPUs of the node cannot be read", node=node.metadata.name, error=error)
        return NodeGpus(VERSION, ())


def difference(node: Node, want: Wanted, now: datetime) -> dict[str, Any] | None:
    """Returns the strategic merge patch that makes the node what is wanted; None if it is. Removes what an
    agent put there and does not want any more (a dialect that was switched off). Leaves what others put
    there, and all conditions but ours.

    The kubelet computes allocatable from capacity at its next report. We set it along with capacity, so that
    nobody waits for that, and never read it.
    """
    patch: dict[str, Any] = {}
    condition = condition_patch(node, want.condition, now)
    if condition is not None:
        patch["status"] = {"conditions": [condition]}
    if want.annotation is None:
        return patch or None
    changed: dict[str, str | None] = {
        name: str(amount)
        for name, amount in want.capacity.items()
        if _amount(node.status.capacity.get(name)) != amount
    }
    before = told_before(node).resources
    changed |= {name: None for name in before if name not in want.capacity and name in node.status.capacity}
    if node.metadata.annotations.get(names.GPUS) != want.annotation:
        patch["metadata"] = {"annotations": {names.GPUS: want.annotation}}
    if changed:
        patch["status"] = patch.get("status", {}) | {"capacity": changed, "allocatable": changed}
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
    """Called with the node as the API server returns it."""
    random: Random = field(default_factory=Random, repr=False)
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], datetime] = field(default=lambda: datetime.now(UTC), repr=False)

    published: int = field(default=0, init=False)
    """How often something was written."""
    current: bool = field(default=False, init=False)
    """Whether the node reports its GPUs as they are, as far as is known."""
    trouble: KubeError | None = field(default=None, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def again(self) -> None:
        """Compares soon: something has changed."""
        self._wake.set()

    async def run(self) -> None:
        """Publishes a change at once. Only the same write again, because it failed or because somebody undid
        it, waits longer and longer.
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
        """Returns whether anything had to be written."""
        node = self.node()
        if node is None or want is None:
            self.current = False
            return False
        patch = difference(node, want, self.wall())
        known = want.annotation is not None
        if patch is None:
            self._note(None)
            self.current = known
            return False
        self.current = False
        made = await self.client.merge_patch(
            NODES,
            node.metadata.name,
            patch,
            guard=Guard(node.metadata.uid),
            subresource="status",
            strategic=True,
        )
        self._note(None)
        self.published += 1
        log.info("node published", node=node.metadata.name, changes=_summary(patch))
        self.wrote(made)
        self.current = known
        return True

    def _note(self, error: KubeError | None) -> None:
        """A node that was just created again is no trouble: its watch reports it."""
        if isinstance(error, Conflict):
            error = None
        if error is not None and type(error) is not type(self.trouble):
            log.warning("node not published", error=error)
        self.trouble = error


def _summary(patch: Mapping[str, Any]) -> str:
    parts = ["GPUs"] if "metadata" in patch else []
    status = patch.get("status", {})
    parts += [f"{each['type']}={each['status']} ({each['reason']})" for each in status.get("conditions", ())]
    for name, amount in status.get("capacity", {}).items():
        parts.append(f"{name} removed" if amount is None else f"{name}={amount}")
    return ", ".join(parts)

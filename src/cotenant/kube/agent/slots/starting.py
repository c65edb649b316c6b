"""The slot of a container that is about to start.

The kubelet calls before it creates a container, at each restart too, and tells only a device. Who that is
comes from the kubelet's own record; what it may have, from the pod as the API server has it at this moment;
whether that still fits, from the slots that live on the card, since two servers that both believe they lead
may have granted the same room. If any of it cannot be said, the container does not start.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from cotenant.core.gpu import GPU
from cotenant.core.mode import DEFAULT_MODE, Mode
from cotenant.dialects.wishes import read_mode
from cotenant.hardware.slots import CardLimit, Limits
from cotenant.kube.agent.classic.pod_resources import Holder, Holders, PodResourcesUnavailable
from cotenant.kube.agent.slots.checking import (
    Shortage,
    StartRefused,
    granted_slot,
    holder_of,
    shortages,
)
from cotenant.kube.agent.slots.installing import ensure_shim
from cotenant.kube.agent.slots.mounts import SHIM_IN_CONTAINER
from cotenant.kube.agent.slots.node_slots import NodeSlot, NodeSlots, SlotHeld, SlotOwner
from cotenant.kube.api.errors import KubeError, NotFound
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.resources import NAMESPACES, PODS, Resource
from cotenant.kube.logs import get_logger
from cotenant.kube.pods.demand import has_ended

T = TypeVar("T")
log = get_logger(__name__)

_API = 8.0
"""Seconds for a question to the API server. The kubelet gives 30 for all."""
_ENDING = 5.0
"""Seconds to wait for processes of containers before it, which may just be ending: that is sooner than the
kubelet asks again.
"""
_LOOK = 0.05
_SELDOM = 0.5


class Reader(Protocol):
    """What is read of the API server, newest state each time: kube/api/client.py."""

    async def get(
        self, resource: Resource[T], name: str, namespace: str | None = None, *, within: float | None = None
    ) -> T: ...


class Record(Protocol):
    """The kubelet's record of who holds what: pod_resources.py."""

    async def holders(self) -> Holders: ...


@dataclass
class Starting:
    """Makes slots for containers that start."""

    node: str
    api: Reader
    kubelet: Record
    slots: NodeSlots
    cards: Callable[[], Mapping[str, GPU]]
    """The cards of the node as they are now, by UUID."""
    context_bytes: Callable[[str], int]
    """What one process's context takes on the card of that UUID."""
    mode: Mode = DEFAULT_MODE
    """Where neither the pod nor its namespace says it."""
    clock: Callable[[], float] = time.monotonic
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    async def start(self, device: str) -> SlotOwner:
        """The slot stands when this returns. CotenantError, made to be read by people, if it may not."""
        holder = holder_of(device, await self.kubelet.holders())
        pod = await self._pod(holder)
        slot = granted_slot(pod, holder, self.node)
        own = read_mode(pod.metadata.annotations, f"pod {holder.pod}: annotation")
        mode = own or await self._namespace_mode(holder.namespace) or self.mode
        owner = SlotOwner(pod.metadata.uid, *holder, device, slot.shares)
        await self._make(owner, mode)
        log.info(
            "slot made",
            device=device,
            namespace=owner.namespace,
            pod=owner.pod,
            uid=owner.uid,
            container=owner.container,
            mode=mode,
        )
        return owner

    async def _pod(self, holder: Holder) -> Pod:
        try:
            return await self.api.get(PODS, holder.pod, holder.namespace, within=_API)
        except NotFound:
            raise StartRefused(f"pod {holder.namespace}/{holder.pod} is not there any more") from None
        except KubeError as error:
            raise StartRefused(
                f"the grant of pod {holder.namespace}/{holder.pod} cannot be read: {error}. It is tried again"
            ) from None

    async def _namespace_mode(self, namespace: str) -> Mode | None:
        try:
            found = await self.api.get(NAMESPACES, namespace, within=_API)
        except KubeError as error:
            raise StartRefused(
                f"the labels of namespace {namespace} cannot be read: {error}. It is tried again"
            ) from None
        return read_mode(found.metadata.labels, f"namespace {namespace}: label")

    def _limits(self, owner: SlotOwner, mode: Mode) -> Limits:
        cards = (
            CardLimit(share.uuid, share.memory, self.context_bytes(share.uuid)) for share in owner.shares
        )
        return Limits(owner.uid, mode, tuple(cards))

    async def _make(self, owner: SlotOwner, mode: Mode) -> None:
        """Waits for those who are about to leave the card or the slot, and lets others start meanwhile."""
        end, pause = self.clock() + _ENDING, _LOOK
        while (hindrance := await self._make_now(owner, mode)) is not None:
            if self.clock() > end:
                raise StartRefused(f"pod {owner.namespace}/{owner.pod}: {hindrance}. It is tried again")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _SELDOM)

    async def _make_now(self, owner: SlotOwner, mode: Mode) -> str | None:
        """None if it is made, else what stands in its way. What fits and what is made is one step: each
        container sees the slots of those before it.
        """
        async with self._lock:
            short = await self._shortages(owner)
            if short:
                return str(short[0])
            ensure_shim(self.slots.root, SHIM_IN_CONTAINER)
            try:
                self.slots.make(owner, self._limits(owner, mode))
            except SlotHeld as held:
                return str(held)
            return None

    async def _shortages(self, owner: SlotOwner) -> list[Shortage]:
        """All slots on disk count at first: that takes no question. Only where they leave no room it is asked
        which of them still live.
        """
        others = [slot for slot in self.slots.read() if slot.device != owner.device]
        short = shortages(owner.shares, self.cards(), others)
        if short:
            short = shortages(owner.shares, self.cards(), await self._living(short, others))
        return short

    async def _living(self, short: Sequence[Shortage], others: Sequence[NodeSlot]) -> list[NodeSlot]:
        """Without those whose container is no more. They are removed here and now: as long as a slot is not
        closed, a process of a container that is being killed might still begin to use it.
        """
        asked = {slot.device: slot for shortage in short for slot in shortage.others}
        try:
            holders = await self.kubelet.holders()
        except PodResourcesUnavailable:
            return list(others)
        answers = await asyncio.gather(*(has_gone(slot, holders, self.api) for slot in asked.values()))
        gone = {
            slot.device
            for slot, answer in zip(asked.values(), answers, strict=True)
            if answer and self.slots.remove(slot)
        }
        return [slot for slot in others if slot.device not in gone]


async def has_gone(slot: NodeSlot, holders: Holders, api: Reader) -> bool:
    """Whether the slot's container is no more, by everybody's word: nobody lives in the slot, and its pod has
    ended or is gone. A kubelet that has just started lists no container at all, so its silence alone proves
    nothing. Where somebody cannot be asked, it lives.
    """
    if slot.is_held():
        return False
    owner = slot.owner
    listed = Holder(owner.namespace, owner.pod, owner.container) in holders.get(slot.device, ())
    try:
        pod = await api.get(PODS, owner.pod, owner.namespace, within=_API)
    except NotFound:
        return not listed
    except (KubeError, ValueError):
        return False
    return pod.metadata.uid != owner.uid or has_ended(pod)

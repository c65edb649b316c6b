"""Creates the slot of a container that is about to start.

The kubelet calls before it creates a container, also at each restart, and names only a device. Which
container that is comes from the kubelet's own record (pod-resources); what it may have, from the pod as it
is in the API server at this moment; whether that still fits, from the slots on the GPU, since two servers
that both believe they lead may have granted the same memory. If any of it is not known, the container does
not start.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol

from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.core.mode import DEFAULT_MODE, Mode
from cotenant.dialects.pod_grant import SlotGrant
from cotenant.dialects.wishes import read_mode
from cotenant.hardware import slots as slot_files
from cotenant.kube.agent.cards.cgroups import Owner, owners_on_node
from cotenant.kube.agent.classic.pod_resources import Holder, Holders, PodResourcesUnavailable
from cotenant.kube.agent.grants import container_ids
from cotenant.kube.agent.slots.checking import (
    Shortage,
    StartRefused,
    check_shown,
    granted_slot,
    holder_of,
    is_containers,
    shortages,
)
from cotenant.kube.agent.slots.leaving import WITHIN, Leaving, Reader
from cotenant.kube.agent.slots.node_slots import NodeSlot, NodeSlots, SlotHeld
from cotenant.kube.agent.slots.owner import SlotOwner
from cotenant.kube.api.errors import KubeError, NotFound
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.resources import NAMESPACES, PODS
from cotenant.kube.logs import get_logger

log = get_logger(__name__)

_ENDING = 5.0
"""Seconds to wait for processes of earlier containers, which may be terminating: the kubelet would try again
only later.
"""
_LOOK = 0.05
_SELDOM = 0.5


class Record(Protocol):
    """The kubelet's record of which container holds which device: classic/pod_resources.py."""

    async def holders(self) -> Holders: ...


@dataclass
class Starting:
    """Creates slots for containers that start."""

    node: str
    api: Reader
    kubelet: Record
    slots: NodeSlots
    cards: Callable[[], Mapping[str, GPU]]
    """The GPUs of the node as they are now, by UUID."""
    context_bytes: Callable[[str], int]
    """Size of one process's CUDA context on the GPU of that UUID."""
    mode: Mode = DEFAULT_MODE
    """Applies where neither the pod nor its namespace sets one."""
    clock: Callable[[], float] = time.monotonic
    living: Callable[[], AbstractSet[Owner]] = owners_on_node
    """The containers of pods that have a process on this node."""
    started: Callable[[str], None] = lambda _: None
    """Called with the device once its slot is there: its container starts now."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    @property
    def _leaving(self) -> Leaving:
        return Leaving(self.slots, self.api, self.living)

    async def start(self, device: str) -> SlotOwner:
        """Creates the slot of the container that holds the device. Raises CotenantError, worded for an event
        of the pod, if it may not start.
        """
        holder = holder_of(device, await self.kubelet.holders())
        pod = await self._pod(holder)
        slot = granted_slot(pod, holder, self.node)
        check_shown(pod, slot, self.cards())
        own = read_mode(pod.metadata.annotations, f"pod {holder.pod}: annotation")
        mode = own or await self._namespace_mode(holder.namespace) or self.mode
        owner = SlotOwner(pod.metadata.uid, *holder)
        await self._make(device, owner, slot.shares, mode, _earlier_containers(pod, slot))
        log.info(
            "slot made",
            device=device,
            namespace=owner.namespace,
            pod=owner.name,
            uid=owner.uid,
            container=owner.container,
            mode=mode,
        )
        self.started(device)
        return owner

    async def _pod(self, holder: Holder) -> Pod:
        try:
            return await self.api.get(PODS, holder.pod, holder.namespace, within=WITHIN)
        except NotFound:
            raise StartRefused(f"pod {holder.namespace}/{holder.pod} does not exist any more") from None
        except KubeError as error:
            raise StartRefused(
                f"the grant of pod {holder.namespace}/{holder.pod} cannot be read: {error}. "
                "The kubelet will try again"
            ) from None

    async def _namespace_mode(self, namespace: str) -> Mode | None:
        try:
            found = await self.api.get(NAMESPACES, namespace, within=WITHIN)
        except KubeError as error:
            raise StartRefused(
                f"the labels of namespace {namespace} cannot be read: {error}. The kubelet will try again"
            ) from None
        return read_mode(found.metadata.labels, f"namespace {namespace}: label")

    async def _make(
        self, key: str, owner: SlotOwner, shares: Sequence[Share], mode: Mode, earlier: Collection[str] | None
    ) -> None:
        """Waits for containers that are about to leave the GPU or the slot. Others may start meanwhile.
        `earlier` are the IDs of the containers that had the slot before, None if they are not known.
        """
        end, pause = self.clock() + _ENDING, _LOOK
        while (obstacle := await self._make_now(key, owner, shares, mode, earlier)) is not None:
            if self.clock() > end:
                raise StartRefused(
                    f"pod {owner.namespace}/{owner.name}: {obstacle}. The kubelet will try again"
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, _SELDOM)

    async def _make_now(
        self, key: str, owner: SlotOwner, shares: Sequence[Share], mode: Mode, earlier: Collection[str] | None
    ) -> str | None:
        """Returns None once the slot is created, else the obstacle. To check the room and to create the slot
        is one step: each container sees the slots of those before it.
        """
        async with self._lock:
            present = self.slots.read()
            if (left := await self._leave_earlier(present, key, owner, earlier)) is not None:
                return f"{left.key}: processes of {left.owner} still use it"
            others = [slot for slot in present if slot.key != key and slot.owner != owner]
            short = await self._shortages(shares, others)
            if short:
                return str(short[0])
            limits = slot_files.limits_of(owner.uid, mode, shares, self.context_bytes)
            try:
                self.slots.make(key, owner, shares, limits)
            except SlotHeld as held:
                return str(held)
            return None

    async def _leave_earlier(
        self, present: Iterable[NodeSlot], key: str, owner: SlotOwner, earlier: Collection[str] | None
    ) -> NodeSlot | None:
        """Removes the slots that this one replaces: the last one of this key, if something has a lock on it,
        and this container's own of another key. The kubelet names one slot for a container: it has lost its
        record, and gave another than before. Returns one that is in use.
        """
        for slot in present:
            if slot.owner == owner or (slot.key == key and is_containers(slot)):
                own = earlier if slot.owner.uid == owner.uid else None
                free = slot.key == key and not slot.is_held()
                if not free and not await self._leaving.remove_unused(slot, own):
                    return slot
        return None

    async def _shortages(self, shares: Sequence[Share], others: Sequence[NodeSlot]) -> list[Shortage]:
        """Counts all slots on disk first, which needs no request. Only where they leave no room, it asks
        which of their containers still exist.
        """
        short = shortages(shares, self.cards(), others)
        if short:
            short = shortages(shares, self.cards(), await self._existing(short, others))
        return short

    async def _existing(self, short: Sequence[Shortage], others: Sequence[NodeSlot]) -> list[NodeSlot]:
        """Leaves out slots whose container is gone. They are removed at once: while a slot is not closed, a
        process of a container that is being killed might still begin to use it.
        """
        asked = {slot.key: slot for shortage in short for slot in shortage.others}
        try:
            holders = await self.kubelet.holders()
        except PodResourcesUnavailable:
            return list(others)
        gone = {slot.key for slot in await self._leaving.remove_gone([*asked.values()], holders)}
        return [slot for slot in others if slot.key not in gone]


def _earlier_containers(pod: Pod, slot: SlotGrant) -> frozenset[str] | None:
    """Returns the IDs of the containers that used this slot last; None while one that ran has none yet. The
    pod's other containers, whose processes live on, have no right to the slot.
    """
    ids = container_ids([pod])
    found = [ids.get((pod.metadata.uid, name), "") for name in (slot.container, *slot.init)]
    return frozenset(id for id in found if id) if found[0] else None

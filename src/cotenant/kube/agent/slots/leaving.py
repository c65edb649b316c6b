"""Decides whether a slot's container has gone, and removes its slot.

A slot is in use while a process has a lock on its `usage`. The lock belongs to a descriptor, and a descriptor
can be passed on: a process of another pod could keep the slot of a pod that is gone, and with it the room on
the GPU. So a lock counts only while a process of the slot's own pod lives, as its cgroup shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cotenant.kube.agent.cards.cgroups import Owner, owners_on_node
from cotenant.kube.agent.classic.pod_resources import Holders
from cotenant.kube.agent.slots.checking import is_containers, is_listed
from cotenant.kube.agent.slots.node_slots import NodeSlot, NodeSlots
from cotenant.kube.api.errors import KubeError, NotFound
from cotenant.kube.api.resources import PODS, Resource
from cotenant.kube.logs import get_logger
from cotenant.kube.pods.demand import has_ended

T = TypeVar("T")
log = get_logger(__name__)

WITHIN = 8.0
"""Seconds for a request to the API server. The kubelet allows 30 for everything."""


class Reader(Protocol):
    """Reads the API server, without a cache: kube/api/client.py."""

    async def get(
        self, resource: Resource[T], name: str, namespace: str | None = None, *, within: float | None = None
    ) -> T: ...


def may_use(slot: NodeSlot, living: AbstractSet[Owner], containers: Iterable[str] | None = None) -> bool:
    """Whether a process lives that may rightly have a lock on the slot: one of its pod, or of these
    containers of the pod, by ID. `living`: the containers with a process on the node. If there are none, the
    processes of others are not visible here, and every lock counts.
    """
    if not living:
        return True
    of_pod = [owner for owner in living if owner.uid == slot.owner.uid]
    if containers is None:
        return bool(of_pod)
    return any(owner.is_container(id) for owner in of_pod for id in containers)


@dataclass
class Leaving:
    """Removes slots whose containers have gone."""

    slots: NodeSlots
    api: Reader
    living: Callable[[], AbstractSet[Owner]] = owners_on_node
    """The containers of pods that have a process on this node."""

    async def remove_gone(self, suspects: Sequence[NodeSlot], holders: Holders) -> list[NodeSlot]:
        """Removes those whose container no longer exists: no process of it uses the slot, and its pod has
        ended or is gone. Returns them.
        """
        own = [slot for slot in suspects if is_containers(slot)]
        living = await self._living(own)
        unused = [slot for slot in own if not slot.is_held() or not may_use(slot, living)]
        answers = await asyncio.gather(*(self._has_gone(slot, holders) for slot in unused))
        gone = (slot for slot, answer in zip(unused, answers, strict=True) if answer)
        return [slot for slot in gone if self._remove(slot, living)]

    async def remove_unused(self, slot: NodeSlot, containers: Iterable[str] | None = None) -> bool:
        """Removes a slot that is replaced, unless a process of its pod, or of these containers of it, uses
        it; returns whether it did.
        """
        return self._remove(slot, await self._living([slot]), containers)

    async def _living(self, slots: Iterable[NodeSlot]) -> AbstractSet[Owner]:
        """Looks at all processes of the node, once, and only if one of the slots is in use."""
        if not any(slot.is_held() for slot in slots):
            return frozenset()
        return await asyncio.to_thread(self.living)

    async def _has_gone(self, slot: NodeSlot, holders: Holders) -> bool:
        """A kubelet that has just started lists no container at all, so what it does not list proves nothing
        alone. While the API server does not answer, the container counts as existing.
        """
        owner = slot.owner
        try:
            pod = await self.api.get(PODS, owner.name, owner.namespace, within=WITHIN)
        except NotFound:
            return not is_listed(slot, holders)
        except (KubeError, ValueError):
            return False
        return pod.metadata.uid != owner.uid or has_ended(pod)

    def _remove(
        self, slot: NodeSlot, living: AbstractSet[Owner], containers: Iterable[str] | None = None
    ) -> bool:
        """Checks again that the owner is the same, and that nothing uses the slot that may."""
        if self.slots.remove(slot):
            return True
        if may_use(slot, living, containers) or not self.slots.remove(slot, force=True):
            return False
        log.warning(
            "slot removed: a lock on it is held by a process of another pod",
            device=slot.key,
            namespace=slot.owner.namespace,
            pod=slot.owner.name,
            uid=slot.owner.uid,
        )
        return True

"""Reads the activity of a pod's containers from their slots, and from what the driver sees on their GPUs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cotenant.dialects.pod_grant import SlotGrant
from cotenant.hardware import slots as slot_files
from cotenant.hardware.slots import SlotUnusable
from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.agent.grants import container_ids
from cotenant.kube.agent.idle.open_slots import OpenSlots
from cotenant.kube.agent.idle.verdict import SECOND, Activity
from cotenant.kube.agent.node_pods import PodsNow
from cotenant.kube.agent.slots.checking import is_containers
from cotenant.kube.agent.slots.node_slots import NodeSlot, NodeSlots
from cotenant.kube.api.objects import ContainerStatus, Pod

_SEE_LAUNCHES = frozenset({"shim", "driver"})
"""The enforcers that have the shim in front, which records activity."""
_LONGEST = 200
"""Characters of what is wrong with a slot."""


@dataclass
class ActivityReader:
    """`read()` is for a thread: it reads the files of every slot."""

    slots: NodeSlots
    since: int
    """When this agent began, in CLOCK_MONOTONIC nanoseconds: before that, nothing is known of a slot that an
    older version created.
    """
    took: float = field(default=0.0, init=False)
    """Seconds of CPU time of the last reading."""
    _missing: frozenset[tuple[str, str]] = field(default=frozenset(), init=False)
    _files: OpenSlots = field(default_factory=OpenSlots, init=False)

    def read(
        self, pods: PodsNow, sight: Sight, unlimited: Mapping[str, frozenset[int]]
    ) -> dict[str, tuple[Activity, ...]]:
        """Returns the activities by pod UID, of pods that run and have a grant. One that is being deleted is
        left out: it ends anyway. So is one whose slot was not found for the first time: it may be replaced
        right now. `unlimited`: processes without the shim, by slot.
        """
        began = time.thread_time()
        try:
            return self._read(pods, sight, unlimited)
        finally:
            self.took = time.thread_time() - began

    def _read(
        self, pods: PodsNow, sight: Sight, unlimited: Mapping[str, frozenset[int]]
    ) -> dict[str, tuple[Activity, ...]]:
        if not pods.running:
            return {}
        by_owner = {
            (slot.owner.uid, slot.owner.container): slot for slot in self.slots.known() if is_containers(slot)
        }
        found: dict[str, tuple[Activity, ...]] = {}
        missing: set[tuple[str, str]] = set()
        for pod, grant in pods.running:
            uid = pod.metadata.uid
            gone = [
                (uid, slot.container)
                for slot in grant.slots
                if (uid, slot.container) not in by_owner and _has_started(pod, slot)
            ]
            missing.update(gone)
            if self._missing.issuperset(gone):
                found[uid] = tuple(
                    [self._activity(pod, slot, by_owner, sight, unlimited) for slot in grant.slots]
                )
        self._missing = frozenset(missing)
        self._files.keep(by_owner.values())
        return found

    def _activity(
        self,
        pod: Pod,
        granted: SlotGrant,
        by_owner: Mapping[tuple[str, str], NodeSlot],
        sight: Sight,
        unlimited: Mapping[str, frozenset[int]],
    ) -> Activity:
        name = granted.container
        slot = by_owner.get((pod.metadata.uid, name))
        if slot is None:
            if _has_started(pod, granted):
                return Activity(name, unseen="its slot on the node is gone")
            return Activity(name, starting="has not started")
        try:
            found, made = self._files.read(slot)
        except SlotUnusable as error:
            return Activity(name, unseen=str(error)[:_LONGEST])
        last = max(found.last, made or self.since)
        if found.last_launch == 0 and _runs_unready(pod, name):
            return Activity(name, last, starting="is loading: it is not ready and has launched no kernel")
        if _is_busy(slot, sight):
            seen = round(sight.at * SECOND)
            if seen > last and _runs_kernel(slot, sight, _ids(pod, granted)):
                slot_files.note_kernel(slot.folder, seen)  # so that the next agent knows it
                return Activity(name, seen, used=True)
        return Activity(name, last, used=found.last > 0, unseen=self._unseen(slot, unlimited))

    def _unseen(self, slot: NodeSlot, unlimited: Mapping[str, frozenset[int]]) -> str | None:
        enforcer = self.slots.enforcer.name
        if enforcer not in _SEE_LAUNCHES:
            return f"kernel launches are not recorded under the enforcer {enforcer!r}"
        if unlimited.get(slot.key):
            return "its program uses the GPU without the shim, so its kernel launches are not recorded"
        return None


def _is_busy(slot: NodeSlot, sight: Sight) -> bool:
    """Whether the driver saw a kernel of anybody on a GPU of the slot: at rest, nothing more is asked."""
    return any(sight.busy.get(card.uuid) for card in slot.limits.cards)


def _runs_kernel(slot: NodeSlot, sight: Sight, ids: Sequence[str]) -> bool:
    """Whether the driver saw a kernel of these containers on a GPU of the slot. It does not report that
    everywhere.
    """
    return any(
        percent > 0 and owner.uid == slot.owner.uid and any(owner.is_container(id) for id in ids)
        for card in slot.limits.cards
        for owner, percent in sight.busy.get(card.uuid, {}).items()
    )


def _ids(pod: Pod, granted: SlotGrant) -> list[str]:
    """Returns the IDs of the containers that use the slot."""
    known = container_ids([pod])
    return [id for name in (granted.container, *granted.init) if (id := known.get((pod.metadata.uid, name)))]


def _runs_unready(pod: Pod, container: str) -> bool:
    status = _status(pod, container)
    return not status.ready and status.state.running is not None


def _has_started(pod: Pod, granted: SlotGrant) -> bool:
    return bool(_status(pod, granted.container).container_id)


def _status(pod: Pod, container: str) -> ContainerStatus:
    for statuses in (pod.status.container_statuses, pod.status.init_container_statuses):
        for each in statuses:
            if each.name == container:
                return each
    return ContainerStatus(container)

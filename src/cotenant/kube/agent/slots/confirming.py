"""Finds processes of containers that use a GPU without being held to their limit.

The loader goes on without the shim where it cannot read /etc/ld.so.preload or the library, as under SELinux
with a label that containers may not read; a static program does not load it at all. Such a process has no
entry in its slot, and the driver reports it. What two looks find is reported: a process that has just begun,
or has just ended, shows in one of them only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cotenant.dialects.pod_grant import PodGrant
from cotenant.hardware.enforcers.enforcer import Confirmation
from cotenant.kube.agent.cards.survey import PodProcess, Sight
from cotenant.kube.agent.slots.node_slots import NodeSlot, NodeSlots


def processes_of(
    slot: NodeSlot, sight: Sight, grants: Mapping[str, PodGrant], ids: Mapping[tuple[str, str], str]
) -> dict[int, PodProcess]:
    """Returns the slot's processes on its GPUs, by pid on the host. `ids` are container IDs by pod UID and
    container. A process whose container is not known yet counts as the slot's if its pod has no other.
    """
    uid = slot.owner.uid
    grant = grants.get(uid)
    granted = grant.slot_of(slot.owner.container) if grant is not None else None
    members = (granted.container, *granted.init) if granted is not None else (slot.owner.container,)
    own = [id for name in members if (id := ids.get((uid, name)))]
    alone = grant is None or len(grant.slots) == 1
    others = [id for (of, name), id in ids.items() if of == uid and name not in members and id]

    def is_own(process: PodProcess) -> bool:
        if process.owner.uid != uid:
            return False
        if any(process.owner.is_container(id) for id in own):
            return True
        return alone and not any(process.owner.is_container(id) for id in others)

    on_cards = (sight.processes.get(card.uuid, ()) for card in slot.limits.cards)
    return {process.pid: process for seen in on_cards for process in seen if is_own(process)}


@dataclass
class Confirming:
    """Remembers what the last look found."""

    slots: NodeSlots
    unlimited: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """By slot: the processes, by pid on the host, that two looks found without the limit."""
    _last: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def look(
        self, sight: Sight, grants: Mapping[str, PodGrant], ids: Mapping[tuple[str, str], str]
    ) -> list[tuple[NodeSlot, Confirmation]]:
        """Compares the slots with what the driver reports; returns those whose limit does not hold."""
        now: dict[str, frozenset[int]] = {}
        failing = []
        for slot in self.slots.read():
            seen = processes_of(slot, sight, grants, ids)
            if not seen:
                continue
            found = self.slots.enforcer.confirm(slot.folder, {each.own_pid for each in seen.values()})
            now[slot.key] = frozenset(pid for pid, each in seen.items() if each.own_pid in found.free)
            if now[slot.key] & self._last.get(slot.key, frozenset()):
                failing.append((slot, found))
        confirmed = {key: pids & self._last.get(key, frozenset()) for key, pids in now.items()}
        self.unlimited = {key: pids for key, pids in confirmed.items() if pids}
        self._last = now
        return failing

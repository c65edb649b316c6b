"""Finds processes of containers that use a GPU without being held to their limit.

The loader goes on without the shim where it cannot read /etc/ld.so.preload or the library, as under SELinux
with a label that containers may not read; a static program does not load it at all. Such a process has no
entry in its slot, and the driver reports it. What two looks find is reported: a process that has just begun,
or has just ended, shows in one of them only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cotenant.dialects.pod_grant import PodGrant
from cotenant.hardware.enforcers.enforcer import Confirmation
from cotenant.kube.agent.cards.survey import PodProcess, Sight
from cotenant.kube.agent.node_pods import PodsNow
from cotenant.kube.agent.slots.node_slots import NodeSlot, NodeSlots

_IN_PROCESSES = "shim"
"""The enforcer that each process of a container loads."""
_BELIEVED = 300.0
"""Seconds after which a slot is confirmed anew although nothing about it has changed."""
_ON_CGROUPS = "driver"
"""The enforcer that holds a container before it uses a GPU."""


class Finding(NamedTuple):
    """What was last seen of one slot."""

    slot: NodeSlot
    by: str
    """The enforcer that holds its processes; empty while nothing has shown it."""
    reason: str
    processes: Mapping[str, Sequence[PodProcess]]
    """Its processes by GPU, as the driver reports them now."""
    at: float = float("-inf")
    """When the slot was compared with them, by a monotonic clock."""


def members_of(slot: NodeSlot, grants: Mapping[str, PodGrant]) -> tuple[str, ...]:
    """Returns the names of the containers that use the slot: its own, and init containers before it."""
    grant = grants.get(slot.owner.uid)
    granted = grant.slot_of(slot.owner.container) if grant is not None else None
    return (granted.container, *granted.init) if granted is not None else (slot.owner.container,)


def processes_by_gpu(
    slot: NodeSlot, sight: Sight, grants: Mapping[str, PodGrant], ids: Mapping[tuple[str, str], str]
) -> dict[str, list[PodProcess]]:
    """Returns the slot's processes on each of its GPUs. `ids` are container IDs by pod UID and container. A
    process whose container is not known yet counts as the slot's if its pod has no other.
    """
    uid, members = slot.owner.uid, members_of(slot, grants)
    grant = grants.get(uid)
    own = [id for name in members if (id := ids.get((uid, name)))]
    alone = grant is None or len(grant.slots) == 1
    others = [id for (of, name), id in ids.items() if of == uid and name not in members and id]

    def is_own(process: PodProcess) -> bool:
        if process.owner.uid != uid:
            return False
        if any(process.owner.is_container(id) for id in own):
            return True
        return alone and not any(process.owner.is_container(id) for id in others)

    on_cards = ((card.uuid, sight.processes.get(card.uuid, ())) for card in slot.limits.cards)
    return {uuid: [each for each in seen if is_own(each)] for uuid, seen in on_cards}


@dataclass
class Confirming:
    """Remembers what the last look found."""

    slots: NodeSlots
    unlimited: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """By slot: the processes, by pid on the host, that two looks found without the limit."""
    unrecorded: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """The same of processes without the shim: they may be held by the driver."""
    findings: Mapping[str, Finding] = field(default_factory=dict)
    """By slot."""
    clock: Callable[[], float] = time.monotonic
    _given: object = None
    """What the last look that compared anything was given, and when."""
    _looked_at: float = float("-inf")
    _last: Mapping[str, frozenset[int]] = field(default_factory=dict)
    _last_unrecorded: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def look(self, sight: Sight, pods: PodsNow) -> list[tuple[NodeSlot, Confirmation]]:
        """Compares the slots with what the driver reports; returns those whose limit does not hold. Where
        neither slots nor processes nor pods have changed, all findings stay, as the same object.
        """
        slots, at = self.slots.known(), self.clock()
        given = (slots, sight.processes, pods, self.slots.enforcer)
        if given == self._given and at - self._looked_at < _BELIEVED and self._is_calm():
            return []
        self._given, self._looked_at = given, at
        now: dict[str, frozenset[int]] = {}
        unrecorded: dict[str, frozenset[int]] = {}
        findings: dict[str, Finding] = {}
        failing = []
        of_pods, ids_of_pods = _processes_of_pods(sight), _ids_of_pods(pods.ids)
        for slot in slots:
            uid = slot.owner.uid
            own = sight._replace(processes=of_pods.get(uid, {}))
            by_gpu = processes_by_gpu(slot, own, pods.grants, ids_of_pods.get(uid, {}))
            seen = {each.pid: each for of_gpu in by_gpu.values() for each in of_gpu}
            before = self._before(slot)
            if self._holds_still(slot, by_gpu, at):
                findings[slot.key] = before
                now[slot.key] = unrecorded[slot.key] = frozenset()
                continue
            if not seen and self.slots.enforcer.name != _ON_CGROUPS:
                findings[slot.key] = Finding(slot, before.by, before.reason, {})
                continue
            found = self.slots.enforcer.confirm(slot.folder, {each.own_pid for each in seen.values()})
            now[slot.key] = frozenset(pid for pid, each in seen.items() if each.own_pid in found.free)
            unrecorded[slot.key] = frozenset(
                pid for pid, each in seen.items() if each.own_pid in found.unrecorded
            )
            twice = bool(now[slot.key] & self._last.get(slot.key, frozenset()))
            if twice:
                failing.append((slot, found))
            settled = found.state == "holds" or (found.state == "fails" and (twice or not found.free))
            by = found.by if settled else before.by
            findings[slot.key] = Finding(slot, by, found.reason, by_gpu, at)
        self.unlimited = _twice(now, self._last)
        self.unrecorded = _twice(unrecorded, self._last_unrecorded)
        self._last, self._last_unrecorded, self.findings = now, unrecorded, findings
        return failing

    def _is_calm(self) -> bool:
        """Whether the last look left nothing to confirm. The driver's limits are read back at each look."""
        unheld = any(self._last.values()) or any(self._last_unrecorded.values())
        return self.slots.enforcer.name != _ON_CGROUPS and not unheld

    def _holds_still(self, slot: NodeSlot, by_gpu: Mapping[str, Sequence[PodProcess]], now: float) -> bool:
        """Whether the shim held the slot's processes at a look not long ago, and they are the same and hold
        the same since: an entry in a slot lasts as long as its process. So most slots are seldom read.
        """
        found = self.findings.get(slot.key)
        return (
            found is not None
            and found.slot is slot
            and found.by == self.slots.enforcer.name == _IN_PROCESSES
            and now - found.at < _BELIEVED
            and any(by_gpu.values())
            and found.processes == by_gpu
            and not self._last.get(slot.key)
            and not self._last_unrecorded.get(slot.key)
        )

    @property
    def waits(self) -> bool:
        """Whether the last look found a process without the limit that only the next one confirms."""
        return any(pids and key not in self.unlimited for key, pids in self._last.items())

    def note(self, slot: NodeSlot, found: Confirmation) -> None:
        """Takes what was found of one slot between two looks."""
        if found.state == "holds":
            processes = self._before(slot).processes
            self.findings = {**self.findings, slot.key: Finding(slot, found.by, found.reason, processes)}

    def _before(self, slot: NodeSlot) -> Finding:
        """What the last look found of the same slot: the same owner, with the same limits."""
        found = self.findings.get(slot.key)
        same = found is not None and (found.slot.owner, found.slot.limits) == (slot.owner, slot.limits)
        return found if found is not None and same else Finding(slot, "", "", {})


def _processes_of_pods(sight: Sight) -> dict[str, dict[str, tuple[PodProcess, ...]]]:
    """Returns processes by pod UID and GPU."""
    found: dict[str, dict[str, tuple[PodProcess, ...]]] = {}
    for uuid, processes in sight.processes.items():
        for each in processes:
            of_pod = found.setdefault(each.owner.uid, {})
            of_pod[uuid] = (*of_pod.get(uuid, ()), each)
    return found


def _ids_of_pods(ids: Mapping[tuple[str, str], str]) -> dict[str, dict[tuple[str, str], str]]:
    found: dict[str, dict[tuple[str, str], str]] = {}
    for (uid, name), id in ids.items():
        found.setdefault(uid, {})[uid, name] = id
    return found


def _twice(
    now: Mapping[str, frozenset[int]], before: Mapping[str, frozenset[int]]
) -> dict[str, frozenset[int]]:
    both = {key: pids & before.get(key, frozenset()) for key, pids in now.items()}
    return {key: pids for key, pids in both.items() if pids}

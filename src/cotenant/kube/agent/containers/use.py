"""Remembers, from look to look at the GPUs, what containers hold that no slot counts, and the most they held.

A slot counts what the shim sees, at once. A static program, one that lost the shim, and every container that
has no slot are seen by the driver alone, at each look. Memory that a process took or gave back between the
driver's answer and the slot's would show as uncounted for a moment: only what two looks find is uncounted.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from cotenant.hardware.slots import SlotUnusable
from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.agent.containers.attribution import ByGpu, ContainerKey, Held, attribute
from cotenant.kube.agent.node_pods import PodsNow
from cotenant.kube.agent.slots.node_slots import NodeSlot, NodeSlots

_NOTHING = Held({}, {}, {})


class Measured(NamedTuple):
    """What the last look found beside what slots count."""

    uncounted: Mapping[str, ByGpu] = {}
    """Bytes that a slot does not count, by its key."""
    others: Mapping[ContainerKey, Held] = {}
    """Containers that have or had memory of a GPU, and have no slot."""
    peaks: Mapping[ContainerKey, ByGpu] = {}
    """The most bytes that a look found, of those and of the owners of slots with uncounted bytes."""


@dataclass
class ContainerUse:
    """`look()` is called after each survey; it may run in a thread."""

    slots: NodeSlots
    measured: Measured = field(default=Measured(), init=False)
    _given: tuple[object, object] = field(default=(None, None), init=False)
    """What the last two looks were given; the later first."""
    _last: Mapping[str, ByGpu] = field(default_factory=dict, init=False)
    _compared: Mapping[str, tuple[Held, NodeSlot]] = field(default_factory=dict, init=False)

    def look(self, sight: Sight, pods: PodsNow) -> None:
        """A third look at the same finds nothing that two have not found."""
        present = self.slots.known()
        held = [card.processes for card in sight.cards]
        given = (present, held, sight.processes, sight.busy, pods)
        if self._given == (given, given):
            return
        self._given = (given, self._given[0])
        slots, ids = {slot.key: slot for slot in present}, pods.ids
        owners = {key: slot.owner for key, slot in slots.items()}
        found = attribute(sight, owners, pods.grants, ids)
        beyond = {key: self._beyond(held, slots[key]) for key, held in found.slots.items()}
        uncounted = {key: both for key in beyond if (both := _least(beyond[key], self._last.get(key, {})))}
        self._last = beyond
        self._compared = {key: (held, slots[key]) for key, held in found.slots.items()}
        seen = {each: held.bytes for each, held in found.others.items()}
        for key in uncounted:
            uid, container = owners[key].uid, owners[key].container
            seen[ContainerKey(uid, container, ids.get((uid, container), ""))] = found.slots[key].bytes
        known = {ContainerKey(uid, name, id) for (uid, name), id in ids.items()}
        before = self.measured
        self.measured = Measured(
            uncounted,
            {**{each: _NOTHING for each in before.others if each in known}, **found.others},
            {
                each: _most(seen.get(each, {}), before.peaks.get(each, {}))
                for each in {*seen, *before.peaks}
                if each in known
            },
        )

    def _beyond(self, held: Held, slot: NodeSlot) -> ByGpu:
        """Returns what the driver reports beyond what the slot counts. Where no process of the same slot
        holds more or less than at the last look, that has not changed, and the slot is not read.
        """
        before = self._compared.get(slot.key)
        if before is not None and before[0].processes == held.processes and before[1] is slot:
            return self._last.get(slot.key, {})
        return _beyond(held.bytes, slot)


def _beyond(held: ByGpu, slot: NodeSlot) -> ByGpu:
    """Returns what the driver reports beyond what the slot counts."""
    with suppress(SlotUnusable):  # removed meanwhile
        usage = slot.usage()
        counted = {card.uuid: usage.used(at) for at, card in enumerate(slot.limits.cards)}
        more = {uuid: size - counted.get(uuid, 0) for uuid, size in held.items()}
        return {uuid: size for uuid, size in more.items() if size > 0}
    return {}


def _least(one: ByGpu, other: ByGpu) -> ByGpu:
    return {uuid: min(size, other[uuid]) for uuid, size in one.items() if uuid in other}


def _most(one: ByGpu, other: ByGpu) -> ByGpu:
    return {uuid: max(one.get(uuid, 0), other.get(uuid, 0)) for uuid in {**one, **other}}

"""Attributes the memory that the driver reports on a node's GPUs to slots, and to containers without one.

NVML names processes, their cgroups name pods and containers, and the API server knows their names. What
cannot be named belongs to no container.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cotenant.dialects.pod_grant import PodGrant
from cotenant.kube.agent.cards.cgroups import Owner
from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.agent.slots.owner import SlotOwner

ByGpu = Mapping[str, int]
"""By UUID."""


class ContainerKey(NamedTuple):
    """One run of a container: its next one has another ID."""

    uid: str
    """The pod's UID."""
    name: str
    id: str


class Held(NamedTuple):
    """What the driver reports, in bytes and in percent of each GPU's time."""

    bytes: dict[str, int]
    busy: dict[str, int]
    processes: dict[tuple[str, int], int]
    """Bytes by GPU and pid."""


class Attribution(NamedTuple):
    slots: Mapping[str, Held]
    """By the slot's key."""
    others: Mapping[ContainerKey, Held]


def attribute(
    sight: Sight,
    slots: Mapping[str, SlotOwner],
    grants: Mapping[str, PodGrant],
    ids: Mapping[tuple[str, str], str],
) -> Attribution:
    """`slots`: owners by key. `grants`: by pod UID. `ids`: container IDs by pod UID and container."""
    of_slots: dict[str, Held] = {}
    others: dict[ContainerKey, Held] = {}
    containers: dict[str, list[tuple[str, str]]] = {}
    for (uid, name), id in ids.items():
        containers.setdefault(uid, []).append((name, id))
    keys: dict[str, dict[str, str]] = {}
    for slot, holder in slots.items():
        keys.setdefault(holder.uid, {})[holder.container] = slot
    for owner, held in _by_owner(sight).items():
        known = containers.get(owner.uid, [])
        found = _container(owner, known)
        key = _slot(owner.uid, found, keys.get(owner.uid, {}), grants)
        if key is not None:
            _add(of_slots.setdefault(key, Held({}, {}, {})), held)
        elif found is not None:
            _add(others.setdefault(ContainerKey(owner.uid, *found), Held({}, {}, {})), held)
    return Attribution(of_slots, others)


def _by_owner(sight: Sight) -> dict[Owner, Held]:
    found: dict[Owner, Held] = {}
    for card in sight.cards:
        uuid = card.gpu.uuid
        owners = {each.pid: each.owner for each in sight.processes.get(uuid, ())}
        for process in card.processes:
            owner = owners.get(process.pid)
            if owner is not None:
                held = found.setdefault(owner, Held({}, {}, {}))
                held.bytes[uuid] = held.bytes.get(uuid, 0) + (process.bytes or 0)
                held.processes[uuid, process.pid] = process.bytes or 0
    for uuid, busy in sight.busy.items():
        for owner, percent in busy.items():
            if owner in found:
                found[owner].busy[uuid] = percent
    return found


def _container(owner: Owner, known: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
    """Returns its name and ID. A container whose ID is not known yet is its pod's only one, or nobody's."""
    all_known = list(known)
    for name, id in all_known:
        if id and owner.is_container(id):
            return name, id
    return all_known[0] if len(all_known) == 1 and not all_known[0][1] else None


def _slot(
    uid: str, container: tuple[str, str] | None, keys: Mapping[str, str], grants: Mapping[str, PodGrant]
) -> str | None:
    """Returns the key of the slot that the container uses. Init containers use that of the next container;
    one that is not known, the only slot of its pod.
    """
    if container is None:
        return next(iter(keys.values())) if len(keys) == 1 else None
    name, _ = container
    if name in keys:
        return keys[name]
    grant = grants.get(uid)
    granted = grant.slot_of(name) if grant is not None else None
    return keys.get(granted.container) if granted is not None else None


def _add(to: Held, more: Held) -> None:
    for mine, theirs in ((to.bytes, more.bytes), (to.busy, more.busy)):
        for uuid, value in theirs.items():
            mine[uuid] = mine.get(uuid, 0) + value
    to.processes.update(more.processes)

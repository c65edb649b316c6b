"""Builds the annotations written when a pod is bound, and the environment variables of its containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.core.units import LARGEST
from cotenant.dialects import names
from cotenant.dialects.dialect import ContainerDemand, Env, GrantedGpu, HeldSlot, SlotDemand
from cotenant.dialects.mps import client_limits
from cotenant.dialects.pod_grant import PodGrant, SlotGrant, write_grant
from cotenant.dialects.registry import Dialects

_LONGEST_UUID = 128
_LONGEST_UID = 64
"""Characters of a GPU's and a pod's, with some to spare: today's have 40 and 36."""


def environment(slot: SlotDemand, member: ContainerDemand, dialects: Dialects) -> tuple[Env, ...]:
    """Lists the variables of a container of the slot; values that bind decides come from annotations."""
    own = dialects.by_name[member.dialect].environment(member)
    if slot.demand.compute is None:
        return own
    return (
        *own,
        Env(names.ACTIVE_THREADS, annotation=names.compute(member.container)),
        Env(names.MPS_MEMORY_LIMIT, annotation=names.mps_memory(member.container)),
    )


def bind_annotations(
    slots: Sequence[SlotDemand],
    grant: PodGrant,
    gpus: Mapping[str, GPU],
    bound_ns: int,
    dialects: Dialects,
) -> dict[str, str]:
    """Builds all annotations of a grant, in every dialect of the pod. `gpus` are the node's GPUs by UUID."""
    granted = {slot.container: slot for slot in grant.slots}
    held = [HeldSlot(slot, _cards(granted[slot.container], gpus)) for slot in slots]
    annotations = {names.GRANT: write_grant(grant)}
    for one in held:
        for member in one.slot.members:
            annotations |= dialects.by_name[member.dialect].of_container(member, one.cards)
            if one.slot.demand.compute is not None:
                annotations[names.compute(member.container)] = str(one.slot.demand.compute)
                sizes = [card.share.memory for card in one.cards]
                annotations[names.mps_memory(member.container)] = client_limits(sizes)
    for dialect in dialects.on:
        speaking = [one for one in held if any(member.dialect == dialect.name for member in one.slot.members)]
        if speaking:
            annotations |= dialect.of_pod(speaking, bound_ns)
    return annotations


def largest_annotations(slots: Sequence[SlotDemand], dialects: Dialects) -> dict[str, str]:
    """Builds the annotations of the longest grant that these slots may get, whatever the GPUs are called."""
    most = max((slot.demand.gpus for slot in slots), default=0)
    uuids = [f"{number:0{_LONGEST_UUID}}" for number in range(most)]
    gpus = {uuid: GPU(uuid, 10**4 + at, "", LARGEST, parent=uuid) for at, uuid in enumerate(uuids)}
    grants = tuple(
        SlotGrant(
            slot.container,
            tuple(
                Share(uuid, LARGEST, slot.demand.compute, whole=slot.demand.memory is None)
                for uuid in uuids[: slot.demand.gpus]
            ),
            tuple(member.container for member in slot.members[:-1]),
        )
        for slot in slots
    )
    return bind_annotations(slots, PodGrant("0" * _LONGEST_UID, grants), gpus, 10**19, dialects)


def _cards(slot: SlotGrant, gpus: Mapping[str, GPU]) -> tuple[GrantedGpu, ...]:
    by_index = all(gpu.parent is None for gpu in gpus.values())
    cards = (GrantedGpu(gpus[share.uuid], share, by_index) for share in slot.shares)
    return tuple(sorted(cards, key=lambda card: card.gpu.index))

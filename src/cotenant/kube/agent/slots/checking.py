"""Decides whether a container may start on this node, and with which share of its pod's grant.

Pure decisions over what the kubelet, the API server and the node report. Every refusal becomes an event of
the pod: it says what is wrong and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cotenant.core.errors import CotenantError
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.core.units import format_bytes
from cotenant.dialects import names
from cotenant.dialects.pod_grant import SlotGrant, read_grant
from cotenant.kube.agent.classic.pod_resources import Holder, Holders
from cotenant.kube.agent.slots.node_slots import NodeSlot
from cotenant.kube.agent.slots.owner import CONTAINER
from cotenant.kube.api.objects import Pod
from cotenant.kube.pods.demand import has_ended, is_mirror

_LONGEST_SHOWN = 200
"""Characters of an annotation in a message."""


class StartRefused(CotenantError):
    """The container does not start. The kubelet tries again, with growing pauses."""


def holder_of(device: str, holders: Holders) -> Holder:
    """Returns the one container to which the kubelet gave the device."""
    found = holders.get(device, ())
    if not found:
        raise StartRefused(f"{device}: the kubelet's pod-resources names no container that holds it")
    if len(found) > 1:
        raise StartRefused(
            f"{device}: the kubelet's pod-resources names several holders, {', '.join(map(str, found))}. "
            "The kubelet will try again; it can start when only one of them is left"
        )
    if sum(each.count(found[0]) for each in holders.values()) > 1:
        raise StartRefused(
            f"{found[0]}: the kubelet's pod-resources names it for several slots: another pod of that name "
            f"is terminating, or it asks for more than one {names.GPU_SLOT}. The kubelet will try again"
        )
    return found[0]


def granted_slot(pod: Pod, holder: Holder, node: str) -> SlotGrant:
    """Returns what the pod's grant gives to this container on this node; GrantUnreadable if it is forged."""
    name = f"pod {holder.namespace}/{holder.pod}"
    if is_mirror(pod):
        raise StartRefused(
            f"{name} is a static pod, a file on the node, and has no grant. Create it through the API server"
        )
    if pod.spec.node_name != node:
        raise StartRefused(
            f"{name} is bound to {pod.spec.node_name or 'no node'}, and this is {node}: another pod of that "
            "name was created there"
        )
    if has_ended(pod):
        raise StartRefused(f"{name} has ended ({pod.status.phase}): its grant has ended with it")
    text = pod.metadata.annotations.get(names.GRANT)
    if text is None:
        raise StartRefused(
            f"{name} has no grant (annotation {names.GRANT}): it did not come through Cotenant's scheduler. "
            f"Ask for {names.GPU_MEMORY} or {names.GPU} and leave {names.GPU_SLOT} and spec.nodeName to "
            "Cotenant"
        )
    grant = read_grant(text, pod.metadata.uid)
    slot = next((slot for slot in grant.slots if slot.container == holder.container), None)
    if slot is None:
        holds = ", ".join(slot.container for slot in grant.slots)
        raise StartRefused(
            f"{name}: container {holder.container!r} holds no slot of its grant, the containers that do: "
            f"{holds}. Leave {names.GPU_SLOT} to Cotenant"
        )
    return slot


def check_shown(pod: Pod, slot: SlotGrant, cards: Mapping[str, GPU]) -> None:
    """Refuses a start in which the container runtime would show other GPUs than were granted: bind wrote an
    index, and the driver has counted anew since, as after the loss of a card.
    """
    granted = {share.uuid for share in slot.shares}
    by_index = {str(gpu.index): gpu.uuid for gpu in cards.values() if gpu.parent is None}
    for container in (slot.container, *slot.init):
        annotation = names.devices(container)
        shown = pod.metadata.annotations.get(annotation, "")
        if shown and {by_index.get(name, name) for name in shown.split(",")} != granted:
            raise StartRefused(
                f"pod {pod.metadata.namespace}/{pod.metadata.name}: annotation {annotation}: "
                f"{shown[:_LONGEST_SHOWN]!a} does not name the GPUs that were granted here, "
                f"{', '.join(sorted(granted))}: the driver counts its cards in another order now. "
                "Delete the pod: its replacement is granted anew"
            )


def is_containers(slot: NodeSlot) -> bool:
    """Whether a container owns the slot. Slots of any other owner are removed by the part that made them."""
    return slot.owner.kind == CONTAINER


def is_listed(slot: NodeSlot, holders: Holders) -> bool:
    """Whether the kubelet's record still gives the slot to its owner."""
    owner = slot.owner
    return Holder(owner.namespace, owner.name, owner.container) in holders.get(slot.key, ())


class Shortage(NamedTuple):
    """A GPU on which a share does not fit beside the slots that are there."""

    gpu: GPU
    share: Share
    others: tuple[NodeSlot, ...]

    def __str__(self) -> str:
        there = ", ".join(f"{slot.owner} {self._room_of(slot)}" for slot in self.others)
        asked = "the whole GPU" if self.share.whole else format_bytes(self.share.memory)
        return (
            f"{asked} granted on {self.gpu} ({self.gpu.uuid}) do not fit beside the slots there: "
            f"{there or 'none'}; the GPU has {format_bytes(self.gpu.memory)}"
        )

    def _room_of(self, slot: NodeSlot) -> str:
        uuid = self.gpu.uuid
        return "the whole GPU" if slot.is_whole(uuid) else format_bytes(slot.bytes_on(uuid))


def shortages(
    shares: Sequence[Share], cards: Mapping[str, GPU], others: Iterable[NodeSlot]
) -> list[Shortage]:
    """Lists the GPUs on which the shares do not fit; StartRefused if a GPU is not on this node at all."""
    present = tuple(others)
    found = []
    for share in shares:
        gpu = cards.get(share.uuid)
        if gpu is None:
            here = ", ".join(sorted(cards)) or "none"
            raise StartRefused(
                f"{share.uuid} was granted and is not on this node now (there are: {here}). Delete the pod: "
                "its replacement is granted another"
            )
        beside = tuple(slot for slot in present if slot.bytes_on(share.uuid) or slot.is_whole(share.uuid))
        if not _fits(share, gpu, beside):
            found.append(Shortage(gpu, share, beside))
    return found


def _fits(share: Share, gpu: GPU, beside: Sequence[NodeSlot]) -> bool:
    if not beside:
        return share.whole or share.memory <= gpu.memory
    if share.whole or any(slot.is_whole(share.uuid) for slot in beside):
        return False
    return share.memory + sum(slot.bytes_on(share.uuid) for slot in beside) <= gpu.memory

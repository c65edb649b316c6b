"""What the agent knows of its node, as JSON, for whoever examines the cluster.

Slots on disk, the kubelet's own record, and the cards as the driver tells of them. Nothing in it is secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from cotenant.hardware.nvml import CardReading
from cotenant.hardware.slots import SlotUnusable
from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.agent.classic.pod_resources import Holders
from cotenant.kube.agent.slots.node_slots import NodeSlot


def state(
    version: str,
    waits: Sequence[str],
    slots: Iterable[NodeSlot],
    kubelet: Holders | None,
    sight: Sight | None,
) -> bytes:
    """`waits`: what the agent is not ready for; `kubelet` None: it does not answer."""
    return msgspec.json.encode(
        {
            "version": version,
            "waits": list(waits),
            "slots": [found for slot in slots if (found := _slot(slot)) is not None],
            "kubelet": None
            if kubelet is None
            else {device: [str(each) for each in holders] for device, holders in kubelet.items()},
            "cards": [_card(card) for card in sight.cards] if sight is not None else [],
        }
    )


def _slot(slot: NodeSlot) -> dict[str, Any] | None:
    with suppress(SlotUnusable):  # removed meanwhile
        usage, cards = slot.usage(), slot.limits.cards
        return {
            "device": slot.device,
            "uid": slot.owner.uid,
            "namespace": slot.owner.namespace,
            "pod": slot.owner.pod,
            "container": slot.owner.container,
            "mode": slot.limits.mode,
            "limits": {card.uuid: card.bytes for card in cards},
            "used": {card.uuid: usage.used(at) for at, card in enumerate(cards)},
            "held": slot.is_held(),
        }
    return None


def _card(card: CardReading) -> dict[str, Any]:
    return {
        "uuid": card.gpu.uuid,
        "index": card.gpu.index,
        "memory": card.gpu.memory,
        "used": card.used,
        "problem": card.problem,
    }

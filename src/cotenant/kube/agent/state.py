"""Reads what the agent knows of its node for /state: slots, the kubelet's record, and the GPUs.

Nothing in it is secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from cotenant.hardware.nvml import CardReading
from cotenant.hardware.slots import SlotUnusable
from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.agent.classic.pod_resources import Holders
from cotenant.kube.agent.slots.node_slots import NodeSlot
from cotenant.observe.state import LONGEST_REASON, AgentState, GpuState, SlotState, encode


def state(
    version: str,
    waits: Sequence[str],
    slots: Iterable[NodeSlot],
    kubelet: Holders | None,
    sight: Sight | None,
) -> bytes:
    """`waits`: what the agent is not ready for. `kubelet`: None if it does not answer."""
    return encode(
        AgentState(
            version=version,
            waits=tuple(reason[:LONGEST_REASON] for reason in waits),
            slots=tuple(found for slot in slots if (found := _slot(slot)) is not None),
            kubelet=None
            if kubelet is None
            else {device: tuple(map(str, of)) for device, of in kubelet.items()},
            cards=tuple(map(_gpu, sight.cards)) if sight is not None else (),
        )
    )


def _slot(slot: NodeSlot) -> SlotState | None:
    with suppress(SlotUnusable):  # removed meanwhile
        usage, cards = slot.usage(), slot.limits.cards
        return SlotState(
            device=slot.key,
            uid=slot.owner.uid,
            namespace=slot.owner.namespace,
            pod=slot.owner.name,
            container=slot.owner.container,
            mode=slot.limits.mode,
            limits={card.uuid: card.bytes for card in cards},
            used={card.uuid: usage.used(at) for at, card in enumerate(cards)},
            held=slot.is_held(),
        )
    return None


def _gpu(card: CardReading) -> GpuState:
    problem = None if card.problem is None else card.problem[:LONGEST_REASON]
    return GpuState(card.gpu.uuid, card.gpu.index, card.gpu.memory, card.used, problem)

"""Surveys the node's GPUs, as a part of the agent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from cotenant.core.errors import CotenantError
from cotenant.core.gpu import GPU
from cotenant.dialects.pod_grant import PodGrant
from cotenant.hardware.slots import SlotUnusable
from cotenant.kube.agent.cards.health import recall
from cotenant.kube.agent.cards.survey import Sight, Survey
from cotenant.kube.agent.context import NodeContext, own_node, own_pods
from cotenant.kube.agent.node_pods import NodePods
from cotenant.kube.agent.publishing import told_before
from cotenant.kube.agent.slots.node_slots import NodeSlots
from cotenant.kube.api.informers import Need
from cotenant.kube.api.objects import Node
from cotenant.kube.api.resources import NODES, PODS
from cotenant.kube.api.store import Change
from cotenant.kube.parts.part import Part
from cotenant.kube.settings import Settings


class Cards(Part):
    """Shares itself: later parts read what was seen, and are told of each look."""

    name = "gpus"

    def __init__(self, context: NodeContext) -> None:
        own = context.settings.agent
        self._node, self._pods = context.informers[NODES], context.informers[PODS]
        self._slots, self._node_pods = context.use(NodeSlots), context.use(NodePods)
        self._listeners: list[asyncio.Event] = []
        self.survey = Survey(
            cards=context.cards.nvml(),
            listener=context.cards.nvml(),
            grants=self.grants,
            counted=self.counted,
            interval=own.survey,
            timeout=own.survey_timeout,
            recovery=own.recovery,
            seen=self._seen,
        )
        self._node.store.subscribe(self._on_node)
        context.share(self)

    @classmethod
    def needs(cls, settings: Settings) -> Iterable[Need[Any]]:
        return (own_node(settings), own_pods(settings))

    @property
    def sight(self) -> Sight | None:
        """What was last seen."""
        return self.survey.sight

    def looks(self) -> asyncio.Event:
        """Returns an event that each look sets; the caller clears it."""
        looked = asyncio.Event()
        self._listeners.append(looked)
        return looked

    def grants(self) -> Mapping[str, PodGrant] | None:
        """Returns the grants of the node's pods by UID; None while they are not known."""
        return self._node_pods.now().grants if self._pods.synced and self._node.synced else None

    def by_uuid(self) -> Mapping[str, GPU]:
        if self.sight is None:
            raise CotenantError("the GPUs of this node have not been read yet. It is tried again")
        return {card.gpu.uuid: card.gpu for card in self.sight.cards}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.survey.run())
            tasks.create_task(self._look_when_known())

    def ready(self) -> str | None:
        return self.survey.trouble if self.sight is not None else "the GPUs have not been read yet"

    async def _look_when_known(self) -> None:
        """What was seen before the grants were known cannot be published."""
        await self._node.wait_until_synced()
        await self._pods.wait_until_synced()
        self.survey.again()

    def _on_node(self, change: Change[Node]) -> None:
        if change.kind == "added":
            self.survey.recall(recall(told_before(change.object), time.monotonic()))

    def _seen(self) -> None:
        for each in self._listeners:
            each.set()

    def counted(self) -> dict[str, dict[str, int]]:
        """Adds up what slots count, by GPU and pod UID. It reads the files of every slot."""
        counted: dict[str, dict[str, int]] = {}
        for slot in self._slots.read():
            with suppress(SlotUnusable):  # removed meanwhile
                usage = slot.usage()
                for at, card in enumerate(slot.limits.cards):
                    by_pod = counted.setdefault(card.uuid, {})
                    by_pod[slot.owner.uid] = by_pod.get(slot.owner.uid, 0) + usage.used(at)
        return counted

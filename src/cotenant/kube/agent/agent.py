"""The agent of a node, put together.

Its parts know nothing of each other; here they are told of each other's news. A part that fails ends the
whole agent, with its name: whoever started it starts it again, and all state is on the node or in the API
server.
An API server, a kubelet or a driver that does not answer is no failure of a part: each waits for its own.
Nothing is withdrawn at the end: the pods go on.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cotenant.core.errors import BadInput, CotenantError
from cotenant.core.gpu import GPU
from cotenant.dialects.pod_grant import PodGrant
from cotenant.hardware import libraries
from cotenant.hardware.enforcers import mps
from cotenant.hardware.enforcers.shim import Shim
from cotenant.hardware.slots import SlotUnusable
from cotenant.kube.agent.cards.driver import NodeCards, cards_of
from cotenant.kube.agent.cards.health import recall
from cotenant.kube.agent.cards.survey import Survey
from cotenant.kube.agent.classic.device_plugin import DevicePlugin
from cotenant.kube.agent.classic.pod_resources import SOCKET, Holders, PodResources
from cotenant.kube.agent.grants import grants_of, requested
from cotenant.kube.agent.metrics import (
    AgentHealth,
    ContainerSlot,
    Figures,
    container_ids,
    expose,
    moment,
)
from cotenant.kube.agent.publishing import Publisher, Wanted, told_before, wanted
from cotenant.kube.agent.serving import serving
from cotenant.kube.agent.single_instance import alone
from cotenant.kube.agent.slots.cleaning import Cleaning
from cotenant.kube.agent.slots.node_slots import NodeSlots
from cotenant.kube.agent.slots.starting import Starting
from cotenant.kube.agent.state import state
from cotenant.kube.api.auth.access import Access
from cotenant.kube.api.client import Client, Selection
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.api.resources import NODES, PODS
from cotenant.kube.api.store import Change
from cotenant.kube.api.watcher import Watcher
from cotenant.kube.logs import get_logger
from cotenant.kube.settings import Settings
from cotenant.observe.endpoints import endpoints
from cotenant.settings.declaring import is_dns_name

log = get_logger(__name__)

_FIRST_LOOK = 5.0
"""Seconds for which the kubelet waits for the first look at the cards, and no longer: until it knows us it
starts containers without asking.
"""
_HEARD = 30.0
"""Seconds: pod-resources is asked every ten, so one that has not answered for so long does not answer."""


class PartFailed(CotenantError):
    """A part of the agent ended; the message says which, and why."""


def node_name(settings: Settings, environ: Mapping[str, str]) -> str:
    """As the kubelet calls it: it takes the host's name in small letters."""
    for field, name in (
        ("agent.node", settings.agent.node),
        ("NODE_NAME", environ.get("NODE_NAME", "")),
        ("the host's name", socket.gethostname().strip().lower()),
    ):
        if name:
            if not is_dns_name(name):
                raise BadInput(f"{field}: {name!a} is no node's name: set agent.node to this node's")
            return name
    raise BadInput("agent.node: this host has no name: set it to this node's name")


async def serve(settings: Settings, access: Access, environ: Mapping[str, str] = os.environ) -> None:
    """Until it is cancelled, or PartFailed (in a group)."""
    name = node_name(settings, environ)
    root = Path(settings.agent.slots)
    async with alone(root):
        Shim(libraries.shim(), root).install()
        cards = cards_of(settings.agent)
        async with Client(access) as client:
            await Agent(settings, name, client, cards, environ).run()


class Agent:
    """`run()` works until it is cancelled."""

    def __init__(
        self, settings: Settings, name: str, client: Client, cards: NodeCards, environ: Mapping[str, str]
    ) -> None:
        own = settings.agent
        self._settings, self._name, self._environ = settings, name, environ
        self._version = version("cotenant")
        self._resources = frozenset(settings.dialects.capacity(()))
        root = Path(own.slots)
        self._slots = NodeSlots(root, Shim(libraries.shim(), root))
        self._node: Watcher[Node] = Watcher(client, NODES, Selection(fields=f"metadata.name={name}"))
        self._pods: Watcher[Pod] = Watcher(client, PODS, Selection(fields=f"spec.nodeName={name}"))
        self._pod_resources = PodResources(Path(own.kubelet) / SOCKET)
        self._looked = asyncio.Event()
        self._survey = Survey(
            cards=cards.nvml(),
            listener=cards.nvml(),
            grants=self._grants,
            counted=self._counted,
            interval=own.survey,
            timeout=own.survey_timeout,
            recovery=own.recovery,
            seen=self._seen,
        )
        self._publisher = Publisher(
            client, lambda: self._node.store.named(name), self._wanted, self._node.store.put
        )
        starting = Starting(
            name,
            client,
            self._pod_resources,
            self._slots,
            self._cards_by_uuid,
            lambda _: cards.context_bytes,
            own.mode,
        )
        self._plugin = DevicePlugin(Path(own.kubelet), self._slots, starting, cards.simulation)
        self._cleaning = Cleaning(self._slots, self._pod_resources, client)

    async def run(self) -> None:
        own = self._settings.agent
        self._node.store.subscribe(self._node_changed)
        self._pods.store.subscribe(lambda _: self._publisher.again())
        parts: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "the watch of the node": self._node.run,
            "the watch of its pods": self._pods.run,
            "the survey of the cards": self._survey.run,
            "publishing": self._publisher.run,
            "the device plugin": self._serve_kubelet,
            "offering slots": self._offer,
            "cleaning up slots": self._cleaning.run,
        }
        try:
            routes = endpoints(ready=self.ready, metrics=self._metrics, state=self._state)
            async with serving(own.address, own.port, self._name, routes) as url:
                log.info("agent serves", version=self._version, node=self._name, metrics=f"{url}/metrics")
                async with asyncio.TaskGroup() as group:
                    for what, work in parts.items():
                        group.create_task(_part(what, work()))
                    group.create_task(self._look_when_known())
        finally:
            await self._pod_resources.close()

    def ready(self) -> dict[str, str | None]:
        """Each check with None, or with what the agent still waits for."""
        gpus = self._survey.trouble
        if self._survey.sight is None:
            gpus = "the GPUs have not been read yet"
        kubelet = None
        if self._plugin.registered_since is None:
            kubelet = "this device plugin is not registered with the kubelet yet"
        node = None
        if not self._publisher.current:
            trouble = self._publisher.trouble or self._node.trouble or self._pods.trouble
            node = f"the node's GPUs are not published yet{f': {trouble}' if trouble else ''}"
        return {"gpus": gpus, "kubelet": kubelet, "node": node}

    async def _serve_kubelet(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_LOOK):
                await self._looked.wait()
        await self._offer_slots()
        await self._plugin.run()

    async def _offer(self) -> None:
        while True:
            await self._looked.wait()
            self._looked.clear()
            await self._offer_slots()

    async def _offer_slots(self) -> None:
        if self._survey.sight is not None:
            await self._plugin.offer(self._settings.agent.clients_per_gpu * len(self._survey.sight.cards))

    async def _look_when_known(self) -> None:
        """What was seen before the grants were known cannot be told."""
        await self._node.wait_until_synced()
        await self._pods.wait_until_synced()
        self._survey.again()

    def _node_changed(self, change: Change[Node]) -> None:
        if change.kind == "added":
            self._survey.recall(recall(told_before(change.object), time.monotonic()))
        self._publisher.again()

    def _seen(self) -> None:
        self._looked.set()
        self._publisher.again()

    def _grants(self) -> dict[str, PodGrant] | None:
        return grants_of(self._pods.store) if self._pods.synced and self._node.synced else None

    def _wanted(self) -> Wanted | None:
        """Nothing is told of a node whose driver never answered: others may know better what is there."""
        sight = self._survey.sight
        if sight is None or not sight.granted or (self._survey.trouble is not None and not sight.cards):
            return None
        asked = requested(self._pods.store, self._resources)
        return wanted(sight, self._settings.dialects, asked, self._version, mps=mps.is_running(self._environ))

    def _cards_by_uuid(self) -> Mapping[str, GPU]:
        if self._survey.sight is None:
            raise CotenantError("the cards of this node have not been looked at yet. It is tried again")
        return {card.gpu.uuid: card.gpu for card in self._survey.sight.cards}

    def _counted(self) -> dict[str, dict[str, int]]:
        counted: dict[str, dict[str, int]] = {}
        for slot in self._read_slots():
            for at, card in enumerate(slot.limits.cards):
                by_pod = counted.setdefault(card.uuid, {})
                by_pod[slot.uid] = by_pod.get(slot.uid, 0) + slot.usage.used(at)
        return counted

    def _read_slots(self) -> list[ContainerSlot]:
        found = []
        for slot in self._slots.read():
            with suppress(SlotUnusable):  # removed meanwhile
                owner = slot.owner
                found.append(
                    ContainerSlot(
                        owner.uid, owner.namespace, owner.name, owner.container, slot.limits, slot.usage()
                    )
                )
        return found

    async def _metrics(self) -> bytes:
        answered = self._pod_resources.answered
        health = AgentHealth(
            registered=self._plugin.registered_since is not None,
            pod_resources=answered is not None and time.monotonic() - answered < _HEARD,
            api=all(watch.synced and watch.trouble is None for watch in (self._node, self._pods)),
            published=self._publisher.published,
            version=self._version,
        )
        sight, grants = self._survey.sight, self._grants() or {}
        ids = container_ids(self._pods.store)
        return await asyncio.to_thread(
            lambda: expose(Figures(self._name, sight, grants, self._read_slots(), health, *moment(), ids))
        )

    async def _state(self) -> bytes:
        kubelet: Holders | None = None
        with suppress(CotenantError):
            kubelet = await self._pod_resources.holders()
        waits = [reason for reason in self.ready().values() if reason is not None]
        sight = self._survey.sight
        return await asyncio.to_thread(
            lambda: state(self._version, waits, self._slots.read(), kubelet, sight)
        )


async def _part(what: str, work: Coroutine[Any, Any, None]) -> None:
    """Parts work for ever: one that ends has failed."""
    try:
        await work
    except CotenantError as error:
        raise PartFailed(f"{what} failed: {error}") from error
    except Exception as error:
        log.exception("part failed", part=what)
        raise PartFailed(f"{what} failed: {error!r}") from error
    raise PartFailed(f"{what} ended")

"""Composes the agent of a node from its parts.

A part that fails ends the whole agent, with its name: the kubelet starts it again, and all state is on the
node or in the API server. An API server, a kubelet or a driver that does not answer is no failure of a part:
each part waits for its own. Nothing is withdrawn at the end: pods keep their GPUs and their limits.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from cotenant.core.errors import BadInput, CotenantError
from cotenant.hardware import libraries
from cotenant.hardware.enforcers.shim import Shim
from cotenant.kube.agent.cards.driver import NodeCards, cards_of
from cotenant.kube.agent.cards.part import Cards
from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.agent.certificate import ServingCertificate
from cotenant.kube.agent.classic.device_plugin import DevicePlugin
from cotenant.kube.agent.classic.pod_resources import SOCKET, Holders, PodResources
from cotenant.kube.agent.containers.part import Containers
from cotenant.kube.agent.context import NodeContext
from cotenant.kube.agent.limits.enforcement import Enforcement
from cotenant.kube.agent.limits.enforcers import NodeEnforcers
from cotenant.kube.agent.memory import return_freed_memory
from cotenant.kube.agent.metrics import AgentHealth, Figures, expose
from cotenant.kube.agent.node_pods import NodePods, PodsNow
from cotenant.kube.agent.parts import PARTS
from cotenant.kube.agent.publishing import Publisher
from cotenant.kube.agent.serving import serving
from cotenant.kube.agent.single_instance import alone
from cotenant.kube.agent.slots.confirming import Confirming
from cotenant.kube.agent.slots.mounting import has_own_tmpfs
from cotenant.kube.agent.slots.node_slots import NodeSlot, NodeSlots
from cotenant.kube.agent.snapshot import snapshot
from cotenant.kube.agent.state import state
from cotenant.kube.api.auth.access import Access
from cotenant.kube.api.client import Client
from cotenant.kube.api.informers import Informers
from cotenant.kube.api.resources import PODS
from cotenant.kube.logs import get_logger
from cotenant.kube.parts.leadership import Alone
from cotenant.kube.parts.part import Part
from cotenant.kube.parts.running import LINGER, Failures, PartFailed, run_all
from cotenant.kube.settings import Settings
from cotenant.observe.endpoints import endpoints
from cotenant.observe.exposition import Registry, text_of
from cotenant.observe.view import View
from cotenant.settings.declaring import is_dns_name

log = get_logger(__name__)

_HEARD = 30.0
"""Seconds. pod-resources is asked every ten: if it has not answered for this long, it does not answer."""


def node_name(settings: Settings, environ: Mapping[str, str]) -> str:
    """As the kubelet calls it: it takes the host's name in small letters."""
    for field, name in (
        ("agent.node", settings.agent.node),
        ("NODE_NAME", environ.get("NODE_NAME", "")),
        ("the host's name", socket.gethostname().strip().lower()),
    ):
        if name:
            if not is_dns_name(name):
                raise BadInput(f"{field}: {name!a} is not the name of a node: set agent.node to this node's")
            return name
    raise BadInput("agent.node: this host has no name: set it to this node's name")


async def serve(settings: Settings, access: Access, environ: Mapping[str, str] = os.environ) -> None:
    """Works until it is cancelled, or raises PartFailed."""
    return_freed_memory()
    name = node_name(settings, environ)
    settings = replace(settings, agent=replace(settings.agent, node=name))
    root = Path(settings.agent.slots)
    async with alone(root):
        shim = Shim(libraries.shim(), root)
        NodeSlots(root, shim).cut()  # a container may have filled the tmpfs
        if not has_own_tmpfs(root):
            log.warning(
                "slots are not on a tmpfs of their own: a container can fill the host's. It is mounted by "
                "the chart's init container, or by `cotenant agent --mount-slots`",
                folder=root,
            )
        shim.install()
        gc.set_threshold(20_000, 20, 100)  # most of what is made lives for one scrape, and is in no cycle
        cards = cards_of(settings.agent)
        async with Client(access) as client:
            await Agent(settings, client, cards, environ).run()


class Agent:
    """`run()` works until it is cancelled, or raises PartFailed. `settings.agent.node` names the node."""

    def __init__(
        self,
        settings: Settings,
        client: Client,
        cards: NodeCards,
        environ: Mapping[str, str],
        kinds: Sequence[type[Part]] = PARTS,
    ) -> None:
        own = settings.agent
        self._own = own
        self._registry = Registry()
        self._failures = Failures(self._registry)
        self._informers = Informers(client, [need for kind in kinds for need in kind.needs(settings)])
        self.context = NodeContext(
            settings,
            client,
            self._informers,
            Alone(),
            self._registry,
            environ,
            node=own.node,
            cards=cards,
            version=version("cotenant"),
        )
        root = Path(own.slots)
        enforcers = self.context.share(NodeEnforcers(own, cards))
        first = enforcers.first()
        self._slots = self.context.share(NodeSlots(root, first))
        self._pods = self.context.share(NodePods(self._informers[PODS].store))
        self._confirming = self.context.share(Confirming(self._slots))
        self._enforcement = self.context.share(Enforcement(first.name, self._confirming))
        self._pod_resources = self.context.share(PodResources(Path(own.kubelet) / SOCKET))
        self.parts = [kind(self.context) for kind in kinds]
        for part in self.parts:
            self._failures.expect(part)

    async def run(self) -> None:
        routes = [
            *endpoints(ready=self.ready, metrics=self._metrics, state=self._state),
            *(route for part in self.parts for route in part.routes()),
        ]
        own = self._own
        try:
            tls = self.context.use(ServingCertificate).server_context
            async with serving(own.address, own.port, own.node, routes, tls) as url:
                log.info(
                    "agent serves", version=self.context.version, node=own.node, metrics=f"{url}/metrics"
                )
                try:
                    await run_all(
                        [
                            *((f"watch of {each.resource.plural}", each.run()) for each in self._informers),
                            *((part.name, part.run()) for part in self.parts),
                        ],
                        self._failures.note,
                    )
                except PartFailed:
                    await asyncio.sleep(LINGER)
                    raise
        finally:
            await self._pod_resources.close()

    def ready(self) -> dict[str, str | None]:
        """Says of each part why it is not ready, if it is not."""
        return {part.name: self._failures.reason(part) for part in self.parts} | self._failures.why

    async def _metrics(self) -> bytes:
        answered = self._pod_resources.answered
        health = AgentHealth(
            registered=self.context.use(DevicePlugin).registered_since is not None,
            pod_resources=answered is not None and time.monotonic() - answered < _HEARD,
            api=all(watch.synced and watch.trouble is None for watch in self._informers),
            published=self.context.use(Publisher).published,
            version=self.context.version,
        )
        now, unix, sight = time.monotonic(), time.time(), self.context.use(Cards).sight
        age = None if sight is None else max(0.0, now - sight.at)
        pods, containers = self._pods.now(), self.context.use(Containers)
        figures = await asyncio.to_thread(
            lambda: expose(
                Figures(
                    containers.complete(self._view(self._slots.known(), sight, pods, now), pods),
                    health,
                    unix,
                    age,
                )
            )
        )
        return figures + text_of(self._registry)

    async def _state(self) -> bytes:
        kubelet: Holders | None = None
        with suppress(CotenantError):
            kubelet = await self._pod_resources.holders()
        waits = [reason for reason in self.ready().values() if reason is not None]
        sight, pods, now = self.context.use(Cards).sight, self._pods.now(), time.monotonic()
        return await asyncio.to_thread(
            lambda: state(
                self.context.version, waits, self._view(self._slots.read(), sight, pods, now), kubelet
            )
        )

    def _view(self, slots: Sequence[NodeSlot], sight: Sight | None, pods: PodsNow, now: float) -> View:
        """Gathers the node. For a thread: every slot's `usage` is read."""
        unlimited = self._confirming.unlimited
        return snapshot(self._own.node, sight, pods, slots, now, unlimited, self._enforcement)

"""Holds containers to their share of compute by MPS, as a part of the agent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

from cotenant.core.gpu import GPU
from cotenant.hardware.enforcers.enforcer import Attachment
from cotenant.hardware.enforcers.mps import is_running
from cotenant.hardware.mps import daemon
from cotenant.hardware.mps.cards import ComputeFacts, objection, read_facts
from cotenant.hardware.mps.control import Control
from cotenant.hardware.mps.control_log import ControlLog
from cotenant.kube.agent.cards.part import Cards
from cotenant.kube.agent.context import NodeContext, own_pods
from cotenant.kube.agent.mps.layout import NODE, daemon_for, folders_of, link, plans
from cotenant.kube.agent.mps.reporting import NOT_ENFORCED, report, unenforced
from cotenant.kube.agent.mps.settings import MpsSettings
from cotenant.kube.agent.mps.supervising import Supervising, program_of
from cotenant.kube.agent.mps.watching import DaemonWatch
from cotenant.kube.agent.slots.node_slots import NodeSlot
from cotenant.kube.api.informers import Need
from cotenant.kube.api.resources import PODS
from cotenant.kube.events import EventRecorder
from cotenant.kube.logs import get_logger
from cotenant.kube.parts.part import Part
from cotenant.kube.settings import Settings
from cotenant.observe.exposition import counter, gauge
from cotenant.observe.metrics import Metric

log = get_logger(__name__)

_LOOK = 1.0
"""Seconds between two looks at the daemons."""
_PATIENCE = 5.0
"""Seconds for which a container that starts waits for a daemon that is being started again."""


class Mps(Part):
    """Shares itself: the device plugin mounts what it says, the node publishes whether it enforces."""

    name = "mps"
    section: ClassVar[tuple[str, type[Any]] | None] = ("mps", MpsSettings)

    def __init__(self, context: NodeContext) -> None:
        self._own = context.settings.mps
        self._environ = context.environ
        self._simulated = context.cards.simulation is not None
        self._cards, self._pods = context.use(Cards), context.informers[PODS]
        self._nvml = context.cards.nvml
        self._folders = folders_of(self._own, context.settings.agent.slots)
        self._supervising = Supervising(self._own, self._folders, context.environ, self._gpus)
        self._watches: dict[str, DaemonWatch] = {}
        self._facts: dict[str, ComputeFacts] = {}
        self._recorder = EventRecorder(context.client)
        self._up = gauge(Metric.MPS_UP, context.registry)
        self._restarts = counter(Metric.MPS_RESTARTS, context.registry)
        if self._own.daemons != "off":
            self._pods.store.subscribe(
                lambda change: (
                    self._recorder.forget(change.object.metadata.uid) if change.kind == "deleted" else None
                )
            )
        context.share(self)

    @classmethod
    def needs(cls, settings: Settings) -> Iterable[Need[Any]]:
        return (own_pods(settings),)

    async def run(self) -> None:
        if self._own.daemons == "off":
            await asyncio.Event().wait()
        self._folders.make()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._recorder.run())
            tasks.create_task(self._watch())
            tasks.create_task(self._check_cards())
            if self._own.supervise:
                tasks.create_task(self._supervising.run())

    def ready(self) -> str | None:
        if self._own.daemons == "off":
            return None
        if self._own.supervise and (trouble := self._supervising.trouble()) is not None:
            return trouble
        if not self._watches and self._gpus() != []:
            return "no MPS control daemon has been seen yet"
        down = [key for key, watch in self._watches.items() if watch.pid is None]
        if down:
            return f"no MPS control daemon runs at {self._folders.place(down[0]).pipe}"
        return None

    def enforces(self) -> bool:
        """Whether shares of compute hold on this node. Simulated GPUs have none. Where the agent runs no MPS,
        the node's administrator may.
        """
        if self._own.daemons == "off":
            return is_running(self._environ)
        suitable = any(self.objection(gpu) is None for gpu in self._gpus() or ())
        return not self._simulated and suitable and self.ready() is None

    def attachment(self) -> Attachment:
        """Returns what each GPU container is started with; nothing where MPS is off."""
        if self._own.daemons == "off":
            return Attachment()
        self._folders.make()
        return self._folders.attachment()

    async def prepare(self, slot: NodeSlot) -> None:
        """Connects a slot whose container is about to start with its daemon. Limits that are only observed
        are not enforced by MPS either. A daemon that does not run keeps no container from starting.
        """
        if self._own.daemons == "off" or all(share.compute is None for share in slot.shares):
            return
        key = daemon_for(self._own.daemons, slot.shares) if slot.limits.mode == "enforce" else None
        if key is not None and not await self._comes(key):
            place = self._folders.place(key)
            self._tell(slot, f"no MPS control daemon runs at {place.pipe} ({self.ready() or 'it has ended'})")
        elif key is None:
            self._tell(slot, unenforced(slot))
        link(slot, key)

    def objection(self, gpu: GPU) -> str | None:
        """Says why MPS cannot hold clients on this GPU."""
        facts = self._facts.get(gpu.parent or gpu.uuid)
        return objection(gpu, facts, one_daemon=self._own.daemons == NODE)

    def _gpus(self) -> list[GPU] | None:
        sight = self._cards.sight
        return None if sight is None else [card.gpu for card in sight.cards]

    async def _comes(self, key: str) -> bool:
        ends = time.monotonic() + _PATIENCE
        while daemon.holder(self._folders.place(key)) is None:
            if time.monotonic() > ends:
                return False
            await asyncio.sleep(0.1)
        return True

    def _tell(self, slot: NodeSlot, why: str) -> None:
        owner = slot.owner
        log.warning(
            "compute is not enforced",
            namespace=owner.namespace,
            pod=owner.name,
            container=owner.container,
            reason=why,
        )
        pod = next((each for each in self._pods.store if each.metadata.uid == owner.uid), None)
        if pod is not None:
            words = f"container {owner.container}: its share of compute is not enforced: {why}"
            self._recorder.record(pod, NOT_ENFORCED, words)

    async def _watch(self) -> None:
        while True:
            for plan in plans(self._own.daemons, self._gpus() or ()):
                if plan.key not in self._watches:
                    self._watches[plan.key] = self._daemon_watch(plan.key)
                    self._restarts.labels(plan.key)
            watches = dict(self._watches)
            before = {key: watch.restarts for key, watch in watches.items()}
            seen = await asyncio.to_thread(lambda: {key: watch.look() for key, watch in watches.items()})  # noqa: B023
            for key, incidents in seen.items():
                self._up.labels(key).set(watches[key].pid is not None)
                self._restarts.labels(key).inc(watches[key].restarts - before[key])
                for incident in incidents:
                    report(incident, key, self._pods.store, self._recorder)
            await asyncio.sleep(_LOOK)

    def _daemon_watch(self, key: str) -> DaemonWatch:
        place = self._folders.place(key)
        return DaemonWatch(
            lambda: Control(program_of(self._own, self._environ), place),
            ControlLog(place.control_log),
            partial(daemon.holder, place),
        )

    async def _check_cards(self) -> None:
        """Reads compute capability and mode once the GPUs are known, and again when there are others."""
        known: frozenset[str] = frozenset()
        looked = self._cards.looks()
        while True:
            await looked.wait()
            looked.clear()
            gpus = self._gpus() or []
            if frozenset(gpu.uuid for gpu in gpus) <= known:
                continue
            known = frozenset(gpu.uuid for gpu in gpus)
            self._facts = await asyncio.to_thread(lambda: read_facts(self._nvml()))
            for gpu in gpus:
                facts = self._facts.get(gpu.parent or gpu.uuid)
                if (why := self.objection(gpu)) is not None:
                    log.warning("MPS cannot be used on this GPU", gpu=gpu.uuid, reason=why)
                elif facts is not None and facts.exclusive:
                    log.warning(
                        "compute mode EXCLUSIVE_PROCESS: containers that ask for no share of compute cannot "
                        "use this GPU while an MPS server does; nvidia-smi -c DEFAULT changes it",
                        gpu=gpu.uuid,
                    )

"""Holds containers to their limits and reports what holds them, as a part of the agent.

Chooses the node's enforcer; sets the driver's limits as soon as a container's cgroup is there; compares what
processes hold with what they were granted; writes the pods' condition and events.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from cotenant.core.errors import CotenantError
from cotenant.hardware.enforcers.choosing import Choice
from cotenant.hardware.enforcers.driver import ENFORCE, Driver
from cotenant.hardware.slots import SlotUnusable
from cotenant.kube.agent.cards.part import Cards
from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.agent.context import NodeContext, own_pods
from cotenant.kube.agent.limits.attention import is_due, is_uncounted
from cotenant.kube.agent.limits.commands import commands_of
from cotenant.kube.agent.limits.enforcement import Enforcement
from cotenant.kube.agent.limits.enforcers import NodeEnforcers
from cotenant.kube.agent.limits.overuse import Overuse, OveruseClock, overuses
from cotenant.kube.agent.limits.reporting import LimitReporter
from cotenant.kube.agent.limits.verdict import ContainerLimit, Verdict, verdict
from cotenant.kube.agent.node_pods import NodePods, PodsNow
from cotenant.kube.agent.slots.checking import is_containers
from cotenant.kube.agent.slots.confirming import Confirming, Finding, members_of
from cotenant.kube.agent.slots.node_slots import NodeSlots
from cotenant.kube.agent.threads import in_thread
from cotenant.kube.api.informers import Need
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.resources import PODS
from cotenant.kube.api.store import Change
from cotenant.kube.events import EventRecorder
from cotenant.kube.logs import get_logger
from cotenant.kube.parts.part import Part
from cotenant.kube.pods.limit_held import limit_held
from cotenant.kube.settings import Settings

T = TypeVar("T")
log = get_logger(__name__)

LIMIT_HELD = "GPULimitHeld"
LIMIT_NOT_LIVE = "GPULimitNotLive"
OVER_LIMIT = "GPUOverLimit"
_CHOOSE = 300.0
"""Seconds after which a stronger enforcer that could not be used is tried again: drivers are installed late.
"""
_CHASE = 0.05
"""Seconds between two looks for the cgroup of a container that starts."""
_GIVE_UP = 60.0
"""Seconds for which its cgroup is looked for so often. After that each survey does."""
_ATTENTION = 2.0
"""Seconds between two looks at how much of the GPUs is in use. A container over its limit is named within
10 s: one of these, the grace of 5, one of the next.
"""
_CLOSE_ATTENTION = 1.0
"""Seconds between two looks while something was seen that the next survey confirms."""


class Limits(Part):
    """Uses the Enforcement, which others read."""

    name = "limits"

    def __init__(self, context: NodeContext) -> None:
        own = context.settings.agent
        self._pods, self._cards = context.informers[PODS], context.use(Cards)
        self._node_pods = context.use(NodePods)
        self._looked = self._cards.looks()
        self._slots, self._confirming = context.use(NodeSlots), context.use(Confirming)
        self._enforcers, self._enforcement = context.use(NodeEnforcers), context.use(Enforcement)
        self._enforcement.undecided = True
        self._overuse = OveruseClock(own.watch_grace)
        self._lasting: Mapping[str, tuple[Overuse, ...]] = {}
        self._is_reported = False
        """Whether a look that finds the same has nothing to report."""
        self._timeout = own.survey_timeout
        self._memory = context.cards.nvml()
        self._recorder = EventRecorder(context.client)
        self._reporter = LimitReporter(
            context.client, self._pods.store, self._pods.resource, changed=self._tell
        )
        self._turn = asyncio.Lock()
        self._hanging: asyncio.Future[Any] | None = None
        self._pods.store.subscribe(self._on_pod)

    @classmethod
    def needs(cls, settings: Settings) -> Iterable[Need[Any]]:
        return (own_pods(settings),)

    def ready(self) -> str | None:
        choice = self._enforcement.choice
        if choice is None:
            return "the enforcer of memory has not been chosen yet: the driver was not asked"
        if choice.problem is None:
            return None
        return (
            f"agent.enforcer: {choice.problem}. Containers are held by {self._enforcement.offered} "
            "meanwhile. Mend that, or set agent.enforcer to auto (docs/enforcers.md)"
        )

    async def run(self) -> None:
        await self.choose()
        async with asyncio.TaskGroup() as tasks:
            for work in (
                self._recorder.run(),
                self._choose_again(),
                self._follow_looks(),
                self._hold_started(),
                self._look_closely(),
            ):
                tasks.create_task(work)

    async def choose(self) -> None:
        """Takes the strongest enforcer that works now, or the one that is set."""
        before = self._enforcement.choice
        try:
            choice = await self._ask(self._enforcers.choose)
        except Exception as error:  # whatever a driver does, containers stay with what they have
            log.exception("enforcers cannot be tried")
            first = self._enforcers.first()
            choice = Choice(first, "it needs no driver", {"driver": f"it cannot be tried: {error}"})
        if choice is None:
            return
        self._slots.enforcer, self._enforcement.asked = choice.enforcer, choice.enforcer.name
        self._enforcement.choice, self._enforcement.undecided = choice, False
        if before is None or (before.enforcer.name, before.problem) != (choice.enforcer.name, choice.problem):
            log.info(
                "enforcer of memory chosen" if choice.problem is None else "enforcer of memory not usable",
                enforcer=choice.enforcer.name,
                reason=choice.problem or choice.reason,
                passed_over="; ".join(f"{name}: {why}" for name, why in choice.passed_over.items()) or None,
            )
            self._cards.survey.again()

    async def _choose_again(self) -> None:
        while True:
            choice = self._enforcement.choice
            await asyncio.sleep(_CHOOSE if choice is not None else 1.0)
            if choice is None or choice.problem is not None or choice.passed_over:
                await self.choose()

    async def _follow_looks(self) -> None:
        while True:
            await self._looked.wait()
            self._looked.clear()
            try:
                await self.look()
            except Exception:  # whatever a driver does, the agent goes on: the next survey tries again
                log.exception("limits not confirmed")

    async def look(self) -> None:
        """Confirms every slot by the last survey, and reports what differs."""
        sight, pods, before = self._cards.sight, self._node_pods.now(), self._confirming.findings
        if sight is None or self._cards.grants() is None:
            return
        await self._ask(lambda: self._confirm(sight, pods))
        if self._is_reported and self._confirming.findings is before:
            return
        found = await asyncio.to_thread(self._overuses)
        self._enforcement.over = {key: over for key, over in found.items() if over}
        self._lasting = self._overuse.look(found, time.monotonic(), self._reported_over())
        reported = await self.report(sight)
        told = all(each.bytes is not None for of_gpu in sight.processes.values() for each in of_gpu)
        self._is_reported = reported and told and not self._enforcement.over and not self._lasting

    def _confirm(self, sight: Sight, pods: PodsNow) -> None:
        if isinstance(self._slots.enforcer, Driver):
            self._enforcers.cgroups.ids = {
                slot.folder: frozenset(
                    id
                    for name in members_of(slot, pods.grants)
                    if (id := pods.ids.get((slot.owner.uid, name)))
                )
                for slot in self._slots.read()
            }
            self._enforcers.cgroups.forget_gone()
        self._confirming.look(sight, pods)

    async def report(self, sight: Sight) -> bool:
        """Writes the condition of pods where it is another now; returns whether it was nowhere."""
        gpus = {card.gpu.uuid: f"GPU {card.gpu.index}" for card in sight.cards}
        by_pod: dict[str, list[ContainerLimit]] = {}
        for key, finding in sorted(self._confirming.findings.items()):
            if is_containers(finding.slot):
                each = self._container(key, finding, gpus)
                by_pod.setdefault(finding.slot.owner.uid, []).append(each)
        pids = {
            process.pid
            for containers in by_pod.values()
            for each in containers
            for process in (*(p for _, over in each.over for p in over.processes), *(p for _, p in each.free))
        }
        commands = await asyncio.to_thread(commands_of, pids) if pids else {}
        judged = ((uid, verdict(containers, commands)) for uid, containers in by_pod.items())
        return await self._reporter.report(
            {uid: found for uid, found in judged if found is not None and self._is_there(uid)}
        )

    def _reported_over(self) -> set[str]:
        """Slots of pods that are shown as over their limit, perhaps by an agent before this one."""
        shown = {pod.metadata.uid for pod in self._pods.store if (held := limit_held(pod)) and held.is_over}
        findings = self._confirming.findings
        return {key for key, each in findings.items() if each.slot.owner.uid in shown} if shown else set()

    def _is_there(self, uid: str) -> bool:
        pod = self._pods.store.get(uid)
        return pod is not None and pod.metadata.deletion_timestamp is None

    def _container(self, key: str, finding: Finding, gpus: Mapping[str, str]) -> ContainerLimit:
        slot = finding.slot
        free = self._confirming.unlimited.get(key, frozenset())
        return ContainerLimit(
            slot.owner.container,
            slot.limits.mode,
            self._enforcement.asked,
            finding.by,
            {gpus.get(card.uuid, card.uuid): card.bytes for card in slot.limits.cards},
            finding.reason,
            tuple((gpus.get(over.uuid, over.uuid), over) for over in self._lasting.get(key, ())),
            tuple(
                (gpus.get(uuid, uuid), process)
                for uuid, processes in finding.processes.items()
                for process in processes
                if process.pid in free
            ),
        )

    def _overuses(self) -> dict[str, tuple[Overuse, ...]]:
        found = {}
        for key, finding in self._confirming.findings.items():
            counted: dict[str, int] = {}
            if any(each.bytes is None for of_gpu in finding.processes.values() for each in of_gpu):
                with suppress(SlotUnusable):
                    usage = finding.slot.usage()
                    counted = {card.uuid: usage.used(at) for at, card in enumerate(finding.slot.limits.cards)}
            found[key] = overuses(finding.slot, finding.processes, counted)
        return found

    async def _hold_started(self) -> None:
        """Sets the driver's limits of containers that start, as soon as their cgroup is there."""
        until: dict[str, float] = {}
        while True:
            if not until:
                await self._enforcement.some.wait()
            now = time.monotonic()
            until |= dict.fromkeys(self._enforcement.take_started(), now + _GIVE_UP)
            try:
                done = await self._ask(partial(self._settled, tuple(until)))
            except Exception:  # the same
                log.exception("limits of a container that starts not set")
                done = None
            until = {key: end for key, end in until.items() if end > now and key not in (done or ())}
            if done and self._cards.sight is not None:
                await self.report(self._cards.sight)
            await asyncio.sleep(_CHASE)

    def _settled(self, keys: Iterable[str]) -> list[str]:
        return [key for key in keys if self._is_settled(key)]

    def _is_settled(self, key: str) -> bool:
        """Whether nothing more is to be done for the slot before the next survey."""
        slot, enforcer = self._slots.find(key), self._slots.enforcer
        if slot is None or not isinstance(enforcer, Driver) or slot.limits.mode != ENFORCE:
            return True
        found = enforcer.confirm(slot.folder)
        if found.by != enforcer.name:
            return False
        self._confirming.note(slot, found)
        return True

    async def _look_closely(self) -> None:
        undecided = False
        while True:
            await asyncio.sleep(_CLOSE_ATTENTION if undecided else _ATTENTION)
            sight = self._cards.sight
            if sight is None or not self._slots.has_any():
                continue
            undecided = self._overuse.waits or self._confirming.waits
            age = time.monotonic() - sight.at
            if is_due(undecided=undecided, over=bool(self._enforcement.over), age=age):
                self._cards.survey.again()
                continue
            with suppress(CotenantError):  # the survey reports what is wrong with the driver
                if await self._ask(partial(self._is_uncounted, sight)):
                    self._cards.survey.again()

    def _is_uncounted(self, sight: Sight) -> bool:
        used = self._memory.memory_in_use(_uuids(sight))
        return bool(used) and is_uncounted(used, sight, self._counted)

    def _counted(self) -> dict[str, int]:
        """Adds up what slots count by GPU, of each at most its limit: containers write these figures
        themselves.
        """
        counted: dict[str, int] = {}
        for slot in self._slots.read():
            with suppress(SlotUnusable):  # removed meanwhile
                usage = slot.usage()
                for at, card in enumerate(slot.limits.cards):
                    counted[card.uuid] = counted.get(card.uuid, 0) + min(usage.used(at), card.bytes)
        return counted

    async def _ask(self, work: Callable[[], T]) -> T | None:
        """Asks the driver, one question at a time; None if it does not answer in time. While it hangs,
        nothing more is asked.
        """
        async with self._turn:
            if self._hanging is not None and not self._hanging.done():
                return None
            asked = in_thread(work)
            done, _ = await asyncio.wait({asked}, timeout=self._timeout)
            if not done:
                log.error("the driver does not answer: limits are not confirmed")
                self._hanging = asked
                return None
            return asked.result()

    def _tell(self, pod: Pod, found: Verdict) -> None:
        """Records an event of what is new about a pod."""
        details = found.message.partition(": ")[2]
        if found.status == "True":
            self._recorder.record(pod, LIMIT_HELD, details, normal=True, each=True)
        elif found.reason == "OverLimit":
            self._recorder.record(pod, OVER_LIMIT, details, each=True)
        elif found.reason == "NotHeld":
            advice = (
                "Either the program is static or not linked with glibc, or it may not read "
                "/etc/ld.so.preload or /run/cotenant/lib (SELinux): cotenant doctor says what to do"
            )
            self._recorder.record(pod, LIMIT_NOT_LIVE, f"{details}. {advice}", each=True)

    def _on_pod(self, change: Change[Pod]) -> None:
        if change.kind == "deleted":
            self._recorder.forget(change.object.metadata.uid)


def _uuids(sight: Sight) -> list[str]:
    return [card.gpu.uuid for card in sight.cards]

"""Work at random for scaled workloads: messages that replicas really take, programs on GPUs, and a person who wakes what sleeps."""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from cotenant.core.errors import BadInput
from cotenant.kube.api.errors import KubeError
from cotenant.kube.operating.waking import wake

from .hollowagents import HollowAgents
from .redisqueues import Message, MessageQueue
from .scaledworkloads import MESSAGE_SECONDS, ScaledWorkload

TICK = 0.1
GAP = 3.5
"""The longest pause between two pieces of work, in thresholds: some are long enough to be released in."""


@dataclass
class Work:
    """A program that used the GPU of a pod, from when until when, in Unix time."""

    uid: str
    since: float
    until: float


@dataclass
class Attempt:
    """A person who asked for a workload to be woken, and got an answer, or none, until then."""

    name: str
    began: float
    ended: float = float("inf")


@dataclass
class _Queue:
    """The replicas of one scaled workload at their queue."""

    queue: MessageQueue
    next: float
    works: dict[str, tuple[Message, float]] = field(default_factory=dict)
    """By the pod's UID: what it works on, and until when."""
    orphans: list[Message] = field(default_factory=list)
    """In work, and their worker is gone: the next one takes them over."""


@dataclass
class _Program:
    """The program of an annotated workload, which has no queue."""

    workload: ScaledWorkload
    next: float
    now: Work | None = None


class WorkTraffic:
    """`run()` goes on until it is cancelled. Work comes from `begin()` on; after `calm()` nothing new comes, and what is
    there is worked off."""

    def __init__(
        self,
        agents: HollowAgents,
        queues: Sequence[MessageQueue],
        annotated: Sequence[ScaledWorkload],
        seed: int,
    ) -> None:
        self._agents, self._chance = agents, random.Random(f"{seed}/work")
        now = time.time()
        self._queues = [_Queue(each, now + self._chance.uniform(0, 10)) for each in queues]
        self._programs = [_Program(each, now + self._chance.uniform(0, 10)) for each in annotated]
        self._calm = True
        self.done = 0
        self.orphaned = 0
        self.works: list[Work] = []
        self.attempts: list[Attempt] = []
        self.forgotten: list[str] = []
        """Why a released workload could not be woken although the API server answered."""

    def begin(self) -> None:
        """All workloads exist."""
        self._calm = False

    def calm(self) -> None:
        self._calm = True

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._wake())
            while True:
                running = self._agents.running()
                for one in self._queues:
                    await self._at_queue(one, running.get(one.queue.name, []))
                for each in self._programs:
                    self._on_gpu(each, running.get(each.workload.name, []))
                await asyncio.sleep(TICK)

    def _pause(self, workload: ScaledWorkload) -> float:
        return time.time() + self._chance.uniform(1, GAP * workload.threshold)

    async def _at_queue(self, one: _Queue, pods: Sequence[str]) -> None:
        if time.time() >= one.next and not self._calm:
            for _ in range(self._chance.randint(1, 5)):
                await one.queue.push()
            one.next = self._pause(one.queue.workload)
        for uid, (message, end) in list(one.works.items()):
            if uid not in pods:
                one.orphans.append(one.works.pop(uid)[0])
                self.orphaned += 1
            elif time.time() < end:
                self._agents.worked(uid)
            else:
                del one.works[uid]
                self._agents.worked(uid)
                await one.queue.finish(message)
                self.done += 1
        for uid in pods:
            if uid not in one.works and (one.orphans or one.queue.waiting):
                message = one.orphans.pop() if one.orphans else await one.queue.take()
                self._agents.worked(uid)
                seconds = MESSAGE_SECONDS * self._chance.uniform(0.7, 1.3)
                one.works[uid] = message, time.time() + seconds

    def _on_gpu(self, one: _Program, pods: Sequence[str]) -> None:
        now = time.time()
        if one.now is None:
            if pods and now >= one.next and not self._calm:
                one.now = Work(self._chance.choice(pods), now, now + self._chance.uniform(0.5, 4))
                self.works.append(one.now)
        elif one.now.uid in pods and now < one.now.until:
            self._agents.worked(one.now.uid)
        else:
            one.now.until = min(now, one.now.until)
            one.now, one.next = None, self._pause(one.workload)

    async def _wake(self) -> None:
        """One after another, whether it sleeps or not, as a person does who does not look before."""
        while True:
            await asyncio.sleep(self._chance.uniform(0, 0.6))
            if self._calm or not self._programs:
                continue
            workload = self._chance.choice(self._programs).workload
            attempt = Attempt(workload.name, time.time())
            self.attempts.append(attempt)
            try:
                await wake(
                    self._agents.client, f"{workload.kind.lower()}/{workload.name}", self._agents.namespace
                )
            except BadInput as error:
                self.forgotten.append(str(error))
            except KubeError:
                pass  # the API server is away; whether it was woken is not known
            finally:
                attempt.ended = time.time()

"""Runs the agents of hollow nodes, the replicas' work and its queues in a thread beside the test."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import redis.asyncio

from cotenant.kube.api.auth import kubeconfig
from cotenant.kube.api.client import Client

from .hollowagents import HollowAgents
from .redisqueues import URL, MessageQueue, unfinished
from .scaledworkloads import ScaledWorkload
from .worktraffic import WorkTraffic


class HollowWorld:
    """All of it in one event loop: while it stands still, no replica works and no agent vouches for anything."""

    agents: HollowAgents
    traffic: WorkTraffic

    def __init__(
        self,
        access: Path,
        namespace: str,
        nodes: Sequence[str],
        workloads: Sequence[ScaledWorkload],
        seed: int,
    ) -> None:
        self._access, self._namespace, self._nodes = access, namespace, nodes
        self._workloads, self._seed = workloads, seed
        self.queues: list[MessageQueue] = []
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._begun = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        """On return, every queue exists."""
        self._thread.start()
        self._begun.wait(30)
        self.check()
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(30)
        self.check()

    def check(self) -> None:
        """Raises what has ended it."""
        if self._failed is not None:
            raise self._failed

    def until_worked_off(self, seconds: float) -> None:
        """Nothing new comes; every message that was sent is done."""
        self.traffic.calm()
        end = time.monotonic() + seconds
        while left := unfinished(self.queues):
            self.check()
            waiting = [each.name for each in self.queues if unfinished([each])]
            assert time.monotonic() < end, (
                f"{left} messages were not worked off in {seconds:.0f} s: {waiting}"
            )
            time.sleep(0.2)

    def _run(self) -> None:
        self._task = self._loop.create_task(self._live())
        try:
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._task)
        except BaseException as error:  # the test raises it
            self._failed = error
        finally:
            self._begun.set()
            self._loop.close()

    async def _live(self) -> None:
        queue = redis.asyncio.Redis.from_url(URL)
        async with Client(kubeconfig.find({}, path=self._access)) as client, queue:
            self.queues = [MessageQueue(each, queue) for each in self._workloads if each.queue]
            for each in self.queues:
                await each.create()
            self.agents = HollowAgents(client, self._namespace, self._nodes)
            annotated = [each for each in self._workloads if not each.queue]
            self.traffic = WorkTraffic(self.agents, self.queues, annotated, self._seed)
            self._begun.set()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.agents.run())
                tasks.create_task(self.traffic.run())

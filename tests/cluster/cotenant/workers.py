"""Plays the kubelet of nodes whose pods really work: each takes messages of its workload's queue, one at a time.

A bound pod runs at once and is ready after the cold start. From then on its worker takes messages. A pod that is deleted
finishes the message that it works on, and only then it is gone. Which queue a pod serves, its label `app` says.
"""

import asyncio
import contextlib
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Self

from cluster.testbed.api import Api, Object, Refused

from .following import LOST, follow
from .gpunodes import GIB, gpu_node
from .manifests import pods_of
from .queues import Queue

NODE = "working-"
"""Names of these nodes begin so: the hollow kubelet leaves them alone."""
THREADS = 6


def nodes(count: int, cards: int) -> list[Object]:
    """Makes nodes with cards of 80 GiB, for the pods of `Workers`."""
    made = []
    for number in range(count):
        node = gpu_node(f"hollow-{number}", [80 * GIB] * cards)
        node["metadata"]["name"] = f"{NODE}{number}"
        node["metadata"]["labels"]["kubernetes.io/hostname"] = f"{NODE}{number}"
        made.append(node)
    return made


class Workers:
    """The pods of one namespace on those nodes. `async with` starts and ends it."""

    def __init__(
        self, api: Api, namespace: str, queues: Mapping[str, Queue], cold_start: float, seconds: float
    ) -> None:
        """`queues`: by the pods' label `app`. `cold_start`: seconds until a pod is ready. `seconds`: of one message."""
        self._api, self._namespace, self._queues = api, namespace, queues
        self._cold_start, self._seconds = cold_start, seconds
        self.done: dict[str, Counter[str]] = {name: Counter() for name in queues}
        """How often each message was worked on, by workload."""
        self.starts: dict[str, list[tuple[float, float]]] = defaultdict(list)
        """When each pod was bound, by the monotonic clock, and the seconds until it was ready; by workload."""
        self.bound: dict[str, set[str]] = {name: set() for name in queues}
        """UIDs of the pods that have a node and are not gone, by workload."""
        self._leaving: dict[str, asyncio.Event] = {}
        """By UID, of all pods that were seen."""
        self._closed = threading.Event()
        self._pool = ThreadPoolExecutor(THREADS + 1)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._following = self._loop.run_in_executor(self._pool, self._follow)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed.set()
        for leaving in self._leaving.values():
            leaving.set()
        await asyncio.gather(self._following, *self._tasks)
        barrier = threading.Barrier(THREADS + 1)

        def close() -> None:
            """Runs once in each thread: each has a connection of its own."""
            barrier.wait()
            self._api.close()

        await asyncio.gather(*(self._loop.run_in_executor(self._pool, close) for _ in range(THREADS + 1)))
        self._pool.shutdown()

    def check(self) -> None:
        """Raises what a worker failed by."""
        for each in [each for each in self._tasks if each.done()]:
            self._tasks.discard(each)
            each.result()

    def _follow(self) -> None:
        for pod in follow(self._api, pods_of(self._namespace), self._closed):
            self._loop.call_soon_threadsafe(self._consider, pod)

    def _consider(self, pod: Object) -> None:
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        if not pod["spec"].get("nodeName", "").startswith(NODE):
            return
        if uid not in self._leaving:
            self._leaving[uid] = asyncio.Event()
            self._tasks.add(self._loop.create_task(self._live(pod, self._leaving[uid])))
        if "deletionTimestamp" in meta:
            self._leaving[uid].set()

    async def _live(self, pod: Object, leaving: asyncio.Event) -> None:
        begun, name, uid = time.monotonic(), pod["metadata"]["labels"]["app"], pod["metadata"]["uid"]
        self.bound[name].add(uid)
        await self._report(pod, ready=False)
        if not await _within(leaving, begun + self._cold_start - time.monotonic()):
            async with self._queues[name].worker() as worker:
                await self._report(pod, ready=True)
                self.starts[name].append((begun, time.monotonic() - begun))
                while not leaving.is_set():
                    message = await worker.take()
                    if message is not None:
                        await asyncio.sleep(self._seconds)
                        self.done[name][message] += 1
                        await worker.acknowledge()
        if not self._closed.is_set():
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
            await self._ask("DELETE", self._path(pod), options)
        self.bound[name].discard(uid)

    async def _report(self, pod: Object, *, ready: bool) -> None:
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": _status(pod, ready=ready)}
        content = "application/strategic-merge-patch+json"
        await self._ask("PATCH", f"{self._path(pod)}/status", body, content=content)

    def _path(self, pod: Object) -> str:
        return f"{pods_of(self._namespace)}/{pod['metadata']['name']}"

    async def _ask(self, method: str, path: str, body: Object, **more: Any) -> None:
        """Repeats what was lost. A pod that is gone, or another one of its name, is no fault."""
        while True:
            try:
                request = lambda: self._api.request(method, path, body, **more)  # noqa: E731
                return await self._loop.run_in_executor(self._pool, request)
            except Refused as refused:
                if refused.code in (404, 409, 422):
                    return None
                raise
            except LOST:
                await asyncio.sleep(0.2)


async def _within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _status(pod: Object, *, ready: bool) -> Object:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    said: Sequence[tuple[str, bool]] = (("Initialized", True), ("ContainersReady", ready), ("Ready", ready))
    containers = [
        {
            "name": each["name"],
            "image": each["image"],
            "imageID": "",
            "ready": ready,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for each in pod["spec"]["containers"]
    ]
    conditions = [
        {"type": kind, "status": str(state), "lastTransitionTime": now}
        for kind, state in said
        if ready is False or kind != "Initialized"
    ]
    return {
        "phase": "Running",
        "conditions": conditions,
        "containerStatuses": containers,
        **({} if ready else {"startTime": now}),
    }

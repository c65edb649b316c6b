"""Judges how a workload was sized, from the API and its queue alone: its backlog in seconds, and turns of its replicas."""

import asyncio
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Self

from cluster.testbed.api import Api, Object

from .following import follow
from .queues import Queue

SAMPLE = 0.2
"""Seconds between two questions for the depth of a queue."""
Series = list[tuple[float, int]]
"""Figures and when they were seen first, by the monotonic clock."""


@dataclass
class Seen:
    """One workload from when it was first looked at."""

    wanted: Series = field(default_factory=list)
    """`spec.replicas`, each change of it."""
    ready: Series = field(default_factory=list)
    """Replicas that are ready and stay, each change of it."""
    waiting: Series = field(default_factory=list)
    """Messages that wait, each sample."""

    @property
    def most(self) -> int:
        return max(count for _, count in self.wanted)

    @property
    def turns(self) -> int:
        """How often what was wanted changed its direction."""
        ways = [after > before for (_, before), (_, after) in pairwise(self.wanted)]
        return sum(one != other for one, other in pairwise(ways))

    def under(self, target: float, seconds: float, begun: float) -> float:
        """Returns after how long the backlog was under the target for good. `seconds`: what one message takes."""
        late = begun
        for (at, waiting), (following, _) in pairwise(self.waiting):
            ready = _at(self.ready, at)
            backlog = waiting * seconds / ready if ready else (inf if waiting else 0.0)
            if at >= begun and backlog >= target:
                late = following
        return late - begun

    def since(self, begun: float) -> "Seen":
        """Returns what was seen from then on, and the state in which it was found."""
        return Seen(*(_cut(each, begun) for each in (self.wanted, self.ready, self.waiting)))


class Judge:
    """Looks at the Deployments of one namespace and at their queues. `async with` starts and ends it."""

    def __init__(self, api: Api, namespace: str, queues: Mapping[str, Queue]) -> None:
        """`queues`: by the name of the Deployment."""
        self._api, self._path = api, f"/apis/apps/v1/namespaces/{namespace}/deployments"
        self._queues = queues
        self.seen = {name: Seen() for name in queues}
        self._closed = threading.Event()
        self._pool = ThreadPoolExecutor(1)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._work = [loop.run_in_executor(self._pool, self._follow), asyncio.ensure_future(self._sample())]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed.set()
        await asyncio.gather(*self._work)
        self._pool.shutdown()

    async def _sample(self) -> None:
        while not self._closed.is_set():
            for name, queue in self._queues.items():
                waiting = await queue.waiting()
                self.seen[name].waiting.append((time.monotonic(), waiting))
            await asyncio.sleep(SAMPLE)

    def _follow(self) -> None:
        for each in follow(self._api, self._path, self._closed):
            self._note(each)

    def _note(self, deployment: Object) -> None:
        seen = self.seen.get(deployment["metadata"]["name"])
        if seen is None:
            return
        now = time.monotonic()
        wanted, ready = deployment["spec"]["replicas"], deployment["status"].get("readyReplicas", 0)
        for series, count in ((seen.wanted, wanted), (seen.ready, min(ready, wanted))):
            if not series or series[-1][1] != count:
                series.append((now, count))


def _at(series: Series, at: float) -> int:
    return next((count for since, count in reversed(series) if since <= at), 0)


def _cut(series: Series, begun: float) -> Series:
    before = [(begun, count) for at, count in series if at < begun]
    return [*before[-1:], *((at, count) for at, count in series if at >= begun)]

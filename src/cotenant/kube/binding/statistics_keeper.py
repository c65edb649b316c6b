"""Decides when the statistics of ended pods are written: rarely, and never while no pod ends.

Nothing depends on the last few pods. So a write waits until a quarter more pods have ended than at the last
one, as learning does, or until some minutes have passed; a server that is stopped in order writes the rest. A
leader that is killed loses what it has not written: these pods then count for nothing, and none counts twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

from cotenant.core.errors import CotenantError
from cotenant.kube.api.backoff import Backoff
from cotenant.kube.api.errors import KubeError
from cotenant.kube.logs import get_logger
from cotenant.kube.scheduling.pod_statistics import EndedPods, PodStatistics

log = get_logger(__name__)

LOOK = 10.0
"""Seconds between two looks at how many pods have ended."""
LATEST = 600.0
"""Seconds after a write when the next one is due whatever has ended since."""
MANY = 1000
"""Ended pods after which a write is due."""
LAST = 2.0
"""Seconds for the last write of a server that is stopped."""


def is_due(written: int, ended: int, seconds: float) -> bool:
    """Reports whether to write: `written` pods had ended at the last write, `seconds` ago, `ended` now."""
    more = ended - written
    return more > 0 and (more >= min(MANY, max(1, written // 4)) or seconds >= LATEST)


@dataclass
class StatisticsKeeper:
    """`run()` writes until it is cancelled, in the term of this server."""

    statistics: PodStatistics
    write: Callable[[EndedPods], Awaitable[object]]
    must_lead: Callable[[], object]
    """Raises unless this server leads."""
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    random: Random = field(default_factory=Random, repr=False)

    async def run(self) -> None:
        statistics, at = self.statistics, self.clock()
        ended, new = statistics.ended, statistics.ended.since is None
        if ended.since is None:
            ended.since = self.wall()
        backoff = Backoff(LOOK, LATEST, self.random)
        try:
            while True:
                pause = LOOK
                if new or is_due(statistics.written, ended.pods, self.clock() - at):
                    try:
                        await self._write()
                    except CotenantError as error:
                        pause = backoff.next(error.retry_after if isinstance(error, KubeError) else None)
                        log.warning("statistics of ended pods not written", error=str(error))
                    else:
                        new, at = False, self.clock()
                        backoff.reset()
                await asyncio.sleep(pause)
        finally:
            if ended.pods != statistics.written:
                await self._write_last()

    async def _write(self) -> None:
        ended = self.statistics.ended
        pods = ended.pods
        await self.write(ended)
        self.statistics.written = pods

    async def _write_last(self) -> None:
        try:
            self.must_lead()
            async with asyncio.timeout(LAST):
                await self._write()
        except (CotenantError, TimeoutError) as error:
            log.info("statistics of the last ended pods not written", error=str(error))

"""Lets a choice wait for binds: for that of the choice before, and while many take long.

kube-scheduler sends the bind of one pod and the question about the next at the same time, and either may
arrive first. A choice that does not know of the last one ranks nodes as if that room were still free, and may
promise it twice: with 100 nodes on 2 busy cores 24 % of the choices did not know (3 % of prioritize's answers
do not).

And kube-scheduler may choose faster than a busy API server binds: it limits its own requests, but not those
to extenders. A bind has only seconds before its outcome is in doubt, and so has the Lease that is renewed
behind hundreds of them. So how long binds take decides how many may be under way (`docs/adr/0018`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from cotenant.kube.scheduling.cluster_ledger import ClusterLedger

NEXT_BIND = 0.01
"""Seconds that a choice waits for the bind of the one before. It may never come, or late, as with volumes
that are provisioned first, so it is waited for once.
"""
AT_ONCE = 16
"""Binds that may be under way however long they take."""
SLOW = 0.25
"""Seconds that the first of more than these may take before the next choice waits."""
OTHER_BINDS = 1.0
"""Seconds that it waits at most until there are fewer; kube-scheduler gives up after five."""


class BindOrder:
    """Knows the pod for which a node was chosen last, and since when which binds are under way."""

    def __init__(self, cluster: ClusterLedger) -> None:
        self._cluster = cluster
        self._chosen = ""
        self._numbers = count()
        self._under_way: dict[int, float] = {}
        """When each began, the first of them first."""
        self._waiting: set[asyncio.Future[None]] = set()

    def chosen(self, uid: str) -> None:
        """Notes that a node was named for this pod: its bind is next."""
        self._chosen = uid

    def must_wait(self) -> bool:
        """Reports whether the last bind has not been charged yet, or many are under way for long."""
        return self._awaits_last() or self._is_busy()

    def begun(self, uid: str) -> int:
        """Notes that a bind has arrived, and returns its number. Those who wait go on after the caller's next
        await: if it charges the pod before that, they see it.
        """
        number = next(self._numbers)
        self._under_way[number] = asyncio.get_running_loop().time()
        if uid == self._chosen:
            self._chosen = ""
            self._wake()
        return number

    def ended(self, number: int) -> None:
        """Notes that a bind is over, whatever came of it."""
        del self._under_way[number]
        self._wake()

    async def wait(self) -> None:
        """Returns when the next choice may be made."""
        if self._awaits_last():
            last = self._chosen
            await self._until(lambda: self._chosen != last, NEXT_BIND)
            if self._chosen == last:
                self._chosen = ""
        await self._until(lambda: not self._is_busy(), OTHER_BINDS)

    def _awaits_last(self) -> bool:
        return bool(self._chosen) and self._cluster.charged(self._chosen) is None

    def _is_busy(self) -> bool:
        if len(self._under_way) < AT_ONCE:
            return False
        first = next(iter(self._under_way.values()))
        return asyncio.get_running_loop().time() - first >= SLOW

    async def _until(self, done: Callable[[], bool], within: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while not done() and loop.time() < deadline:
            woken: asyncio.Future[None] = loop.create_future()
            timer = loop.call_at(deadline, _wake, woken)
            self._waiting.add(woken)
            try:
                await woken
            finally:
                timer.cancel()
                self._waiting.discard(woken)

    def _wake(self) -> None:
        for each in self._waiting:
            _wake(each)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)

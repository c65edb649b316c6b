"""Lets a choice wait for binds: for that of the choice before, and while many are under way.

kube-scheduler sends the bind of one pod and the question about the next at the same time, and either may
arrive first. A choice that does not know of the last one ranks nodes as if that room were still free, and may
promise it twice: with 100 nodes on 2 busy cores 24 % of the choices did not know (3 % of prioritize's answers
do not). And kube-scheduler may choose faster than a busy API server binds. On a machine that others used as
well, runs without a limit had up to a third of their binds refused since the Lease was not renewed in time;
those with this one had none. That is no proof: the load of the others was not the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cotenant.kube.scheduling.cluster_ledger import ClusterLedger

NEXT_BIND = 0.01
"""Seconds that a choice waits for the bind of the one before. It may never come, or late, as with volumes
that are provisioned first, so it is waited for once.
"""
AT_ONCE = 16
"""Binds that are under way before the next choice waits."""
OTHER_BINDS = 1.0
"""Seconds that it waits at most until there are fewer; kube-scheduler gives up after five."""


class BindOrder:
    """Knows the pod for which a node was chosen last, and how many are being bound."""

    def __init__(self, cluster: ClusterLedger) -> None:
        self._cluster = cluster
        self._chosen = ""
        self._under_way = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def chosen(self, uid: str) -> None:
        """Notes that a node was named for this pod: its bind is next."""
        self._chosen = uid

    def must_wait(self) -> bool:
        """Reports whether the last bind has not been charged yet, or many are under way."""
        return self._under_way >= AT_ONCE or self._awaits_last()

    def begun(self, uid: str) -> None:
        """Notes that a bind has arrived. Those who wait go on after the caller's next await: if it charges
        the pod before that, they see it.
        """
        self._under_way += 1
        if uid == self._chosen:
            self._chosen = ""
            self._wake()

    def ended(self) -> None:
        """Notes that a bind is over, whatever came of it."""
        self._under_way -= 1
        if self._under_way < AT_ONCE:
            self._wake()

    async def wait(self) -> None:
        """Returns when the next choice may be made."""
        if self._awaits_last():
            last = self._chosen
            await self._until(lambda: self._chosen != last, NEXT_BIND)
            if self._chosen == last:
                self._chosen = ""
        await self._until(lambda: self._under_way < AT_ONCE, OTHER_BINDS)

    def _awaits_last(self) -> bool:
        return bool(self._chosen) and self._cluster.charged(self._chosen) is None

    async def _until(self, done: Callable[[], bool], within: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while not done() and (left := deadline - loop.time()) > 0:
            woken: asyncio.Future[None] = loop.create_future()
            self._waiting.add(woken)
            try:
                await asyncio.wait([woken], timeout=left)
            finally:
                self._waiting.discard(woken)

    def _wake(self) -> None:
        for each in self._waiting:
            if not each.done():
                each.set_result(None)

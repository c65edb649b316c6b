"""Runs `cotenant up`: one loop over all workloads of a user, until it is interrupted or nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Collection

from cotenant.core.errors import CotenantError
from cotenant.local.machine import Machine, now
from cotenant.local.scalers.folder import ScalerFolder
from cotenant.local.scalers.scaler import Scaler
from cotenant.local.snapshot import living_jobs
from cotenant.signals.servers import Servers

TICK = 0.5
"""Seconds between two looks at the replicas."""


async def supervise(
    machine: Machine, folder: ScalerFolder, tell: Callable[[str], None], only: Collection[str] | None = None
) -> bool:
    """Scales until a signal comes (False: replicas run on) or no workload is left (True). With `only` it
    looks after no others than these. The caller holds the right to scale.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    running = _Running(machine, folder, tell, only)
    try:
        while not stop.is_set():
            if await running.round():
                return True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), running.pause)
        return False
    finally:
        await running.close()


class _Running:
    def __init__(
        self,
        machine: Machine,
        folder: ScalerFolder,
        tell: Callable[[str], None],
        only: Collection[str] | None,
    ) -> None:
        self._machine, self._folder, self._tell, self._only = machine, folder, tell, only
        self._servers = Servers()
        self._scalers: dict[str, Scaler] = {}
        self._version: tuple[int, int] | None = None
        self._due: dict[str, float] = {}
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._problem: str | None = None

    @property
    def pause(self) -> float:
        polls = [each.declared.poll for each in self._scalers.values() if each.declared is not None]
        return min([TICK, *polls])

    async def round(self) -> bool:
        """Looks after every workload once; True if there is no workload left."""
        try:
            await self._reload()
            jobs = living_jobs(self._machine)
            for scaler in list(self._scalers.values()):
                scaler.tend(jobs)
                if scaler.gone:
                    self._tell(f"{scaler.name}: down")
                    self._folder.forget(scaler.name)
                    del self._scalers[scaler.name]
            for scaler in self._scalers.values():
                self._begin_poll(scaler)
            self._folder.cut_log("up")
        except CotenantError as error:  # a full disk, a damaged ledger: the replicas run on
            if str(error) != self._problem:
                self._tell(f"{error}; trying again")
            self._problem = str(error)
            return False
        self._problem = None
        return not self._scalers

    async def close(self) -> None:
        for poll in self._polls.values():
            poll.cancel()
        await asyncio.gather(*self._polls.values(), return_exceptions=True)
        for scaler in self._scalers.values():
            await scaler.close()
        await self._servers.close()

    async def _reload(self) -> None:
        version = self._folder.declared_version()
        if version == self._version:
            return
        declared = {each.name: each for each in self._folder.declared()}
        for name in sorted({*declared, *self._folder.up(self._machine.store.jobs()), *self._scalers}):
            if self._only is not None and name not in self._only:
                continue
            if (poll := self._polls.pop(name, None)) is not None:  # it uses the former signals
                poll.cancel()
                await asyncio.gather(poll, return_exceptions=True)
            scaler = self._scalers.get(name)
            if scaler is None:
                scaler = self._scalers[name] = Scaler(self._machine, self._folder, name, self._tell)
            await scaler.declare(declared.get(name), self._servers)
        self._version = version

    def _begin_poll(self, scaler: Scaler) -> None:
        running = self._polls.get(scaler.name)
        if running is not None and running.done():
            del self._polls[scaler.name]
            running.result()
        elif running is not None:
            return
        if scaler.declared is not None and now() >= self._due.get(scaler.name, 0.0):
            self._due[scaler.name] = now() + scaler.declared.poll
            self._polls[scaler.name] = asyncio.create_task(scaler.poll())

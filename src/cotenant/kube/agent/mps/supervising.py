"""Keeps the MPS control daemons of a node running: one supervisor for each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cotenant.core.errors import CotenantError
from cotenant.core.gpu import GPU
from cotenant.dialects.mps import parse_mebibytes
from cotenant.hardware.mps.control import PATH, find_program
from cotenant.hardware.mps.supervisor import LOOK, Defaults, Supervisor
from cotenant.kube.agent.cards.driver import cards_of
from cotenant.kube.agent.mps.layout import SHARED_MEMORY, DaemonPlan, MpsFolders, folders_of, plans
from cotenant.kube.agent.mps.settings import MpsSettings
from cotenant.kube.logs import get_logger
from cotenant.kube.settings import Settings

log = get_logger(__name__)

_CARDS = 10.0
"""Seconds between two looks for new GPUs."""


def program_of(settings: MpsSettings, environ: Mapping[str, str]) -> Path:
    """Finds nvidia-cuda-mps-control, as the settings say or on PATH."""
    return find_program(environ, settings.program) if settings.program else find_program(environ)


def shared_memory_fault(folders: MpsFolders, own: Path = SHARED_MEMORY) -> str | None:
    """Says why processes in containers could not share memory with a server that is started here."""
    try:
        same = os.path.samestat(own.stat(), folders.shared_memory.stat())
    except OSError as error:
        return f"mps.shared_memory: {error.filename}: {error.strerror}"
    if same:
        return None
    return (
        f"mps.shared_memory: {own} is not {folders.shared_memory} here, and containers get that as their "
        f"{own}: their processes could not connect. Mount it here too, as the chart does, or set it to {own}"
    )


@dataclass
class Supervising:
    """`run()` works until it is cancelled, and leaves the daemons running."""

    settings: MpsSettings
    folders: MpsFolders
    environ: Mapping[str, str]
    gpus: Callable[[], Sequence[GPU] | None]
    """The node's GPUs; None while they are not known."""
    supervisors: dict[str, Supervisor] = field(default_factory=dict)
    _plans: dict[str, DaemonPlan] = field(default_factory=dict)

    async def run(self) -> None:
        self.folders.make()
        async with asyncio.TaskGroup() as tasks:
            while True:
                gpus = self.gpus()
                for plan in plans(self.settings.daemons, gpus) if gpus is not None else ():
                    self._plans[plan.key] = plan
                    if plan.key not in self.supervisors:
                        self.supervisors[plan.key] = self._supervisor(plan)
                        tasks.create_task(self.supervisors[plan.key].run())
                await asyncio.sleep(_CARDS if gpus is not None else LOOK)

    def trouble(self) -> str | None:
        """Says why clients cannot rely on MPS; None if they can."""
        fault = shared_memory_fault(self.folders)
        if fault is not None:
            return fault
        if not self.supervisors and self.gpus() != []:
            return "no MPS control daemon has been started yet"
        found = (each.trouble for each in self.supervisors.values())
        return next((trouble for trouble in found if trouble is not None), None)

    def _supervisor(self, plan: DaemonPlan) -> Supervisor:
        own = {"PATH": ":".join(filter(None, (self.environ.get("PATH"), PATH)))}
        if libraries := self.environ.get("LD_LIBRARY_PATH"):
            own["LD_LIBRARY_PATH"] = (
                libraries  # some runtimes mount the driver where the loader does not look
            )
        return Supervisor(
            self.folders.place(plan.key),
            partial(program_of, self.settings, self.environ),
            lambda: self._defaults(plan.key),
            environ={**plan.environment(), **own},
            options=("-multiuser-server",) if self.settings.users == "any" else (),
            tell=lambda words: log.info(words, daemon=plan.key),
            warn=lambda words: log.warning(words, daemon=plan.key),
        )

    def _defaults(self, key: str) -> Defaults:
        own = self.settings
        return Defaults(
            own.active_thread_percentage,
            parse_mebibytes(own.pinned_memory, "mps.pinned_memory") if own.pinned_memory else None,
            devices=max(1, len(self._plans[key].gpus)),
        )


async def supervise(settings: Settings, environ: Mapping[str, str] = os.environ) -> None:
    """Works as a process of its own, beside the agent, until it is cancelled."""
    own = settings.mps
    if own.daemons == "off":
        log.info("MPS is off: mps.daemons")
        await asyncio.Event().wait()
    nvml = cards_of(settings.agent).nvml()
    known: list[GPU] | None = None
    said: str | None = None

    async def look() -> None:
        nonlocal known, said
        while True:
            try:
                known = [each.gpu for each in (await asyncio.to_thread(nvml.read)).cards]
                said = None
            except CotenantError as error:
                if str(error) != said:
                    log.warning("the GPUs cannot be read", error=error)
                said = str(error)
            await asyncio.sleep(_CARDS)

    work = Supervising(own, folders_of(own, settings.agent.slots), environ, lambda: known)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(look())
        tasks.create_task(work.run())
        tasks.create_task(_report(work))


async def _report(work: Supervising) -> None:
    """Logs trouble when it changes: nobody asks this process whether it is ready."""
    said: str | None = None
    while True:
        trouble = work.trouble()
        if trouble != said:
            log.info("MPS is ready") if trouble is None else log.warning("MPS is not ready", reason=trouble)
        said = trouble
        await asyncio.sleep(1.0)

"""Holds everything that the checks of one machine look at."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cotenant.core.gpu import GPU
from cotenant.hardware import slots
from cotenant.hardware.accounting import GpuAccount
from cotenant.hardware.nvml import CardReading
from cotenant.local.doctor.libraries import System
from cotenant.local.doctor.places import PathAccess
from cotenant.local.home import Home
from cotenant.local.job import Job


class LedgerFault(NamedTuple):
    text: str
    damaged: bool
    """It can be rebuilt; otherwise the file may be intact and only cannot be used."""


class Row(NamedTuple):
    """A row of the ledger, and what is found of it on the machine."""

    job: Job
    alive: bool
    limits: slots.Limits | None = None
    obstacle: str | None = None
    """Why its slot cannot be used; None if it can, and for a job that waits."""


class Stray(NamedTuple):
    """The folder of a slot that no row of the ledger names."""

    folder: Path
    alive: bool
    job: Job | None
    """What its files say."""


class Holding(NamedTuple):
    """What a process of a grant holds on a GPU."""

    job: Job
    pid: int
    told: int
    """Bytes that NVML reports."""
    counted: int | None
    """Bytes that the slot counts; None if the shim is not loaded into the process."""


class GpuFacts(NamedTuple):
    reading: CardReading
    account: GpuAccount
    holdings: tuple[Holding, ...] = ()

    @property
    def gpu(self) -> GPU:
        return self.reading.gpu


class MachineFacts(NamedTuple):
    home: Home
    system: System
    access: tuple[PathAccess, ...] = ()
    filesystem: str = "tmpfs"
    """Of the slots."""
    locked_by: str | None = None
    """The process that holds the ledger's lock all the time."""
    ledger: LedgerFault | None = None
    rows: tuple[Row, ...] = ()
    strays: tuple[Stray, ...] = ()
    driver: str | None = None
    """Why the GPUs cannot be read."""
    cards: tuple[GpuFacts, ...] = ()
    unused_mps: Path | None = None
    """The pipe folder of the user's own MPS control daemon, if it runs and no command needs it."""

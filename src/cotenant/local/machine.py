"""Holds what local mode works with; each command composes it once."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cotenant.core.caps import NO_CAPS, Caps
from cotenant.hardware.enforcers.shim import Shim
from cotenant.hardware.nvml import Readings
from cotenant.local.home import Home
from cotenant.local.store import LedgerStore

PATIENCE = 60.0


class GpuReader(Protocol):
    """Reads the state of the GPUs: hardware/nvml.py."""

    def read(self) -> Readings: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Machine:
    home: Home
    store: LedgerStore
    cards: GpuReader
    shim: Shim
    """Holds commands to their limits."""
    context_bytes: int
    """What one CUDA context is charged on each GPU."""
    patience: float = PATIENCE
    """Seconds for which a demand may be passed by smaller ones; then GPUs are held for it."""
    caps: Caps = NO_CAPS
    """The most that each user may have."""
    card_environment: Mapping[str, str] = field(default_factory=dict)
    """What a command needs to find simulated GPUs; empty for real ones."""
    itself: tuple[str, ...] = ("cotenant",)
    """The command line by which Cotenant calls itself for the same GPUs and ledger."""


def now() -> float:
    """Seconds since boot: the same for all processes, and unaffected by changes of the clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)

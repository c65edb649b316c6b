"""Everything that local mode works with, put together once by whoever starts it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cotenant.hardware.nvml import Readings
from cotenant.local.home import Home
from cotenant.local.store import Store

PATIENCE = 60.0


class Cards(Protocol):
    """Where the cards' state is read."""

    def read(self) -> Readings: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Machine:
    home: Home
    store: Store
    cards: Cards
    shim: Path
    """The library that is loaded into commands."""
    context_bytes: int
    """What a CUDA context is taken to cost on each card."""
    patience: float = PATIENCE
    """Seconds for which a demand may be passed by smaller ones; then cards are held for it."""
    card_environment: Mapping[str, str] = field(default_factory=dict)
    """What a command needs to find simulated cards; nothing for real ones."""


def now() -> float:
    """Seconds since boot: the same for all processes, and no clock change moves it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)

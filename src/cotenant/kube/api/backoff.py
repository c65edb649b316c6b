"""Computes pauses between retries: exponential, with jitter, so that clients do not all come back at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random


@dataclass
class Backoff:
    """Doubles from `first` to `longest` seconds; each pause is drawn from the upper half of its range."""

    first: float
    longest: float
    random: Random
    _tries: int = field(default=0, init=False)

    def next(self, at_least: float | None = None) -> float:
        """Returns the next pause in seconds. `at_least` is the server's Retry-After; its jitter only adds."""
        whole = min(self.longest, self.first * 2.0 ** min(self._tries, 32))
        self._tries += 1
        pause = whole * (0.5 + self.random.random() / 2)
        return pause if at_least is None else max(pause, at_least * (1 + self.random.random() / 4))

    def reset(self) -> None:
        self._tries = 0

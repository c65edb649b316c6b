"""How long to wait before the next try, so that many clients of one server do not come back together."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random


@dataclass
class Backoff:
    """Doubles from `first` to `most` seconds; each pause is drawn from the upper half of its range."""

    first: float
    most: float
    random: Random
    _tries: int = field(default=0, init=False)

    def next(self, at_least: float | None = None) -> float:
        """Seconds; `at_least` is what the server asked for, which is jittered upwards only."""
        whole = min(self.most, self.first * 2.0 ** min(self._tries, 32))
        self._tries += 1
        pause = whole * (0.5 + self.random.random() / 2)
        return pause if at_least is None else max(pause, at_least * (1 + self.random.random() / 4))

    def reset(self) -> None:
        self._tries = 0

"""Describes one GPU: UUID, model, memory, health."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class GPU:
    """One physical card or one MIG instance."""

    uuid: str
    index: int
    """Only for display and for breaking ties; it may change at the next boot."""
    model: str
    memory: int
    """Capacity in bytes: the total less what the driver keeps for itself."""
    healthy: bool = True
    """An unhealthy GPU gets no new grants; those on it stay charged."""
    parent: str | None = None
    """UUID of the physical card if this is a MIG instance."""

    def __post_init__(self) -> None:
        if not self.uuid:
            raise ValueError("a GPU needs a UUID")
        if self.memory < 0:
            raise ValueError(f"GPU {self.uuid} cannot have {self.memory} bytes")

    def is_model(self, wish: str) -> bool:
        """Whether it is this model: `A100` and `A100-80GB` match `NVIDIA A100-SXM4-80GB`, `A10` does not."""
        words = iter(_words(self.model))
        wished = _words(wish)
        return bool(wished) and all(word in words for word in wished)

    def __str__(self) -> str:
        return f"GPU {self.index}"


@cache
def _words(model: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[a-z0-9]+", model.lower()))

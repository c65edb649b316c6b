"""Describes one GPU: UUID, model, memory, health."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

LONGEST_MODEL = 128
"""Characters of a model's name."""


@dataclass(frozen=True, slots=True)
class GPU:
    """One physical card or one MIG instance."""

    uuid: str
    index: int
    """The driver's own index of a physical card, as nvidia-smi and NVIDIA's container runtime count; it may
    change at the next boot. A MIG instance has none there: its number is only for display.
    """
    model: str
    memory: int
    """Capacity in bytes: the total less what the driver keeps for itself."""
    healthy: bool = True
    """An unhealthy GPU gets no new grants; those on it stay charged."""
    parent: str | None = None
    """UUID of the physical card if this is a MIG instance."""
    shared: bool = False
    """It has no memory of its own: its memory is the host's, and the processor uses it too."""

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


def named(asked: str, gpus: Iterable[GPU]) -> list[GPU]:
    """Finds the GPUs that may be meant by an index, a UUID, or the beginning of a UUID."""
    if asked.isascii() and asked.isdigit():
        return [gpu for gpu in gpus if gpu.index == int(asked)]
    found = [gpu for gpu in gpus if begins(gpu.uuid, asked)]
    exact = [gpu for gpu in found if gpu.uuid == asked]
    return exact or found


def begins(uuid: str, asked: str) -> bool:
    """Whether this is the UUID or its beginning: `GPU-5a3f` or `5a3f`, but not `GPU-`, which all have."""
    begun, whole = asked.lower(), uuid.lower()
    kind = _KIND.match(whole)
    number = whole[kind.end() :] if kind else whole
    own = _KIND.match(begun)
    if own is None:
        return bool(begun) and number.startswith(begun)
    return len(begun) > own.end() and whole.startswith(begun)


_KIND = re.compile(r"mig-gpu-|mig-|gpu-")


def _words(model: str) -> tuple[str, ...]:
    """A longer text than any model's name has is cut: others write it, and it is cached."""
    return _split(model[:LONGEST_MODEL])


@lru_cache(maxsize=1024)
def _split(model: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[a-z0-9]+", model.lower()))

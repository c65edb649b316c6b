"""Numbers the kinds of GPUs: model and size. A cluster has thousands of GPUs and a few kinds of them.

What depends on a GPU's kind alone, whether a wish allows it and what a percentage of it is, is worked out
once a kind, exactly, by the core; the matrix then only looks it up.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from cotenant.core.demand import Memory
from cotenant.core.gpu import GPU

NO_CARD = 0
"""The kind of a place in the matrix where there is no card: no wish allows it, nothing fits on it."""

NOWHERE = int(np.iinfo(np.int64).max)
"""More bytes than any card has free, and last in every order."""

_MOST_REMEMBERED = 128


class Kinds:
    """Numbers the kinds and remembers, for each wish and percentage, the answer for each of them."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], int] = {}
        self._gpus: list[GPU] = []
        self._accepts: dict[tuple[str, ...], NDArray[np.bool_]] = {}
        self._needs: dict[Fraction, NDArray[np.int64]] = {}

    @property
    def gpus(self) -> tuple[GPU, ...]:
        """One GPU of each kind, in the order of the numbers, which begin at 1."""
        return tuple(self._gpus)

    def __len__(self) -> int:
        return len(self._gpus)

    def number(self, gpu: GPU) -> int:
        key = gpu.model, gpu.memory
        number = self._numbers.get(key)
        if number is None:
            self._gpus.append(gpu)
            number = self._numbers[key] = len(self._gpus)
        return number

    def model(self, number: int) -> str:
        return self._gpus[number - 1].model

    def accepts(self, models: tuple[str, ...]) -> NDArray[np.bool_]:
        """By kind: whether any of these wishes names it."""
        known = self._accepts.get(models)
        have = NO_CARD + 1 if known is None else len(known)
        if known is None or have <= len(self._gpus):
            new = [any(gpu.is_model(wish) for wish in models) for gpu in self._gpus[have - 1 :]]
            before = np.zeros(1, np.bool_) if known is None else known
            known = np.concatenate((before, np.array(new, np.bool_)))
            if len(self._accepts) >= _MOST_REMEMBERED:
                self._accepts.clear()
            self._accepts[models] = known
        return known

    def needs(self, percent: Fraction) -> NDArray[np.int64]:
        """By kind: how many bytes the percentage is."""
        known = self._needs.get(percent)
        have = NO_CARD + 1 if known is None else len(known)
        if known is None or have <= len(self._gpus):
            memory = Memory(percent=percent)
            new = [memory.on(gpu.memory) for gpu in self._gpus[have - 1 :]]
            before = np.full(1, NOWHERE, np.int64) if known is None else known
            known = np.concatenate((before, np.array(new, np.int64)))
            if len(self._needs) >= _MOST_REMEMBERED:
                self._needs.clear()
            self._needs[percent] = known
        return known

"""Declares the settings of the line."""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.settings.declaring import Interval, Seconds


@dataclass(frozen=True, slots=True)
class LineSettings:
    """How waiting pods are served."""

    patience: Seconds = 60.0
    """A pod that has waited so long has room held for it, so that smaller ones cannot starve it."""
    retry: Interval = 2.0
    """A pod that was told to try again and is still unbound is told again after this time."""
    evict: bool = True
    """A pod of higher priority may have others evicted also where a node's sums would do for it and only its
    cards are too full; kube-scheduler evicts where the sums do not do. PodDisruptionBudgets are kept.
    """

"""Declares the settings of the line."""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.settings.declaring import Interval, Seconds


@dataclass(frozen=True, slots=True)
class LineSettings:
    """How waiting pods are served."""

    patience: Seconds = 60.0
    """A pod that has waited this long has GPUs held for it, so that smaller pods cannot starve it."""
    retry: Interval = 2.0
    """A pod that was offered room and is still unbound is offered it again after this time."""
    evict: bool = True
    """Whether to evict lower-priority pods when a node has enough free memory in total but no single GPU has.
    If the total is too small, kube-scheduler evicts. PodDisruptionBudgets are respected.
    """

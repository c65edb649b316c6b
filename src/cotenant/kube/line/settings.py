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
    backoff: Seconds = 10.0
    """The longest backoff of kube-scheduler (its podMaxBackoffSeconds): for this long after a pod was offered
    room, GPUs stay held for it unless kube-scheduler has tried it.
    """
    evict: bool = True
    """Whether to evict lower-priority pods when a node has enough free memory in total but no single GPU has.
    If the total is too small, kube-scheduler evicts. PodDisruptionBudgets are respected.
    """

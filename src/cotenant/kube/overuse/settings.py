"""Declares the settings for pods that hold more GPU memory than their limit."""

from __future__ import annotations

from dataclasses import dataclass

from cotenant.core.eviction import Eviction
from cotenant.settings.declaring import Seconds


@dataclass(frozen=True, slots=True)
class LimitsSettings:
    """What happens to pods that hold more GPU memory than their limit."""

    evict_over_limit: Eviction = "dry-run"
    """Whether such a pod is evicted: `off`, `dry-run` (an event says that it would be) or `on`. A namespace's
    label `cotenant.dev/evict-over-limit` sets it for the namespace; a pod's annotation of that name can only
    be stricter. PodDisruptionBudgets are respected.
    """
    evict_after: Seconds = 30.0
    """For how long the agent must have reported it before."""

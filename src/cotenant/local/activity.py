"""Reads from a job's slot since when it does not use its GPU."""

from __future__ import annotations

import time

from cotenant.hardware.slots import Usage
from cotenant.local.job import Job
from cotenant.local.machine import now


def running_seconds(job: Job) -> float:
    """Returns the seconds since its grant; 0 while it waits."""
    at = now()
    return max(0.0, at - (job.granted or at))


def idle_seconds(usage: Usage, running: float) -> float:
    """Returns the seconds since the last launch or allocation; since the grant if there was none."""
    if not usage.last_active:
        return running
    return max(0.0, (time.monotonic_ns() - usage.last_active) / 1e9)

"""Finds a job by its name or id."""

from __future__ import annotations

from collections.abc import Iterable

from cotenant.core.errors import BadInput
from cotenant.local.job import Job


def by_name(jobs: Iterable[Job], name: str) -> Job:
    """Finds the job with this name, else with this id; BadInput lists the names there are."""
    known = list(jobs)
    for job in known:
        if job.name == name:
            return job
    for job in known:
        if job.id == name:
            return job
    present = ", ".join(sorted(job.name for job in known)) or "nothing"
    raise BadInput(f"nothing named {name!a} runs or waits here: there is {present}")

"""Makes histories of the commands that `cotenant run` and `cotenant up` have run on this machine.

The slot counts the peak of each run from its start, so every run is a cold start that was seen to its end.
Runs of one name, or replicas of one workload, are replicas. When a peak was reached is not known: it counts
for the moment at which the run ended.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from cotenant.advice.gathered import Gathered
from cotenant.core.rightsizing.collecting import STEP
from cotenant.core.rightsizing.groups import Owner, pooled
from cotenant.core.rightsizing.history import Track
from cotenant.local.ended import EndedJob

_NUMBERED = re.compile(r"(.+)-[0-9]+")


def past_runs(ended: Sequence[EndedJob], source: str) -> Gathered:
    """Returns the histories; those whose peak the shim did not count are left out."""
    measured = [each for each in ended if each.measured]
    names = {each.name for each in measured}
    tracks: dict[Owner, list[Track]] = {}
    latest: dict[Owner, tuple[float, int]] = {}
    for job in measured:
        owner = Owner(job.workload or _name(job.name, names))
        for share in job.shares:
            peak = float(share.peak or 0)
            bucket = array("q", [int(job.ended // STEP)])
            tracks.setdefault(owner, []).append(
                Track(job.id, share.uuid, bucket, array("d", [peak]), 1, peak, job.ended, since_start=True)
            )
        largest = max(share.limit for share in job.shares)
        latest[owner] = max(latest.get(owner, (0.0, 0)), (job.ended, largest))
    denied = Counter[Owner]()
    for job in measured:
        owner = Owner(job.workload or _name(job.name, names))
        if max(share.limit for share in job.shares) == latest[owner][1]:  # others had another limit
            denied[owner] += job.denied
    groups = tuple(
        replace(each, now=latest[each.owner][1], denied=denied[each.owner]) for each in pooled(tracks)
    )
    skipped = len(ended) - len(measured)
    notes = (f"{skipped} runs used no GPU, or were not limited by the shim: left out",) if skipped else ()
    return Gathered(
        groups, STEP, source, starts_are_seen=True, samples=len(measured), notes=notes, live=False
    )


def _name(name: str, names: set[str]) -> str:
    """Returns the name without the number that told it apart from another that ran at the same time."""
    found = _NUMBERED.fullmatch(name)
    return found[1] if found and found[1] in names else name

"""Histories for tests: levels at every bucket, from a bucket on."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from cotenant.core.rightsizing.groups import Group, Owner
from cotenant.core.rightsizing.history import Pool, Track

GIB = 1 << 30


def track(
    levels: Sequence[float | None],
    instance: str = "a",
    first: int = 0,
    gpu: str = "",
    *,
    since_start: bool = False,
) -> Track:
    """One bucket for each level; None is a bucket without samples."""
    found = [(first + at, float(level)) for at, level in enumerate(levels) if level is not None]
    peaks = array("d", [level for _, level in found])
    top = max(peaks)
    return Track(
        instance,
        gpu,
        array("q", [bucket for bucket, _ in found]),
        peaks,
        len(found),
        top,
        found[peaks.index(top)][0] * 300.0,
        since_start,
    )


def group(
    *tracks: Track, workload: str = "w", siblings: Sequence[Track] | None = None, **fields: object
) -> Group:
    return Group(Owner(workload, "", "main"), tracks, Pool(siblings or tracks), **fields)  # type: ignore[arg-type]

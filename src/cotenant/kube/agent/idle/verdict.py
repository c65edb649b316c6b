"""Decides whether a pod is idle on its GPUs, from the activity of its slots.

A pod is idle if no container of it has launched a kernel or allocated memory for some seconds. A container
that has never used its GPU is idle since it got it. Not idle: a container that has not started, one that is
loading (not ready, and nothing launched yet), and one on whose GPU the driver sees a kernel. Where a
program's calls are not seen, nobody knows: that is never idle either.

Times are CLOCK_MONOTONIC nanoseconds: wall clocks jump.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

SECOND = 10**9
_MOST_NAMED = 4
"""Containers that a message names."""


class Activity(NamedTuple):
    """What one container of a pod, with a share of a GPU, has done with it."""

    container: str
    last: int = 0
    """Of its last use of the GPU, or since when it has it if it never used it."""
    used: bool = False
    """Whether it has used the GPU since it started."""
    starting: str | None = None
    """Why it does not count as idle whatever its slot says; None if it has started."""
    unseen: str | None = None
    """Why its activity cannot be seen; None if it can."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A condition without its times."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    """If the status is True, it ends with `since`, and the time follows."""
    at: int
    """True: of the last activity. False: of the activity that was seen, or the present. Unknown: the
    present.
    """


def verdict(activities: Sequence[Activity], now: int, after: int) -> Verdict:
    """Judges a pod by its containers with a share of a GPU, of which there is at least one. `after`: idle for
    this long counts. One container that is seen at work is enough, even if others cannot be seen.
    """
    starting = next((each for each in activities if each.starting is not None), None)
    if starting is not None:
        return Verdict("False", "Starting", f"container {starting.container} {starting.starting}", now)
    latest = max(activities, key=lambda each: each.last)
    if now - latest.last < after:
        if latest.used:
            return Verdict("False", "Working", f"container {latest.container} uses its GPU", latest.last)
        return Verdict("False", "Starting", f"container {latest.container} has just got its GPU", latest.last)
    unseen = next((each for each in activities if each.unseen is not None), None)
    if unseen is not None:
        return Verdict("Unknown", "NotMeasured", f"container {unseen.container}: {unseen.unseen}", now)
    if any(each.used for each in activities):
        done = "launched no kernel and allocated no GPU memory since"
        return Verdict("True", "NoActivity", f"{_named(activities)} {done}", latest.last)
    return Verdict("True", "NeverUsed", f"{_named(activities)} not used a GPU since", latest.last)


def _named(activities: Sequence[Activity]) -> str:
    names = [each.container for each in activities]
    more = len(names) - _MOST_NAMED
    listed = ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"container {listed} has" if len(names) == 1 else f"containers {listed} have"

"""Writes and reads what holds a pod to its limits of GPU memory: the condition `cotenant.dev/GPULimitHeld`.

The agent of the pod's node writes it (kube/agent/limits), at changes only. One that holds is True. The
message begins with what was asked for and what holds, so that both can be read from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from cotenant.dialects import names
from cotenant.kube.api.objects import Condition, Pod, find_condition

Reason = Literal["Driver", "Shim", "Watch", "NotHeld", "OverLimit"]
_BEGINS = re.compile(r"asked ([a-z]{1,20}), holds ([a-z]{1,20}): (.*)", re.DOTALL)
LONGEST = 1024
"""Characters of the message."""
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class LimitHeld:
    """The condition, read."""

    status: str
    reason: str
    asked: str
    """The enforcer that the node was to hold it with."""
    holds: str
    """The one that does, for its weakest container."""
    details: str
    """What was seen of each container."""

    @property
    def is_problem(self) -> bool:
        """Whether a limit that should hold does not."""
        return self.status == "False" and self.reason in ("NotHeld", "OverLimit")

    @property
    def is_over(self) -> bool:
        return self.status == "False" and self.reason == "OverLimit"


def message(asked: str, holds: str, details: str) -> str:
    return f"asked {asked}, holds {holds}: {details}"[:LONGEST]


def condition_of(pod: Pod) -> Condition | None:
    return find_condition(pod.status.conditions, names.GPU_LIMIT_HELD)


def limit_held(pod: Pod) -> LimitHeld | None:
    """Returns None for a pod of which nothing was reported yet."""
    found = condition_of(pod)
    if found is None:
        return None
    match = _BEGINS.fullmatch(found.message[:LONGEST])
    if match is None:
        return LimitHeld(found.status, found.reason, _UNKNOWN, _UNKNOWN, found.message[:LONGEST])
    return LimitHeld(found.status, found.reason, match[1], match[2], match[3])

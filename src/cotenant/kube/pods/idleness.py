"""Reads from a pod whether it works on its GPUs, or since when it has been idle.

The agent of the pod's node writes it as the condition `cotenant.dev/GPUIdle` (kube/agent/idle), at changes
only. A pod that has never been idle has no such condition.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from cotenant.dialects import names
from cotenant.kube.api.objects import Condition, Pod, find_condition

_LONGEST = 300
"""Characters of a condition's message that are repeated."""


@dataclass(frozen=True, slots=True)
class Working:
    """It uses a GPU, or is about to: it is loading, or one of its containers has not started."""

    since: float | None = None
    """Unix time at which its agent saw it work again; None if it has not been idle since it started."""


@dataclass(frozen=True, slots=True)
class Idle:
    """None of its containers uses its GPU."""

    since: float
    """Unix time of the last activity, or at which it got its GPU if it has never used it. By the clock of its
    node: it may be in the future of the reader's.
    """


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can tell. Treat it as working, and say why."""

    reason: str
    """As a clause: `the agent of node n1 does not report`."""


Idleness = Working | Idle | Unknown


def idleness(pod: Pod, agent_gone: str | None = None) -> Idleness:
    """Reads the condition of a pod that is on a node. `agent_gone` says why the agent of its node does not
    report: what it wrote last may no longer be true, so it is not used then.
    """
    if agent_gone is not None:
        return Unknown(agent_gone)
    if pod.status.phase != "Running":
        return Unknown(f"the pod is {pod.status.phase or 'not started'}")
    found = find_condition(pod.status.conditions, names.GPU_IDLE)
    if found is None:
        return Working()
    at = _seconds(found.last_transition_time)
    if found.status == "False":
        return Working(at)
    if found.status == "True" and at is not None:
        return Idle(at)
    return Unknown(_said(found))


def _said(found: Condition) -> str:
    if found.status == "True":
        return f"condition {names.GPU_IDLE} has no lastTransitionTime"
    return (found.message or found.reason)[:_LONGEST] or f"condition {names.GPU_IDLE} gives no reason"


def _seconds(at: datetime | None) -> float | None:
    if at is None:
        return None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()

"""Makes the status of a GpuScaler, and decides when it is worth a write.

What a crash must not lose is written at once: a decision before it is carried out, work that begins, idleness
that has begun. Figures that only inform, and the recent load of a workload that works, are written now and
then. A workload that stays idle costs no write at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cotenant.core.scaling import State
from cotenant.core.units import format_duration
from cotenant.kube.api.timestamps import timestamp
from cotenant.kube.scaler.resource import (
    LONGEST_MESSAGE,
    READY,
    RECONCILING,
    STALLED,
    GpuScaler,
    ScalerCondition,
)

DIFFERS = "ProcessingTimeDiffers"
BY_HAND = "ScaledByHand"
_TROUBLE = {
    State.NO_METRIC: "its queue gives no figures",
    State.METRIC_STUCK: "its queue gives the same figures again and again",
    State.STALLED: "there is work, and nothing completes",
    State.NOT_STARTING: "replicas start, and none becomes ready",
}
"""States in which something has to be looked at."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a round has to say about one scaler."""

    generation: int
    replicas: int | None
    desired: int | None
    ready: int
    backlog: float | None
    state: str
    """A State, or empty where nothing could be decided."""
    message: str
    trouble: tuple[str, str] | None = None
    """Reason and sentence, where the scaler cannot work at all: its spec, its target, another autoscaler."""
    signal: tuple[str, str] | None = None
    """Reason and sentence, where a signal fails."""
    differs: str = ""
    """Where the measured processing time is far from the configured one."""
    by_hand: str = ""
    """Where somebody has scaled the target by hand."""
    acts: bool = True
    idle: bool = False
    """Whether the last activity is known and lies behind."""

    @property
    def essence(self) -> tuple[object, ...]:
        """What is written at once when it changes."""
        reasons = tuple(each and each[0] for each in (self.trouble, self.signal))
        return (
            self.generation,
            self.replicas,
            self.desired,
            self.ready,
            self.state,
            reasons,
            bool(self.differs),
            self.by_hand,
            self.idle,
        )


def conditions(shown: Shown, before: tuple[ScalerCondition, ...], now: float) -> list[dict[str, Any]]:
    """Returns the conditions; `lastTransitionTime` changes with the status only."""
    wanted = [_ready(shown), _reconciling(shown), _stalled(shown)]
    if shown.differs or any(each.type == DIFFERS for each in before):
        wanted.append((DIFFERS, bool(shown.differs), "Measured", shown.differs or "it is as configured"))
    if shown.by_hand or any(each.type == BY_HAND for each in before):
        wanted.append((BY_HAND, bool(shown.by_hand), "ScaledByHand", shown.by_hand or "not any more"))
    known = {each.type: each for each in before}
    made = []
    for type_, true, reason, message in wanted:
        status, old = "True" if true else "False", known.get(type_)
        since = old.last_transition_time if old is not None and old.status == status else None
        made.append(
            {
                "type": type_,
                "status": status,
                "reason": reason,
                "message": message[:LONGEST_MESSAGE],
                "observedGeneration": shown.generation,
                "lastTransitionTime": timestamp(now if since is None else since),
            }
        )
    return made


def _ready(shown: Shown) -> tuple[str, bool, str, str]:
    if shown.trouble is not None:
        return READY, False, *shown.trouble
    if shown.signal is not None:
        return READY, False, *shown.signal
    why = next((text for state, text in _TROUBLE.items() if state == shown.state), None)
    if why is not None:
        return READY, False, shown.state, f"{why}: {shown.message}"
    return READY, True, shown.state or "Ready", shown.message


def _reconciling(shown: Shown) -> tuple[str, bool, str, str]:
    if shown.trouble is None and shown.acts and shown.replicas is not None:
        if shown.desired is not None and shown.desired != shown.replicas:
            return RECONCILING, True, shown.state or "Scaling", shown.message
        if shown.ready != shown.replicas:
            text = f"{shown.ready} of {shown.replicas} replicas are ready"
            return RECONCILING, True, shown.state or "Starting", text
    if shown.trouble is not None:
        return RECONCILING, False, shown.trouble[0], "nothing is changed"
    if not shown.acts:
        return RECONCILING, False, "Observing", "the mode is observe: nothing is changed"
    return RECONCILING, False, "Settled", "the target has as many replicas as were decided on"


def _stalled(shown: Shown) -> tuple[str, bool, str, str]:
    if shown.trouble is not None:
        return STALLED, True, *shown.trouble
    done = "carried out" if shown.acts else "reported; the mode is observe"
    return STALLED, False, "Working", f"decisions are made and {done}"


def status_json(shown: Shown, scaler: GpuScaler, memory: dict[str, Any], now: float) -> dict[str, Any]:
    """Returns the status as it is patched: every field, so that none stays from before."""
    before = scaler.status
    since = before.since
    same = before.state == shown.state and since is not None
    return {
        "observedGeneration": shown.generation,
        "replicas": shown.replicas,
        "desired": shown.desired,
        "backlog": "" if shown.backlog is None else _short(shown.backlog),
        "state": shown.state,
        "since": timestamp(since if same and since is not None else now),
        "message": shown.message[:LONGEST_MESSAGE],
        "conditions": conditions(shown, before.conditions, now),
        "memory": memory,
    }


def shows(scaler: GpuScaler, shown: Shown) -> bool:
    """Reports whether the status says all that matters already: a new leader need not write it."""
    status = scaler.status
    said = [(each.type, each.status, each.reason) for each in status.conditions]
    now = [
        (each["type"], each["status"], each["reason"]) for each in conditions(shown, status.conditions, 0.0)
    ]
    return (
        said == now
        and (status.observed_generation, status.replicas, status.desired, status.state)
        == (shown.generation, shown.replicas, shown.desired, shown.state)
        and bool(status.memory.get("idle")) == shown.idle
        and bool(status.memory.get("byHand")) == bool(shown.by_hand)
    )


def _short(seconds: float) -> str:
    if seconds < 0.05:
        return "0s"
    return format_duration(round(seconds, 1) if seconds < 60 else round(seconds))

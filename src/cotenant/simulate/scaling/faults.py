"""Reads the faults that a simulation injects: `missing@10m+2m` is "no figures for 2 minutes after 10"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cotenant.core.errors import BadInput
from cotenant.simulate.scaling.duration import parse_seconds

DURATION = 300.0
"""Seconds that a fault lasts where its duration is not given."""


class Kind(StrEnum):
    """What goes wrong."""

    MISSING = "missing"
    STUCK = "stuck"
    RESET = "reset"
    POISON = "poison"
    CRASH_LOOP = "crash-loop"
    FULL = "full"


MEANING = {
    Kind.MISSING: "polls bring no figures",
    Kind.STUCK: "polls bring the same figures again and again",
    Kind.RESET: "the queue's counters begin at zero again (at that moment only)",
    Kind.POISON: "a message fails and is delivered again, first in the queue, until the fault ends",
    Kind.CRASH_LOOP: "replicas that load do not become ready before the fault ends",
    Kind.FULL: "no GPU is free for a new replica",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault and the seconds of the simulation in which it is there."""

    kind: Kind
    begin: float
    end: float

    def __contains__(self, at: object) -> bool:
        return isinstance(at, float | int) and self.begin <= at < self.end


def parse_fault(text: str) -> Fault:
    """Parses KIND@START[+DURATION]; both are Go durations or seconds."""
    kind, at, times = text.partition("@")
    known = ", ".join(Kind)
    if kind not in list(Kind):
        raise BadInput(f"fault: {kind!r} is not known; there are {known}, as in poison@10m+5m")
    if not at:
        raise BadInput(f"fault: {text!r} has no time: write {kind}@10m or {kind}@10m+5m")
    begin, plus, lasting = times.partition("+")
    start = parse_seconds(begin, "fault")
    length = parse_seconds(lasting, "fault") if plus else DURATION
    if length <= 0:
        raise BadInput(f"fault: {text!r} lasts no time: write a duration above zero, as in {kind}@10m+5m")
    return Fault(Kind(kind), start, start + length)


def of_kind(faults: Iterable[Fault], kind: Kind) -> list[Fault]:
    return [each for each in faults if each.kind is kind]


def at(faults: Iterable[Fault], kind: Kind, now: float) -> Fault | None:
    """Returns the fault of this kind that is there now."""
    return next((each for each in faults if each.kind is kind and now in each), None)

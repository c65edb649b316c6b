"""What a policy sees of the simulated model server, and how it answers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from cotenant.simulate.scaling.faults import Fault, Kind, at, of_kind
from cotenant.simulate.scaling.model_server import Figures, Fleet, ModelServer


@dataclass(frozen=True, slots=True)
class Observation:
    """What one poll brings: the queue's figures, a little old, or None; and the replicas as they are."""

    now: float
    figures: Figures | None
    fleet: Fleet

    @property
    def replicas(self) -> int:
        """All that are wanted at present, with a GPU or without."""
        return self.fleet.ready + len(self.fleet.starting) + self.fleet.waiting


@dataclass(frozen=True, slots=True)
class Answer:
    """How many replicas a policy wants, and why."""

    replicas: int
    state: str = ""
    reason: str = ""


class Policy(Protocol):
    """Decides how many replicas there should be. It remembers what it needs."""

    period: float
    """Seconds between two decisions."""

    def decide(self, seen: Observation) -> Answer:
        """Returns the wanted number; the run keeps it within minimum and maximum."""


@dataclass(slots=True)
class Observer:
    """Polls a model server as a controller does: figures are old, some polls fail, faults are injected."""

    server: ModelServer
    staleness: float
    missing: float
    """The part of the polls that brings no figures, 0 to 1."""
    chance: random.Random
    faults: Sequence[Fault]
    _read_at: float = 0.0
    _stuck: Figures | None = None
    _reset: tuple[int, int] = (0, 0)

    def poll(self, now: float) -> Observation:
        """Lets time pass until `now`, and reads queue and replicas."""
        age, lost = self.chance.uniform(0, self.staleness), self.chance.random() < self.missing
        self._read_at = max(self._read_at, now - age)
        for reset in of_kind(self.faults, Kind.RESET):
            if self.server.now < reset.begin <= self._read_at:
                self.server.advance(reset.begin)
                past = self.server.figures()
                self._reset = past.arrived, past.completed
        self.server.advance(max(self.server.now, self._read_at))
        figures: Figures | None = self.server.figures()
        self.server.advance(now)
        if at(self.faults, Kind.STUCK, now):
            self._stuck = self._stuck or figures
            figures = self._stuck
        else:
            self._stuck = None
        if lost or at(self.faults, Kind.MISSING, now):
            figures = None
        if figures is not None and self._reset != (0, 0):
            arrived, completed = self._reset
            figures = replace(
                figures, arrived=figures.arrived - arrived, completed=figures.completed - completed
            )
        return Observation(now, figures, self.server.fleet())

"""Waits in line until the job is granted.

The process that frees room serves the line and wakes the jobs that were granted, so a waiter mostly sleeps.
Two events wake nobody: a job that was killed, and memory freed by processes outside any grant. Only the head
of the line polls for these, often; the others check whether they have become the head: the next ones once a
second, those far behind less often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cotenant.core.errors import NoRoom
from cotenant.core.refusal import Refusal, waiting
from cotenant.local import line
from cotenant.local.job import Job
from cotenant.local.machine import Machine, now
from cotenant.local.wake import Bell

HEAD_LOOKS = 0.1
OTHERS_LOOK = 1.0
MOST_EFFORT = 10
"""The head sleeps this many times as long as its poll took: a slow driver is not asked all the time."""


@dataclass
class _Notice:
    """Reports the place in line when it has changed, with current figures; less often the further behind."""

    machine: Machine
    tell: Callable[[str], None]
    place: int = 0
    told: float = 0.0

    def show(self, place: int, refusal: Refusal | None) -> None:
        if place != self.place and refusal is not None:
            self.place, self.told = place, now()
            self.tell(waiting(refusal, place))

    def moved(self, job: Job, place: int) -> None:
        if place != self.place and now() - self.told >= min(place, 10):
            self.show(place, survey(self.machine, job))


def survey(machine: Machine, job: Job) -> Refusal | None:
    """Returns why the job waits, without taking the lock; None if there is room now."""
    jobs = machine.store.jobs()
    sight = line.read_gpus(machine, jobs, machine.store.cards())
    return line.why_waits(machine, job, jobs, sight.ledger(jobs))


def wait(machine: Machine, joined: line.Joined, timeout: float | None, tell: Callable[[str], None]) -> Job:
    """Waits and returns the granted job. NoRoom after the timeout; the caller then leaves the line."""
    notice = _Notice(machine, tell)
    notice.show(joined.place, joined.refusal)
    job, place = joined.job, joined.place
    deadline = None if timeout is None else now() + timeout
    bell = Bell(job.id)
    cost = 0.0
    try:
        while True:
            found = machine.store.find(job.id)
            if found is None:  # the ledger was rebuilt; the place in line depends on when the job came
                found = line.join(machine, job, wait=True, rename=True).job
            if found.shares:
                return found
            before, first = machine.store.ahead_of(job)
            place = before + 1
            if before == 0 or (first is not None and not first.process.alive()):
                began = now()
                again = line.ask_again(machine, job.id)
                cost = now() - began
                if again is not None and again.job.shares:
                    return again.job
                if again is not None:
                    place = again.place
                    notice.show(again.place, again.refusal)
            else:
                notice.moved(job, place)
            pause = max(HEAD_LOOKS, cost * MOST_EFFORT) if place == 1 else _others_look(place)
            if deadline is not None:
                if now() >= deadline:
                    raise NoRoom(
                        f"{survey(machine, job) or job.demand.memory or 'room'}: the wait timeout is over"
                    )
                pause = min(pause, deadline - now())
            bell.wait(pause)
    finally:
        bell.close()


def _others_look(place: int) -> float:
    return OTHERS_LOOK * min(10, 1 + place // 10)

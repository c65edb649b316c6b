"""Stops a job whose GPU is idle for too long, or first shrinks its grant (`cotenant run --idle-timeout`).

Idle means: no kernel launch and no allocation in any process of its slot. The rule and how far it has come
are in the job's row of the ledger, written before anything is done. So one process can go on where another
was killed: the runner looks, and if it is gone the guard does, which waits for just that.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from typing import NamedTuple

from cotenant.core.errors import CotenantError, LedgerUnusable, NoRoom
from cotenant.core.units import Memory, format_bytes, format_duration
from cotenant.hardware import slots
from cotenant.local import line, reap, resize, stop
from cotenant.local.activity import idle_seconds, running_seconds
from cotenant.local.job import IdleRule, Job
from cotenant.local.machine import Machine, now

GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL, as `cotenant stop` has it."""
MOST_BETWEEN = 5.0
LEAST_BETWEEN = 0.1
"""Seconds between two looks. A burst of launches shows its end only to somebody who looks: adr/0005."""


class Step(Enum):
    KEEP = auto()
    SHRINK = auto()
    STOP = auto()


class Look(NamedTuple):
    """What was found, and when to look again."""

    pause: float | None
    """Seconds; None if there is nothing more to look for."""
    said: str | None = None
    """For a person: what was done."""


def decide(rule: IdleRule, idle: float, since_shrunk: float | None) -> Step:
    """Decides for a job that is idle for `idle` seconds; `since_shrunk` is None until its grant shrinks."""
    if idle < rule.timeout:
        return Step.KEEP
    if not rule.shrink:
        return Step.STOP
    if since_shrunk is None or since_shrunk > idle:  # it has worked since then
        return Step.SHRINK
    return Step.STOP if since_shrunk >= rule.timeout else Step.KEEP


def look(machine: Machine, id: str) -> Look:
    """Does what the rule of the job asks for now."""
    try:
        return _look(machine, id)
    except CotenantError:  # a full disk, a driver that is being replaced, a job that has just ended
        return Look(MOST_BETWEEN)
    finally:
        machine.cards.close()


def guard(machine: Machine, id: str) -> Callable[[], None]:
    """Starts a process that becomes `cotenant keep-idle-rule` if this one is killed.

    Only then it starts anew: SQLite must not be used in a process that was forked while the ledger was open.
    Call what is returned when nothing is left to do.
    """
    word, dismissal = os.pipe2(os.O_CLOEXEC)
    if os.fork():
        os.close(word)  # the other end stays open for as long as this process lives
        return lambda: _dismiss(dismissal)
    try:
        os.setsid()
        _keep_only(word)
        if not os.read(word, 1):
            os.execv(machine.itself[0], [*machine.itself, "keep-idle-rule", id])  # noqa: S606
    finally:
        os._exit(1)


def watch(machine: Machine, id: str, tell: Callable[[str], None]) -> Callable[[], float]:
    """Returns what the runner calls now and then, until its command has ended."""

    def once() -> float:
        found = look(machine, id)
        if found.said is not None:
            tell(found.said)
        return MOST_BETWEEN if found.pause is None else found.pause

    return once


def _look(machine: Machine, id: str) -> Look:
    job = machine.store.find(id)
    if job is None or job.idle is None or not job.shares:
        return Look(None)
    if job.stopping is not None:
        stop.go_on(job)
        return Look(LEAST_BETWEEN)
    usage = slots.read_usage(job.slot)
    idle, since_shrunk = (
        idle_seconds(usage, running_seconds(job)),
        None if job.shrunk is None else now() - job.shrunk,
    )
    step = decide(job.idle, idle, since_shrunk)
    if step is Step.KEEP:
        left = job.idle.timeout - (idle if since_shrunk is None else min(idle, since_shrunk))
        between = min(MOST_BETWEEN, job.idle.timeout / 20)
        return Look(max(LEAST_BETWEEN, min(left, between) if left > 0 else between))
    sight = line.read_gpus(machine, [job], machine.store.cards())
    if any(job.id in without for without in sight.unlimited.values()):
        return Look(MOST_BETWEEN)  # a process of it uses the GPU without the shim: nobody counts its launches
    if step is Step.SHRINK:
        return _shrink(machine, job, sight, idle)
    return _stop(machine, job, idle)


def _stop(machine: Machine, job: Job, idle: float) -> Look:
    for_ = format_duration(round(idle))
    if stop.begin(machine, job.id, GRACE, f"idle for {for_}", unless=_works_again) is None:
        return Look(LEAST_BETWEEN)
    return Look(
        LEAST_BETWEEN, f"{job.name} is stopped: no launch and no allocation for {for_} (--idle-timeout)"
    )


def _works_again(job: Job) -> bool:
    return (
        job.idle is None or idle_seconds(slots.read_usage(job.slot), running_seconds(job)) < job.idle.timeout
    )


def _shrink(machine: Machine, job: Job, sight: line.GpuReadings, idle: float) -> Look:
    """Lowers the limit to what is in use; on several GPUs to what is in use on the fullest of them, since a
    grant is split evenly. One CUDA context stays possible in any case.
    """
    usage = sight.usages.get(job.id) or slots.read_usage(job.slot)
    used = [
        max(usage.used(at), sight.accounts[share.uuid].used.get(job.id, 0))
        for at, share in enumerate(job.shares)
        if share.uuid in sight.accounts
    ]
    each = max(machine.context_bytes, *used, 0)
    each = -(-each // slots.GRANULE) * slots.GRANULE
    said = None
    if each < min(share.memory for share in job.shares):
        try:
            done = resize.resize(machine, job.name, Memory(bytes=each * len(job.shares)))
        except NoRoom:  # it allocates just now, so it is not idle
            return Look(LEAST_BETWEEN)
        before, after = (format_bytes(each.grant.memory) for each in (done.before, done.after))
        said = (
            f"{job.name} had no launch and no allocation for {format_duration(round(idle))}: its grant is "
            f"{after} now, was {before} (--idle-shrink). It is stopped after the same time once more"
        )
    with machine.store.change() as books:
        found = books.jobs.get(job.id)
        if found is not None:
            books.jobs[job.id] = replace(found, shrunk=now())
    return Look(LEAST_BETWEEN, said)


def take_over(machine: Machine, id: str) -> None:
    """Goes on for a runner that has ended: until no process of the job is left."""
    job = machine.store.find(id)
    if job is not None and job.stopping is not None:
        stop.send_signal(job, signal.SIGTERM)  # it was perhaps killed before it could
    while True:
        found = look(machine, id)
        job = None
        with contextlib.suppress(LedgerUnusable):
            job = machine.store.find(id)
            if job is not None and not reap.is_alive(job):
                line.release_ended(machine)
                return
        if found.pause is None or job is None:
            return
        select.select([], [], [], min(1.0, found.pause))


def _dismiss(pipe: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # it was killed
        os.write(pipe, b"1")
    os.close(pipe)


def _keep_only(kept: int) -> None:
    """Closes what belongs to the runner and its caller, who may wait for the end of these streams."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with contextlib.suppress(OSError):
                os.close(int(name))

"""`cotenant run`: charge, prepare, start, stand by, release.

The charge is committed before anything is made or started, and every step after it is one that the next
comer can undo by looking at what lives. So a kill -9 at any instruction loses nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from cotenant.core.demand import Demand
from cotenant.core.errors import CotenantError, LedgerUnusable, NoRoom
from cotenant.core.mode import DEFAULT_MODE, Mode
from cotenant.core.units import format_bytes
from cotenant.hardware import slots
from cotenant.hardware.enforcers import mps
from cotenant.local import environment, line, names, processes, program, slot_folder, start, supervise
from cotenant.local.job import Job
from cotenant.local.machine import Machine, now


class Request(NamedTuple):
    command: tuple[str, ...]
    demand: Demand
    mode: Mode = DEFAULT_MODE
    name: str | None = None
    wait: bool = True
    timeout: float | None = None
    """Seconds to wait at most; None is for ever."""


class Interrupted(BaseException):
    """A signal came while nothing had been started yet. Like KeyboardInterrupt it may come anywhere, so it
    is no error that anybody on the way could take for another one.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} before the command was started")
        self.number = number


def run(machine: Machine, request: Request, environ: Mapping[str, str], tell: Callable[[str], None]) -> int:
    """The command's exit code. `tell` takes lines for a person."""
    environ = environment.without_grant(environ)
    found = program.find(request.command[0], environ)
    job = _job(machine, request, found, environ)
    _warn(machine, job, found, tell)
    with _interruptible():
        try:
            job = _granted(machine, job, request, tell)
        except BaseException:
            _give_back(machine, job.id)
            raise
    before = supervise.hold_signals()
    try:
        held, gated = _prepare(machine, job, found, request, environ, before)
    except BaseException:
        _give_back(machine, job.id)
        raise
    try:
        gated.open()
    except CotenantError:
        os.close(held)
        _give_back(machine, job.id)
        raise
    os.close(held)  # from here on the command alone holds it
    code = supervise.supervise(gated.pid)
    try:
        line.settle(machine)
    except CotenantError as error:
        tell(f"{error}. The command has ended; its room is free when the next command looks")
    return code


def _job(machine: Machine, request: Request, found: program.Program, environ: Mapping[str, str]) -> Job:
    id = os.urandom(6).hex()
    demand = request.demand
    compute = None if demand.compute is None else "none"
    if compute and not machine.home.simulated and mps.is_running(environ):
        compute = "mps"
    return Job(
        id=id,
        name=names.check(request.name) if request.name is not None else names.from_command(request.command),
        user=_user(environ),
        command=request.command,
        demand=demand,
        mode=request.mode,
        enforcer="shim" if found.obstacle is None else "watch",
        compute=compute,
        process=processes.identify(os.getpid()),
        since=now(),
        slot=machine.home.slots / id,
    )


def _warn(machine: Machine, job: Job, found: program.Program, tell: Callable[[str], None]) -> None:
    if found.obstacle is not None:
        tell(f"{found.obstacle}: limits are watched, not enforced")
    if job.compute == "none":
        tell(f"compute: not enforced ({job.demand.compute}% is counted, but no MPS daemon runs here)")
    memory = job.demand.memory
    if memory is not None and memory.bytes is not None:
        share, context = job.demand.per_card(0), machine.context_bytes
        if share < context:
            tell(
                f"{format_bytes(share)} is less than one CUDA context takes ({format_bytes(context)}): "
                "programs that use CUDA will fail"
            )


def _granted(machine: Machine, job: Job, request: Request, tell: Callable[[str], None]) -> Job:
    joined = line.join(machine, job, wait=request.wait, rename=request.name is None)
    if joined.job.shares:
        return joined.job
    if not request.wait:
        raise NoRoom(f"{joined.refusal}: not waiting, as asked")
    from cotenant.local import waiting  # most commands find room at once and need none of it

    began = now()
    granted = waiting.wait(machine, joined, request.timeout, tell)
    tell(f"room after {now() - began:.1f} s: starting {granted.name}")
    return granted


def _prepare(
    machine: Machine,
    job: Job,
    found: program.Program,
    request: Request,
    environ: Mapping[str, str],
    before: set[signal.Signals],
) -> tuple[int, start.Gated]:
    """Make the slot, fork the child and record it; all of it is undone if a step fails."""
    machine.cards.close()
    slot_folder.make(machine.home, job, machine.context_bytes)
    held = slots.hold(job.slot)
    try:
        own = environment.for_command(
            environ, job, machine.shim, machine.card_environment, preload=found.preload
        )
        gated = start.start_gated(found.path, request.command, own, before, held)
        try:
            job = replace(job, process=processes.identify(gated.pid))
            slot_folder.write_record(job)
            line.record(machine, job)
        except BaseException:
            gated.abandon()
            raise
    except BaseException:
        os.close(held)
        raise
    return held, gated


def _give_back(machine: Machine, id: str) -> None:
    with contextlib.suppress(LedgerUnusable):  # it is told already, and the next comer reaps
        line.withdraw(machine, id)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """While nothing runs, a signal ends the waiting, and the line is left properly."""

    def interrupt(number: int, _frame: object) -> None:
        raise Interrupted(number)

    watched = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    former = {number: signal.signal(number, interrupt) for number in watched}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _user(environ: Mapping[str, str]) -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return environ.get("USER") or str(os.getuid())

"""Runs a command with a grant: charges the ledger, prepares the slot, starts, supervises, releases.

The charge is committed before anything is created or started. The next `cotenant` can undo every later step
by looking at which processes are alive. So a kill -9 at any instruction loses nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput, CotenantError, LedgerUnusable, NoRoom
from cotenant.core.mode import DEFAULT_MODE, Mode
from cotenant.core.units import format_bytes
from cotenant.hardware import slots
from cotenant.hardware.enforcers.shim import Shim, without_slot
from cotenant.local import (
    containers,
    environment,
    line,
    names,
    nested,
    processes,
    program,
    slot_folder,
    start,
    supervise,
)
from cotenant.local.ended import EndedJob, end_of
from cotenant.local.environment import VISIBLE
from cotenant.local.job import IdleRule, Job
from cotenant.local.machine import Machine, now

if TYPE_CHECKING:
    from cotenant.hardware.enforcers.enforcer import Enforcer


IDLE_EXIT_CODE = 124
"""After a stop by --idle-timeout, as timeout(1) has it: a command that exits with 0 at SIGTERM has not done
its work.
"""


class RunRequest(NamedTuple):
    command: tuple[str, ...]
    demand: Demand
    sized: bool = True
    """Whether it says how much. Otherwise it gets a whole GPU, or inside a grant all of that grant."""
    mode: Mode = DEFAULT_MODE
    name: str | None = None
    wait: bool = True
    timeout: float | None = None
    """Seconds to wait for room at most; None: without end."""
    priority: int = 0
    """Among the waiting commands of the same user; the higher is first."""
    idle: IdleRule | None = None
    workload: str | None = None
    """The workload of `cotenant up` whose replica it is."""
    mps: bool = False
    """Whether to start an MPS control daemon where none runs."""


class Ran(NamedTuple):
    code: int
    """The command's exit code, as a shell reports it; 124 if it was stopped because it was idle."""
    ended: EndedJob | None
    """What is left to say of the job; None while another process of it still uses its slot."""


class Interrupted(BaseException):
    """A signal came before anything was started. Like KeyboardInterrupt it may come anywhere, so it is not an
    Exception that a caller could catch by mistake.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} before the command was started")
        self.number = number


def run(
    machine: Machine, request: RunRequest, environ: Mapping[str, str], tell: Callable[[str], None]
) -> Ran:
    """Runs the command until it ends. `tell` prints messages for a person."""
    given, environ = environ, without_slot(environ)
    found = program.find(request.command[0], environ)
    container = containers.find(request.command)
    if container is not None:  # the shim is loaded in the container, not in the engine
        found = found._replace(obstacle=None, preload=False)
        tell(f"GPU, slot and shim are added to `{container.engine} run` (--print shows how)")
    elif unreached := containers.outside(request.command):
        tell(f"`{unreached}` starts processes outside this grant: no limit holds there. See `run --print`")
    outer = nested.enclosing(machine, given)
    if outer is not None and request.idle is not None:
        raise BadInput(
            f"idle-timeout: this command is called in the grant of {outer.name} and uses that one: give "
            f"--idle-timeout to the `cotenant run` that started {outer.name}, or leave it out"
        )
    if outer is not None and request.mps:
        raise BadInput(
            f"mps: this command is called in the grant of {outer.name} and uses that one: give --mps to the "
            f"`cotenant run` that started {outer.name}, or leave it out"
        )
    if outer is not None:
        _run_inside(machine, outer, request, found, environ, tell)
    shim = Shim(machine.shim.library, preload=found.preload)
    compute, own_mps = (
        (None, False) if container is not None else _compute_enforcer(machine, request, environ)
    )
    job = _job(machine, request, found, compute)
    _warn(machine, job, request, found, tell)
    try:
        with _interruptible():
            try:
                job = _granted(machine, job, request, tell)
                kept = _keep_mps(machine, environ) if own_mps else None
            except BaseException:
                _give_back(machine, job.id)
                raise
        return _run_granted(machine, job, request, found, (shim, compute), environ, kept, tell)
    finally:
        _end_mps(machine, environ)


def _run_granted(
    machine: Machine,
    job: Job,
    request: RunRequest,
    found: program.Program,
    chosen: tuple[Enforcer, Enforcer | None],
    environ: Mapping[str, str],
    kept: int | None,
    tell: Callable[[str], None],
) -> Ran:
    """Starts the command and waits for its end. `kept` is what the command holds of an MPS control daemon of
    ours; from its start on, only the command does.
    """
    before = supervise.hold_signals()
    try:
        enforcers = [each for each in chosen if each is not None]
        held, gated = _prepare(machine, job, found, request, enforcers, environ, before)
    except BaseException:
        _give_back(machine, job.id)
        raise
    finally:
        if kept is not None:
            os.close(kept)  # the command has it
    look, dismiss = _watch_idleness(machine, job, tell)
    try:
        gated.open()
    except CotenantError:
        os.close(held)
        _give_back(machine, job.id)
        dismiss()
        raise
    os.close(held)  # from here on only the command holds it
    ran = _supervise(machine, job, gated.pid, look, tell)
    if ran.ended is not None:
        dismiss()
    return ran


def _watch_idleness(
    machine: Machine, job: Job, tell: Callable[[str], None]
) -> tuple[Callable[[], float] | None, Callable[[], None]]:
    """Prepares for --idle-timeout: what looks now and then, and what ends the guard."""
    if job.idle is None:
        return None, lambda: None
    from cotenant.local import idle  # most commands may be idle for as long as they like

    return idle.watch(machine, job.id, tell), idle.guard(machine, job.id)


def _supervise(
    machine: Machine, job: Job, pid: int, look: Callable[[], float] | None, tell: Callable[[str], None]
) -> Ran:
    """Waits for the end of the command and releases its grant."""
    code = supervise.supervise(pid, look)
    try:
        stopped = line.is_stopping(machine, job.id)
        ended = line.finish(machine, job.id, code)
    except CotenantError as error:
        tell(f"{error}. The command has ended; its room is free when the next command looks")
        return Ran(code, replace(end_of(job, now(), time.time()), code=code))
    stopped = stopped or (ended is not None and ended.stopped is not None)
    return Ran(IDLE_EXIT_CODE if stopped and job.idle is not None else code, ended)


def _run_inside(
    machine: Machine,
    outer: Job,
    request: RunRequest,
    found: program.Program,
    environ: Mapping[str, str],
    tell: Callable[[str], None],
) -> NoReturn:
    """Executes the command in the grant that this process is in already: nothing more is charged."""
    gpus = machine.store.cards()
    shares = nested.visible(outer, request.demand, gpus, sized=request.sized)
    tell(f"uses the grant that it is called in: {outer.name}, {nested.describe(shares, gpus)}")
    shim = Shim(machine.shim.library, preload=found.preload)
    own = environment.for_command(environ, replace(outer, shares=shares), (shim,), machine.card_environment)
    if shares == outer.shares and VISIBLE in environ:
        own[VISIBLE] = environ[VISIBLE]  # the outer command may have chosen some of its GPUs
    start.replace_process(found.path, _words(machine, request, replace(outer, shares=shares)), own)


def _words(machine: Machine, request: RunRequest, job: Job) -> tuple[str, ...]:
    """Returns the command, with what its container needs if it starts one."""
    container = containers.find(request.command)
    if container is None:
        return request.command
    uuids = tuple(share.uuid for share in job.shares)
    standin = machine.card_environment.get("COTENANT_STANDIN")
    grant = containers.Inserted(str(job.slot), uuids, machine.shim.library, standin)
    return containers.with_grant(container, grant)


def _compute_enforcer(
    machine: Machine, request: RunRequest, environ: Mapping[str, str]
) -> tuple[Enforcer | None, bool]:
    """Chooses MPS where its daemon runs; with --mps, one of ours where none does, and says so by True."""
    compute = request.demand.compute
    if compute is None or (machine.home.simulated and not request.mps):
        return None, False
    from cotenant.hardware.enforcers.mps import Mps  # most commands ask for memory only

    mps = Mps(environ, compute)
    if mps.availability().available:
        return mps, False
    if not request.mps:
        return None, False
    from cotenant.hardware.mps.control import find_program
    from cotenant.local.mps import own_place

    find_program(environ)  # to wait in line for a program that is missing would be in vain
    return Mps(environ, compute, own_place(machine.home)), True


def _keep_mps(machine: Machine, environ: Mapping[str, str]) -> int:
    from cotenant.local import mps

    return mps.keep(machine.home, environ)


def _end_mps(machine: Machine, environ: Mapping[str, str]) -> None:
    """Ends an MPS control daemon of ours that no command needs any more, also one that others have left."""
    if (machine.home.runtime / "mps").is_dir():
        from cotenant.local import mps

        with contextlib.suppress(CotenantError, OSError):  # the next `cotenant run` tries again
            mps.stop_unused(machine.home, machine.store.jobs(), environ)


def _job(
    machine: Machine,
    request: RunRequest,
    found: program.Program,
    compute: Enforcer | None,
) -> Job:
    id = os.urandom(6).hex()
    demand = request.demand
    unheld = None if demand.compute is None else "none"
    return Job(
        id=id,
        name=names.check(request.name) if request.name is not None else names.from_command(request.command),
        user=_user(),
        command=request.command,
        demand=demand,
        mode=request.mode,
        enforcer=Shim.name if found.obstacle is None else "watch",
        compute=unheld if compute is None or machine.home.simulated else compute.name,
        process=processes.identify(os.getpid()),
        since=now(),
        slot=machine.home.slots / id,
        priority=request.priority,
        idle=request.idle if found.obstacle is None else None,
        workload=request.workload,
    )


def _warn(
    machine: Machine, job: Job, request: RunRequest, found: program.Program, tell: Callable[[str], None]
) -> None:
    if found.obstacle is not None:
        tell(f"{found.obstacle}: limits are watched, not enforced")
    if found.obstacle is not None and request.idle is not None:
        tell("idle-timeout: its launches cannot be seen for the same reason: it is never stopped")
    if job.compute == "none":
        why = "but no MPS daemon runs here: --mps starts one"
        if containers.find(request.command) is not None:
            why = "but its container does not reach MPS"
        elif machine.home.simulated:
            why = "but no MPS daemon runs here" if not request.mps else "but MPS cannot limit simulated GPUs"
        tell(f"compute: not enforced ({job.demand.compute}% is counted, {why})")
    memory = job.demand.memory
    if memory is not None and memory.bytes is not None:
        share, context = job.demand.per_card(0), machine.context_bytes
        if share < context:
            tell(
                f"{format_bytes(share)} is less than one CUDA context takes ({format_bytes(context)}): "
                "programs that use CUDA will fail"
            )


def _granted(machine: Machine, job: Job, request: RunRequest, tell: Callable[[str], None]) -> Job:
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
    request: RunRequest,
    enforcers: Sequence[Enforcer],
    environ: Mapping[str, str],
    before: set[signal.Signals],
) -> tuple[int, start.Gated]:
    """Creates the slot, forks the child and records it; all of it is undone if a step fails."""
    machine.cards.close()
    slot_folder.make(machine, job)
    held = slots.hold(job.slot)
    try:
        own = environment.for_command(environ, job, enforcers, machine.card_environment)
        words = _words(machine, request, job)
        gated = start.start_gated(found.path, words, own, before, held)
        try:
            job = replace(job, process=processes.identify(gated.pid), started=True)
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
    with contextlib.suppress(LedgerUnusable):  # the error is reported already, and the next `cotenant` reaps
        line.withdraw(machine, id)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Lets a signal end the wait while nothing runs yet; the job then leaves the line."""

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


def _user() -> str:
    """Names the user by the UID, never by the environment: users take turns by this name."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())

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
from cotenant.core.errors import CotenantError, LedgerUnusable, NoRoom
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
from cotenant.local.job import Job
from cotenant.local.machine import Machine, now

if TYPE_CHECKING:
    from cotenant.hardware.enforcers.enforcer import Enforcer


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


class Ran(NamedTuple):
    code: int
    """The command's exit code, as a shell reports it."""
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
    if outer is not None:
        _run_inside(machine, outer, request, found, environ, tell)
    shim = Shim(machine.shim.library, preload=found.preload)
    compute = _compute_enforcer(machine, request.demand, environ)
    job = _job(machine, request, found, compute)
    _warn(machine, job, found, tell)
    with _interruptible():
        try:
            job = _granted(machine, job, request, tell)
        except BaseException:
            _give_back(machine, job.id)
            raise
    before = supervise.hold_signals()
    try:
        enforcers = (shim,) if compute is None else (shim, compute)
        held, gated = _prepare(machine, job, found, request, enforcers, environ, before)
    except BaseException:
        _give_back(machine, job.id)
        raise
    try:
        gated.open()
    except CotenantError:
        os.close(held)
        _give_back(machine, job.id)
        raise
    os.close(held)  # from here on only the command holds it
    code = supervise.supervise(gated.pid)
    try:
        return Ran(code, line.finish(machine, job.id, code))
    except CotenantError as error:
        tell(f"{error}. The command has ended; its room is free when the next command looks")
        return Ran(code, replace(end_of(job, now(), time.time()), code=code))


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


def _compute_enforcer(machine: Machine, demand: Demand, environ: Mapping[str, str]) -> Enforcer | None:
    """Chooses MPS where its daemon runs; it cannot limit simulated GPUs."""
    if demand.compute is None or machine.home.simulated:
        return None
    from cotenant.hardware.enforcers.mps import Mps  # most commands ask for memory only

    mps = Mps(environ, demand.compute)
    return mps if mps.availability().available else None


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
        compute=unheld if compute is None else compute.name,
        process=processes.identify(os.getpid()),
        since=now(),
        slot=machine.home.slots / id,
        priority=request.priority,
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

"""Looks after the replicas of one workload: starts, watches and stops them, each as a `cotenant run`.

Each step is written down before it is taken, and begins with what the ledger says. So a process that is
killed at any instruction is followed by one that goes on: no replica starts twice.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from cotenant.core.units import format_duration
from cotenant.hardware import slots
from cotenant.local import processes, stop
from cotenant.local.activity import idle_seconds, running_seconds
from cotenant.local.ended import EndedJob
from cotenant.local.job import Job
from cotenant.local.machine import Machine, now
from cotenant.local.scalers.file import Declared
from cotenant.local.scalers.folder import ScalerFolder
from cotenant.local.scalers.readiness import Readiness
from cotenant.local.scalers.replicas import (
    LAUNCHING,
    LIVED,
    Live,
    Replica,
    free_numbers,
    job_name,
    number_of,
    pause_after,
)

GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL, where the specification is lost."""
SOON = 5.0
"""Seconds."""
LONGEST_REASON = 200
"""Characters of a reason in the ledger."""


class ReplicaSet:
    """The replicas of one workload. `save` writes them down."""

    def __init__(
        self,
        machine: Machine,
        folder: ScalerFolder,
        name: str,
        tell: Callable[[str], None],
        save: Callable[[], None],
    ) -> None:
        self.declared: Declared | None = None
        self.grace = GRACE
        self.cold_starts: list[float] = []
        """Seconds, of the starts that have ended since somebody has emptied it."""
        self._machine, self._folder, self._name = machine, folder, name
        self._tell, self._save = tell, save
        self.user = processes.user(os.getpid())
        self._replicas: dict[int, Replica] = {}
        self._readiness = Readiness()
        self._runners: dict[int, subprocess.Popen[bytes]] = {}
        self._signalled: set[str] = set()
        """Ids of the jobs that this process has sent SIGTERM."""

    def __len__(self) -> int:
        """Counts also those that are leaving."""
        return len(self._replicas)

    def to_json(self) -> list[dict[str, object]]:
        return [each.to_json() for each in self._replicas.values()]

    def load(self, replicas: Iterable[Replica], *, same_boot: bool) -> None:
        """Takes over what was written down. After a restart of the machine their jobs have ended."""
        if not same_boot:
            replicas = [Replica(each.number, each.template, now()) for each in replicas if not each.leaving]
        self._replicas = {each.number: each for each in replicas}

    def tend(self, jobs: Sequence[Job]) -> None:
        """Looks after the replicas: notes which are ready or have ended, and starts what is due."""
        mine = self._jobs(jobs)
        before = dict(self._replicas)
        for number, job in mine.items():
            if number not in self._replicas:  # its record was lost
                template = self.declared.spec.template if self.declared is not None else ""
                self._replicas[number] = Replica(number, template, now(), now(), job.id)
        others = {job.name for job in jobs} - {job.name for job in mine.values()}
        for number in list(self._replicas):
            self._step(number, mine.get(number), others)
        if self._replicas != before:
            self._save()

    def add(self, count: int, jobs: Iterable[Job]) -> None:
        """Starts further replicas."""
        if self.declared is None:
            return
        names = {job.name for job in jobs}
        for number in free_numbers(self._name, self._replicas.keys(), names, count):
            self._replicas[number] = Replica(number, self.declared.spec.template, now())
            self._launch(number)

    def remove(self, number: int, job: Job | None, why: str) -> None:
        replica = self._replicas[number]
        if job is None and replica.launched is None:
            del self._replicas[number]
            self._save()
            return
        if not replica.leaving:
            self._replicas[number] = replace(replica, leaving=True)
            self._save()
        if job is not None:
            self._begin_stop(job, why)

    def live(self, jobs: Sequence[Job]) -> list[Live]:
        mine = self._jobs(jobs)
        return [self._seen(replica, mine.get(number)) for number, replica in self._replicas.items()]

    def _step(self, number: int, job: Job | None, others: Collection[str]) -> None:
        replica = self._replicas[number]
        runner = self._runners.get(number)
        code = None if runner is None else runner.poll()
        if job is not None:
            replica = replace(replica, job=job.id, launched=replica.launched or now())
            self._replicas[number] = replica
            self._tend_job(replica, job)
        elif code is not None or (replica.job is not None and runner is None):
            self._runners.pop(number, None)
            self._ended(replica, self._end_of(replica), code)
        elif replica.job is not None:
            pass  # its `cotenant run` is about to say how it ended
        elif replica.launched is None:
            self._unlaunched(replica, others)
        elif runner is None and now() - replica.launched > LAUNCHING:
            self._failed(replica, "did not come up: `cotenant run` was killed", 0.0)
        elif replica.leaving and runner is not None:
            runner.terminate()
        self._folder.cut_log(job_name(self._name, number))

    def _unlaunched(self, replica: Replica, others: Collection[str]) -> None:
        """Starts a replica that is due. One whose name is taken by somebody else gets another number."""
        if replica.leaving or self.declared is None or job_name(self._name, replica.number) in others:
            del self._replicas[replica.number]
        elif now() >= replica.again and self.declared.spec.mode == "act":
            self._launch(replica.number)

    def _tend_job(self, replica: Replica, job: Job) -> None:
        declared = self.declared
        if job.stopping is not None:
            self._go_on(job)
            return
        if replica.leaving or declared is None:
            self.remove(replica.number, job, "cotenant down")
            return
        if replica.template != declared.spec.template and declared.spec.mode == "act":
            self._tell(f"{job.name}: its specification has changed, it starts again")
            self._replicas[replica.number] = replace(replica, replaced=True)
            self._save()
            self._begin_stop(job, "cotenant up: its specification has changed")
            return
        live = self._seen(replica, job)
        if job.shares and not replica.ready and self._readiness.check(declared, live):
            self._replicas[replica.number] = replace(replica, ready=True)
            self.cold_starts.append(live.has_gpu_for)
            self._tell(f"{job.name}: ready after {format_duration(round(live.has_gpu_for, 1))}")
        elif replica.ready and replica.failures and live.has_gpu_for > LIVED:
            self._replicas[replica.number] = replace(replica, failures=0, failure=None)

    def _begin_stop(self, job: Job, why: str) -> None:
        if stop.begin(self._machine, job.id, self.grace, why[:LONGEST_REASON]) is not None:
            self._signalled.add(job.id)

    def _go_on(self, job: Job) -> None:
        if job.id not in self._signalled:  # whoever began was perhaps killed before it could send SIGTERM
            stop.send_signal(job, signal.SIGTERM)
            self._signalled.add(job.id)
        stop.go_on(job)

    def _end_of(self, replica: Replica) -> EndedJob | None:
        """Finds what the ledger keeps of a job that has ended; by its name if it was never seen."""
        name = job_name(self._name, replica.number)
        known = (each for each in self._machine.store.ended() if each.workload == self._name)
        if replica.job is not None:
            return next((each for each in known if each.id == replica.job), None)
        since = time.time() - (now() - (replica.launched or now())) - SOON
        return next((each for each in known if each.name == name and each.ended >= since), None)

    def _ended(self, replica: Replica, ended: EndedJob | None, code: int | None) -> None:
        """Decides what follows the end of a replica's command."""
        name = job_name(self._name, replica.number)
        self._readiness.forget(replica.number)
        self._signalled.discard(replica.job or "")
        if ended is not None and ended.code is None and code is None and time.time() - ended.ended < SOON:
            return  # a `cotenant run` of a former `cotenant up` is about to say how it ended
        code = ended.code if ended is not None and ended.code is not None else code
        lived = (ended.seconds if ended is not None else None) or 0.0
        by_us = ended is not None and ended.stopped is not None
        if replica.replaced and not replica.leaving and self.declared is not None:
            template = self.declared.spec.template
            self._replicas[replica.number] = Replica(replica.number, template, now())
        elif replica.leaving or self.declared is None or by_us:
            del self._replicas[replica.number]
        elif code == 0 and replica.ready:
            self._tell(f"{name}: has ended by itself, with 0")
            del self._replicas[replica.number]
        else:
            how = "was killed" if code is None else f"ended with {code}"
            said = self._folder.last_line(name)
            self._failed(replica, f"{how}{f' ({said})' if said else ''}", lived)

    def _failed(self, replica: Replica, how: str, lived: float) -> None:
        failures = 1 if lived > LIVED else replica.failures + 1
        pause = pause_after(failures)
        asked = now() if failures == 1 else replica.asked
        self._replicas[replica.number] = Replica(
            replica.number, replica.template, asked, failures=failures, again=now() + pause, failure=how
        )
        name = job_name(self._name, replica.number)
        when = f"in {format_duration(pause)}" if pause else "at once"
        self._tell(
            f"{name}: {how}; it starts again {when} (start {failures + 1}). Log: {self._folder.log(name)}"
        )

    def _launch(self, number: int) -> None:
        """Starts `cotenant run` for a replica. It prints to a file: a pipe would end with this process."""
        declared = self.declared
        if declared is None:
            return
        spec, name = declared.spec, job_name(self._name, number)
        self._replicas[number] = replace(
            self._replicas[number], launched=now(), job=None, ready=False, template=spec.template
        )
        self._save()
        command = [*self._machine.itself, "run", "--quiet", "--name", name, "--workload", self._name]
        environ = {**os.environ, **spec.environment, "COTENANT_REPLICA": str(number)}
        try:
            with self._folder.log(name).open("ab") as log:
                self._runners[number] = subprocess.Popen(
                    [*command, *spec.run_options(), "--", *spec.command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=declared.file.parent / (spec.working_directory or "."),
                    env=environ,
                    start_new_session=True,
                )
        except OSError as error:
            self._failed(self._replicas[number], f"cannot be started: {error.strerror}", 0.0)

    def _seen(self, replica: Replica, job: Job | None) -> Live:
        if job is None or not job.shares or job.enforcer == "watch":
            return Live(replica, job, None, used=False, now=now())
        try:
            usage = slots.read_usage(job.slot)
        except slots.SlotUnusable:
            return Live(replica, job, None, used=False, now=now())
        return Live(
            replica, job, idle_seconds(usage, running_seconds(job)), used=bool(usage.last_active), now=now()
        )

    def _jobs(self, jobs: Sequence[Job]) -> dict[int, Job]:
        """The jobs of this user's workload by the number of their replica."""
        found = {}
        for job in jobs:
            number = number_of(self._name, job.name)
            if job.workload == self._name and number is not None and job.user == self.user:
                found[number] = job
        return found

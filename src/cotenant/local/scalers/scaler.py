"""Sizes one workload: reads its signals, decides how many replicas it needs, starts or removes some.

The decision and all that it remembers are written down before it is carried out.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cotenant.core.refusal import ordinal
from cotenant.core.scaling import Decision, Memory, decide
from cotenant.hardware.nvml import NoDriver
from cotenant.local import line
from cotenant.local.job import Job
from cotenant.local.machine import Machine, now
from cotenant.local.processes import boot_id
from cotenant.local.scalers.capacity import allowance, room_for, would_start
from cotenant.local.scalers.file import Declared
from cotenant.local.scalers.folder import ScalerFolder
from cotenant.local.scalers.replicas import AT_WORK, Live, Phase, Replica, job_name, removal_order
from cotenant.local.scalers.secrets import SecretFiles
from cotenant.local.scalers.tending import GRACE, ReplicaSet
from cotenant.scaling.sampling import Counted, Readings, Sources, policy_of, sample_of
from cotenant.signals.servers import Servers

LONGEST_READ = 10.0
"""Seconds that a signal may take to answer."""
_READY = (Phase.IDLE, Phase.BUSY)
_UNPLACED = (Phase.PAUSED, Phase.LAUNCHING)


@dataclass(frozen=True, slots=True)
class Status:
    """The last decision, for people. `since` and `polled` are Unix times."""

    replicas: int = 0
    """As the last decision found them."""
    ready: int = 0
    desired: int = 0
    state: str = "Starting"
    since: float = 0.0
    reason: str = "no decision yet"
    backlog: float | None = None
    """Messages."""
    backlog_seconds: float | None = None
    polled: float = 0.0


class Scaler:
    def __init__(
        self, machine: Machine, folder: ScalerFolder, name: str, tell: Callable[[str], None]
    ) -> None:
        self.name = name
        self.status = Status()
        self._machine, self._folder, self._tell = machine, folder, tell
        self._sources: Sources | None = None
        self._memory = Memory()
        self._last_poll: float | None = None
        self._replicas = ReplicaSet(machine, folder, name, tell, self._save)
        self._load(folder.record(name))

    @property
    def declared(self) -> Declared | None:
        """The specification; None if the workload is to end."""
        return self._replicas.declared

    @property
    def gone(self) -> bool:
        """Whether nothing is left to do: the workload is no longer declared, and its replicas have ended."""
        return self.declared is None and not self._replicas

    async def declare(self, declared: Declared | None, servers: Servers) -> None:
        """Takes over a new or changed specification; None: the workload is to end."""
        former, self._replicas.declared = self.declared, declared
        if declared is None:
            await self.close()
            return
        self._replicas.grace = declared.spec.grace_seconds
        if self._sources is None or former is None or former.spec != declared.spec:
            await self.close()
            secrets = SecretFiles(declared.file.parent)
            self._sources = Sources(declared.spec, secrets, servers)

    async def close(self) -> None:
        if self._sources is not None:
            await self._sources.close()
            self._sources = None

    def tend(self, jobs: Sequence[Job]) -> None:
        """Looks after the replicas, between two decisions as well."""
        self._replicas.tend(jobs)

    async def poll(self) -> None:
        """Reads the signals, decides, and starts or removes replicas."""
        declared, sources = self.declared, self._sources
        if declared is None or sources is None:
            return
        readings = await sources.read(LONGEST_READ)
        if self.declared is declared:  # else it has changed meanwhile
            self._decide(declared, readings)

    def _decide(self, declared: Declared, readings: Readings) -> None:
        jobs = self._machine.store.jobs()
        live = [each for each in self._replicas.live(jobs) if each.counts]  # LEAVING: it is only replaced
        policy, wall = policy_of(declared.spec, readings, declared.poll), time.time()
        sample = sample_of(declared.spec, readings, self._count(declared, jobs, live), wall, wall)
        decision = decide(policy, self._memory, sample, wall)
        if decision.memory is not self._memory:  # else there were no figures, and nothing was learned
            self._replicas.cold_starts.clear()
        self._memory, self._last_poll = decision.memory, now()
        self._note(decision, readings, jobs, live)
        self._save()
        if declared.spec.mode == "act":
            self._act(decision, jobs, live)

    def _count(self, declared: Declared, jobs: Sequence[Job], live: Sequence[Live]) -> Counted:
        phases = [each.phase for each in live]
        room, waited, unplaced = None, False, 0
        seen = all(each.idle is not None for each in live if each.phase in _READY)
        with contextlib.suppress(NoDriver):
            sight = line.read_gpus(self._machine, list(jobs), self._machine.store.cards())
            held = {uuid for job in jobs for uuid in job.held if job.workload != self.name}
            demand = declared.spec.demand.with_uuids_of(reading.gpu for reading in sight.readings)
            allowed = allowance(self._machine, self._replicas.user, jobs)
            room = room_for(sight.ledger(list(jobs)), demand, held, declared.spec.replicas.max, allowed)
            # Those that have not asked yet take what there is, and for the rest of them there is no GPU.
            unplaced = max(0, sum(phase in _UNPLACED for phase in phases) - room)
            room = max(0, room - sum(phase in _UNPLACED for phase in phases))
            spare = len(live) - declared.spec.replicas.min
            released = {each.job.id for each in removal_order(live)[: max(0, spare)] if each.job is not None}
            waited = would_start(self._machine, sight, jobs, released, self.name) is not None
            hidden = {id for ids in sight.unlimited.values() for id in ids}
            seen = seen and not any(each.job is not None and each.job.id in hidden for each in live)
        active = None
        if seen and self._last_poll is not None:
            span = max(AT_WORK, now() - self._last_poll)
            active = sum(each.idle is not None and each.used and each.idle < span for each in live)
        starting = tuple(each.starting_for for each in live if each.phase in _UNPLACED)
        starting += tuple(each.starting_for for each in live if each.phase in (Phase.LOADING, Phase.LEAVING))
        return Counted(
            ready=sum(phase in _READY for phase in phases),
            starting=starting[unplaced:],
            waiting=phases.count(Phase.WAITING) + unplaced,
            cold_starts=tuple(self._replicas.cold_starts),
            active=active,
            at_work=phases.count(Phase.BUSY) if seen else None,
            room=room,
            waited=waited,
        )

    def _note(
        self, decision: Decision, readings: Readings, jobs: Sequence[Job], live: Sequence[Live]
    ) -> None:
        before, phases = self.status, [each.phase for each in live]
        reason = "; ".join([*(failure.message for failure in readings.failures), decision.reason])
        if (waits := self._in_line(jobs, live)) is not None:
            reason = f"{reason}; {waits}"
        failing = [each.replica for each in live if each.replica.failures]
        if failing:
            reason = f"{reason}; {job_name(self.name, failing[0].number)} {failing[0].failure}"
        changed = before.state != decision.state
        self.status = Status(
            replicas=len(live),
            ready=sum(phase in _READY for phase in phases),
            desired=decision.replicas,
            state=decision.state,
            since=time.time() if changed or not before.since else before.since,
            reason=reason,
            backlog=None if readings.queue is None else readings.queue.backlog,
            backlog_seconds=decision.backlog_seconds,
            polled=time.time(),
        )
        if changed or decision.replicas != before.desired:
            self._tell(f"{self.name}: {len(live)} -> {decision.replicas}, {decision.state}: {reason}")

    def _in_line(self, jobs: Sequence[Job], live: Sequence[Live]) -> str | None:
        """Says which place in line the first replica without a GPU has."""
        waiting = [each.job for each in live if each.phase is Phase.WAITING and each.job is not None]
        if not waiting:
            return None
        places = line.places(list(jobs), self._machine.store.turns())
        first = min(waiting, key=lambda job: places.get(job.id, 1 << 30))
        return f"{first.name} is {ordinal(places.get(first.id, 1))} in line"

    def _act(self, decision: Decision, jobs: Sequence[Job], live: Sequence[Live]) -> None:
        more = decision.replicas - len(live)
        if more > 0:
            self._replicas.add(more, jobs)
        why = f"cotenant up, {decision.state}: {decision.reason}"
        for each in removal_order(live)[: max(0, -more)]:
            self._replicas.remove(each.replica.number, each.job, why)

    def _load(self, record: Mapping[str, Any]) -> None:
        replicas = list[Replica]()
        try:
            self._replicas.grace = float(record.get("grace", GRACE))
            self.status = Status(**record.get("status", {}))
            replicas = [Replica.from_json(each) for each in record.get("replicas", ())]
        except (TypeError, ValueError, AttributeError):
            self._tell(f"{self.name}: its record is damaged; what runs is found again in the ledger")
        same_boot = record.get("boot") == boot_id()
        if same_boot and self.status.polled:  # else an idle time would begin anew
            self._last_poll = now() - max(0.0, time.time() - self.status.polled)
        self._replicas.load(replicas, same_boot=same_boot)
        self._memory = Memory.from_json(record.get("memory"))

    def _save(self) -> None:
        self._folder.write_record(
            self.name,
            {
                "boot": boot_id(),
                "grace": self._replicas.grace,
                "status": asdict(self.status),
                "replicas": self._replicas.to_json(),
                "memory": self._memory.to_json(),
            },
        )

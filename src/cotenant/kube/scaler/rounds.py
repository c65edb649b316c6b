"""Decides about all GpuScalers in one round: reads their signals, decides, serves those who compete, acts.

All signals are read at the same time, with one deadline. Decisions follow one after another, and let the
extender's questions pass in between. Of those that want more replicas the ones of higher priority are served
first, then those that are further from their target: what one gets is no longer there for the next.

Each change is written into the scaler's status before it is carried out. So a leader that is killed in
between has at worst announced what the next one decides again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cotenant.core.demand import Demand as GpuDemand
from cotenant.core.errors import BadInput
from cotenant.core.loss import NO_REQUESTS, Requests
from cotenant.core.scaling import State
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.errors import KubeError
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.store import Store
from cotenant.kube.logs import get_logger
from cotenant.kube.pods.demand import demand_of
from cotenant.kube.pods.eligibility import ANYWHERE
from cotenant.kube.pods.requests import beside_gpus
from cotenant.kube.scaler.acting import Acting
from cotenant.kube.scaler.conflicts import Aim, Conflicts
from cotenant.kube.scaler.considered import Considered, counted, queued
from cotenant.kube.scaler.demand import Holder
from cotenant.kube.scaler.replicas import ReplicaIndex
from cotenant.kube.scaler.resource import GpuScaler
from cotenant.kube.scaler.room import Room
from cotenant.kube.scaler.scaled import Scaled
from cotenant.kube.scaler.slot_load import bounded
from cotenant.kube.scaler.targets import TargetError, Targets
from cotenant.kube.scaler.workload import Workload
from cotenant.scaling.sampling import Readings, Sources, policy_of, sample_of

log = get_logger(__name__)

_AT_ONCE = 16
"""Scalers whose changes are written at the same time."""
_YIELD = 16
"""Decisions after which others get a turn."""


@dataclass
class Rounds:
    scalers: Store[GpuScaler]
    targets: Targets
    index: ReplicaIndex
    conflicts: Conflicts
    acting: Acting
    dialects: Dialects
    room: Callable[[], Room]
    """Returns what is free in the cluster now."""
    priorities: Callable[[str], int]
    """Returns the priority of a PriorityClass."""
    open: Callable[[Scaled], Sources]
    poll: float
    clock: Callable[[], float]
    """Unix time that does not jump."""
    wall: Callable[[], float] = time.time
    sees: Callable[[], bool] = lambda: True
    """Whether agents have had time to write what their pods did while the API server was away."""
    _scaled: dict[str, Scaled] = field(default_factory=dict, init=False)
    _sources: dict[str, tuple[int, Sources]] = field(default_factory=dict, init=False)
    """By UID, with the generation of the spec that they were made for."""

    def __post_init__(self) -> None:
        self.acting.still_idle = self._still_idle

    def begin(self) -> None:
        """Forgets what was known: at the start of a term all is restored from the API server."""
        self._scaled.clear()

    async def close(self, within: float) -> None:
        """Writes what was learned since the last writes, for the next leader, and closes all signals."""
        try:
            async with asyncio.timeout(within):
                await _some_at_once([self.acting.flush(one) for one in self._scaled.values()])
        except TimeoutError:
            log.warning("not all GpuScalers were written before the end of the term")
        for uid in list(self._sources):
            await self._close(uid)

    def scaled_by(self, aim: Aim) -> str | None:
        """Names the GpuScaler that acts on a target."""
        for one in self._scaled.values():
            if one.aim == aim and one.spec is not None and one.spec.mode == "act":
                return f"GpuScaler {one.scaler.metadata.name}"
        return None

    @property
    def known(self) -> Iterable[Scaled]:
        return self._scaled.values()

    # One round, step by step. The part asks the line between `look` and `act`.

    async def look(self) -> list[Considered]:
        """Reads all signals and decides, as if nobody waited and there were room for all."""
        await self._sync()
        rivals = self._rivals()
        ones = list(self._scaled.values())
        readings = await asyncio.gather(*(self._read(one) for one in ones))
        considered = []
        for at, (one, read) in enumerate(zip(ones, readings, strict=True)):
            if not at % _YIELD:
                await asyncio.sleep(0)
            try:
                each = await self._consider(one, read, rivals)
            except TargetError as error:
                await self.acting.cannot(one, error.reason, str(error))
            except KubeError as error:
                log.debug("target not read", **_keys(one), error=error)
            except Exception as error:  # whatever it is, the others are served
                log.exception("GpuScaler not decided", **_keys(one))
                why = f"a fault of Cotenant's server ({type(error).__name__}): its log says more"
                await self.acting.cannot(one, "ServerFault", why)
            else:
                if each is not None:
                    considered.append(each)
        return considered

    def holders(self, considered: Sequence[Considered]) -> list[Holder]:
        """Returns those that would be released if somebody waited for what they hold."""
        found = []
        for each in considered:
            decision, policy = each.decision, each.policy
            shorter = policy.idle.seconds(decision.cold_start, waited=True)
            if (
                shorter is not None
                and each.one.spec is not None
                and each.one.spec.mode == "act"
                and decision.need is not None
                and decision.idle_for >= shorter
                and each.sample.ready
                and each.replicas.silent is None
                and each.found.replicas > policy.minimum
            ):
                gone = each.replicas.all[: each.found.replicas - policy.minimum]
                pods = frozenset(replica.uid for replica in gone)
                goes = decision.state is State.IDLE and decision.replicas < each.found.replicas
                since = self.clock() - decision.idle_for
                found.append(Holder(each.one.scaler.metadata.uid, pods, since, goes))
        return found

    async def act(self, considered: Sequence[Considered], wanted: Mapping[str, Pod]) -> None:
        """Decides again for those for whom somebody waits or who compete for room, and carries it out."""
        now = self.clock()
        for each in considered:
            by = wanted.get(each.one.scaler.metadata.uid)
            if by is not None:
                each.wanted_by = by
                each.sample = replace(each.sample, waited=True)
                each.decide(now)
        self._share_room(considered, now)
        await _some_at_once([self._carry_out(each, now) for each in considered])

    async def _carry_out(self, each: Considered, now: float) -> None:
        try:
            await self.acting.carry_out(each, now)
        except Exception:  # whatever it is, the others are served
            log.exception("GpuScaler not served", **_keys(each.one))

    def _share_room(self, considered: Sequence[Considered], now: float) -> None:
        """Offers free room to those that want more, in order. What was asked for before and has no GPU yet is
        counted first: in the ledger it is still free.
        """
        if not any(each.wants_more for each in considered):
            return
        asking = [each for each in considered if each.wants_more or each.without_gpu]
        for each in asking:
            each.demands, each.requests = self._asks(each)
            each.priority = self._priority(each)
        free = self.room()
        for each in sorted(asking, key=lambda each: (-each.priority, -each.distance, each.found.uid)):
            if not each.demands:
                continue  # it needs no GPU
            placement = ANYWHERE if each.found.workload is None else each.found.workload.placement
            placed = free.take(each.demands, each.without_gpu, placement, each.requests)
            if each.wants_more:
                wanted = each.decision.replicas - each.found.replicas
                more = free.take(each.demands, wanted, placement, each.requests)
                room = max(0, placed - each.on_their_way) + more
                each.sample = replace(queued(each.sample, each.on_their_way - placed), room=room)
                each.decide(now)

    def _asks(self, each: Considered) -> tuple[tuple[GpuDemand, ...], Requests]:
        """Returns what one replica asks for, of GPUs and beside them."""
        pod = each.replicas.all[0].pod if each.replicas.all else None
        if pod is None and each.found.workload is not None:
            pod = each.found.workload.pod()
        if pod is None:
            return (), NO_REQUESTS
        try:
            return demand_of(pod, self.dialects).demands, beside_gpus(pod)
        except BadInput:
            return (), NO_REQUESTS

    def _priority(self, each: Considered) -> int:
        if each.replicas.all:
            return each.replicas.all[0].pod.spec.priority
        workload: Workload | None = each.found.workload
        return 0 if workload is None else self.priorities(workload.spec.template.spec.priority_class_name)

    # Reading.

    async def _sync(self) -> None:
        """Follows the watch: new scalers are restored, those that are gone are forgotten."""
        there = {each.metadata.uid: each for each in self.scalers}
        for uid in [uid for uid in self._scaled if uid not in there]:
            del self._scaled[uid]
            await self._close(uid)
        for uid, scaler in there.items():
            one = self._scaled.get(uid)
            if one is None:
                self._scaled[uid] = Scaled.restore(scaler, self.poll)
            elif one.version != scaler.metadata.resource_version:
                one.take(scaler)

    def _rivals(self) -> dict[Aim, Scaled]:
        """Returns, by target, the scaler that acts on it: the oldest."""
        first: dict[Aim, Scaled] = {}
        for one in self._scaled.values():
            if one.aim is None or one.spec is None or one.spec.mode != "act":
                continue
            other = first.get(one.aim)
            if other is None or _age(one.scaler) < _age(other.scaler):
                first[one.aim] = one
        return first

    async def _read(self, one: Scaled) -> Readings:
        if one.spec is None:
            return Readings()
        uid, generation = one.scaler.metadata.uid, one.scaler.metadata.generation
        known = self._sources.get(uid)
        if known is not None and known[0] != generation:
            await self._close(uid)
            known = None
        if known is None:
            known = self._sources[uid] = generation, self.open(one)
        return await known[1].read(0.8 * self.poll)

    async def _still_idle(self, each: Considered) -> bool:
        """Reads the queue once more, right before a release: since the round began others were written to.
        A queue that does not answer holds. So do agents that could not write yet: a list does not tell of
        what came and went meanwhile.
        """
        if not self.sees():
            return False
        found, sample = each.found, each.sample
        queue = (await self._read(each.one)).queue
        if queue is None or queue.backlog is None or queue.backlog or queue.in_flight:
            return False
        if None not in (queue.arrived, sample.arrived) and queue.arrived != sample.arrived:
            return False
        now = self.clock()
        since = now if sample.at is None else sample.at
        return not self.index.replicas(found.namespace, found.selector).used_since(since, now)

    async def _close(self, uid: str) -> None:
        known = self._sources.pop(uid, None)
        if known is not None:
            try:
                await known[1].close()
            except Exception as error:  # noqa: BLE001 - there is nothing left to do about it
                log.debug("signal not closed", uid=uid, error=type(error).__name__)

    async def _consider(
        self, one: Scaled, readings: Readings, rivals: Mapping[Aim, Scaled]
    ) -> Considered | None:
        """Returns the scaler with its decision; None if nothing can be decided now."""
        now = self.clock()
        if one.spec is None or one.aim is None:
            await self.acting.cannot(one, "InvalidSpec", one.bad or "")
            return None
        found = await self.targets.find(one.spec.target, one.scaler.metadata.namespace)
        if one.spec.mode == "act":
            other = self.conflicts.other(one.aim)
            if other is None and rivals[one.aim] is not one:
                other = f"GpuScaler {rivals[one.aim].scaler.metadata.name}, which is older,"
            if other is not None:
                what = f"{found.resource.kind} {found.name}"
                remedy = "delete one of them, or set mode: observe here"
                await self.acting.cannot(
                    one, "Conflict", f"{other} scales {what} too: {remedy}", found.replicas
                )
                return None
        if one.lags(found.replicas, now):
            return None
        replicas = self.index.replicas(found.namespace, found.selector)
        policy = policy_of(one.spec, readings, self.poll)
        there = counted(one, found, replicas, now, self.wall())
        sample = sample_of(one.spec, readings, there, now, self.wall())
        second = one.spec.backlog.queue.in_flight
        if second is not None and second.slots:
            sample = bounded(sample, policy, one.service)
        each = Considered(one, found, replicas, policy, sample, readings)
        each.decide(now)
        return each


def _keys(one: Scaled) -> dict[str, str]:
    return {"namespace": one.scaler.metadata.namespace, "name": one.scaler.metadata.name}


def _age(scaler: GpuScaler) -> tuple[float, str]:
    created = scaler.metadata.creation_timestamp
    return (created.timestamp() if created is not None else 0.0), scaler.metadata.uid


async def _some_at_once(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(work: Coroutine[Any, Any, None]) -> None:
        async with limit:
            await work

    await asyncio.gather(*(one(work) for work in works))

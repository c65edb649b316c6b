"""Carries out a plan: evicts its pods one after another, each only if the ledger still agrees.

Before every eviction the cluster is read anew and the rest of the plan is tried on it. After it, the pod that
takes the evicted one's place must have been placed. At the first thing that is not as planned it stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from cotenant.core.errors import CotenantError
from cotenant.core.units import format_duration
from cotenant.kube.api.client import Client, Selection
from cotenant.kube.api.errors import KubeError, NotFound, TooManyRequests
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import NODES, PODS
from cotenant.kube.operating.defrag.closing import Closing
from cotenant.kube.operating.defrag.movable import controller_of
from cotenant.kube.operating.defrag.planning import Plan, Spot, Step, spot
from cotenant.kube.operating.defrag.state import State
from cotenant.kube.operating.defrag.wish import Wish
from cotenant.kube.pods.demand import has_ended, readable_grant
from cotenant.kube.scheduling.defrag import replay
from cotenant.kube.scheduling.hole import Hole, Holes, Wanted
from cotenant.kube.scheduling.moving import Cards, cards_of

POLL = 0.5
"""Seconds between two looks at pods."""
SETTLE = 1.0
"""Seconds until every server has seen that GPUs are drained."""
TIMEOUT = 300.0
"""Seconds for one step, unless the caller says another number."""


class Stopped(CotenantError):
    """Something is not as planned. What was done so far is said; nothing else was."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class Done:
    """A step that was carried out."""

    step: Step
    replacement: str
    """`namespace/name` of the pod in its place."""
    placed: Spot

    @property
    def sentence(self) -> str:
        elsewhere = "" if self.placed == self.step.target else f" (planned: {self.step.target})"
        return f"{self.step.pod} was evicted; {self.replacement} is on {self.placed}{elsewhere}"

    def to_json(self) -> dict[str, Any]:
        return {**self.step.to_json(), "replacement": self.replacement, "placed": self.placed.to_json()}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done."""

    plan: Plan
    done: tuple[Done, ...]
    started: Spot | None
    """Where the pod that the room is for was placed."""

    @property
    def sentence(self) -> str:
        wish = self.plan.wish
        if self.started is not None and wish is not None:
            return f"{wish.pod} is on {self.started}"
        return f"{self.plan.opens} has room: {wish.room if wish is not None else ''}".rstrip(": ")

    def to_json(self) -> dict[str, Any]:
        return {
            **self.plan.to_json(),
            "done": [each.to_json() for each in self.done],
            "started": self.started.to_json() if self.started is not None else None,
        }


@dataclass
class Applying:
    """Carries out one plan."""

    client: Client
    read: Callable[[], Awaitable[State]]
    tell: Callable[[str], object]
    clock: Callable[[], float]
    """Monotonic."""
    wall: Callable[[], float]
    timeout: float = TIMEOUT
    settle: float = SETTLE
    _done: list[Done] = field(default_factory=list, init=False)
    _evicted: int = field(default=0, init=False)
    _steps: int = field(default=0, init=False)

    async def run(self, plan: Plan) -> Outcome:
        """Raises Stopped at the first surprise. GPUs are in service again when it returns or raises."""
        wish, hole = plan.wish, plan.hole
        if wish is None or hole is None:
            raise ValueError("a plan without a hole cannot be carried out")
        self._steps, closing = len(plan.steps), self._closing(wish.uid)
        try:
            for number in range(len(plan.steps)):
                await self._step(plan, wish, hole, number, closing)
            if plan.steps:
                await self._check_opened(wish, hole, closing)
        finally:
            await asyncio.shield(asyncio.ensure_future(closing.end()))
        started = await self._wait_until_started(wish) if wish.uid else None
        return Outcome(plan, tuple(self._done), started)

    async def clean_up(self) -> None:
        """Puts back into service what commands that were killed have left drained; before a plan is made."""
        for node in await self._closing().clean_up((await self.client.list(NODES)).items):
            self.tell(f"GPUs of {node}, left drained by a command that was killed, are in service again")

    def _closing(self, pod: str = "") -> Closing:
        return Closing(self.client, 2 * self.timeout + 60.0, self.wall, pod)

    async def _step(self, plan: Plan, wish: Wish, hole: Hole, number: int, closing: Closing) -> None:
        step = plan.steps[number]
        held = (await self.read()).view.served.holds
        elsewhere = [
            cards for uid, (node, cards) in held.items() if node == step.source.node and uid != wish.uid
        ]
        hidden = {hole.node: hole.cards}
        hidden[step.source.node] = _uuids(step.source).difference(*elsewhere) | hidden.get(
            step.source.node, frozenset()
        )
        if await closing.set(hidden):
            await asyncio.sleep(self.settle)
        state = await self._checked(plan, wish, hole, number, closing)
        pod = state.by_uid[step.uid]
        owner = controller_of(pod)
        before = {each.metadata.uid for each in state.pods if controller_of(each) == owner}
        await self._evict(step)
        new = await self._wait_until_replaced(step, pod, before)
        state = (await self.read()).without_drains(closing.closed)
        grant = readable_grant(new)
        placed = spot(state.view.cluster, new.spec.node_name, cards_of(grant) if grant is not None else ())
        self._done.append(Done(step, _name(new), placed))
        self.tell(f"{number + 1}/{len(plan.steps)} {self._done[-1].sentence}")
        closed_to = closing.closed.get(placed.node, frozenset())
        if _uuids(placed) & closed_to:
            raise self._stopped(f"{_name(new)} was placed on {placed}, which is to be opened")

    async def _checked(self, plan: Plan, wish: Wish, hole: Hole, number: int, closing: Closing) -> State:
        """Returns the state if the rest of the plan is possible in it. Where an earlier step has used up a
        budget, waits until its replacement is Ready.
        """
        step, end = plan.steps[number], self.clock() + self.timeout
        used = [(each.namespace, each.budget) for each in plan.steps[:number] if each.budget]
        while True:
            state = (await self.read()).without_drains(closing.closed)
            pod = state.by_uid.get(step.uid)
            if pod is None or has_ended(pod):
                raise self._stopped(f"{step.pod} is gone")
            awaited = [each for each in state.budgets if (each.namespace, each.name) in used]
            stays = state.why_it_stays(pod)
            if not stays:
                break
            if state.why_it_stays(pod, awaited) or self.clock() >= end:
                raise self._stopped(f"{step.pod} {stays}")
            await asyncio.sleep(POLL)
        charged = state.view.cluster.charged(step.uid)
        if charged is None or (charged[0], cards_of(charged[1])) != (step.source.node, _uuids(step.source)):
            raise self._stopped(f"{step.pod} is not on {step.source} any more")
        moves, opens = replay(
            state.trial(wish.uid),
            self._wanted(state, wish),
            state.movable(awaited),
            hole,
            [each.uid for each in plan.steps[number:]],
        )
        if not moves:
            raise self._stopped(f"there is no place any more for {step.pod}, or it is another one")
        if not opens:
            raise self._stopped(f"the moves would not open {wish.room} any more")
        return state

    def _wanted(self, state: State, wish: Wish) -> Wanted:
        """Returns what is wanted, if that pod still waits. Nodes are eligible by their present state."""
        pod = state.by_uid.get(wish.uid) if wish.uid else None
        if wish.uid and (pod is None or pod.spec.node_name or has_ended(pod)):
            where = f"is on {pod.spec.node_name} by now" if pod is not None else "is gone"
            raise self._stopped(f"{wish.pod}, for which the room is, {where}")
        wanted = wish.wanted
        eligible = state.eligible_of(wish.uid) if wish.uid else state.open_nodes()
        return Wanted(wanted.demands, wanted.uid, wanted.requests, wanted.takes, eligible)

    async def _evict(self, step: Step) -> None:
        try:
            await self.client.evict(step.name, step.namespace, guard=Guard(step.uid))
        except TooManyRequests as error:
            raise self._stopped(f"{step.pod} may not be evicted now: {error}") from None
        except NotFound:
            raise self._stopped(f"{step.pod} is gone") from None
        except KubeError as error:
            what = "may have been evicted" if error.uncertain else "was not evicted"
            raise self._stopped(f"{step.pod} {what}: {error}") from None
        self._evicted += 1

    async def _wait_until_replaced(self, step: Step, old: Pod, before: set[str]) -> Pod:
        """Returns the pod in its place, once that is placed and the old one has ended."""
        end, owner, new = self.clock() + self.timeout, controller_of(old), list[Pod]()
        ended = False
        while self.clock() < end:
            pods = (await self.client.list(PODS, Selection(step.namespace))).items
            old_now = next((each for each in pods if each.metadata.uid == step.uid), None)
            ended = old_now is None or has_ended(old_now)
            new = [
                each
                for each in pods
                if each.metadata.uid not in before
                and controller_of(each) == owner
                and each.metadata.deletion_timestamp is None
                and not has_ended(each)
            ]
            placed = [each for each in new if each.spec.node_name]
            if ended and placed:
                return placed[0]
            await asyncio.sleep(POLL)
        waited = f"for {format_duration(self.timeout)}"
        if not ended:
            raise self._stopped(f"{step.pod} was evicted and has been terminating {waited}")
        if not new:
            raise self._stopped(f"{step.pod} was evicted, and {step.workload} has made no other pod {waited}")
        name = new[0].metadata
        raise self._stopped(
            f"{_name(new[0])}, in place of {step.pod}, has found no place {waited}: "
            f"cotenant explain -n {name.namespace} {name.name}"
        )

    async def _check_opened(self, wish: Wish, hole: Hole, closing: Closing) -> None:
        state = (await self.read()).without_drains(closing.closed)
        trial = state.trial(wish.uid)
        if Holes(trial, self._wanted(state, wish), {}).missing(hole) != 0:
            raise self._stopped(f"all pods were moved, and {wish.room} is not free: somebody took it")

    async def _wait_until_started(self, wish: Wish) -> Spot:
        """Waits until the pod that the room is for is placed."""
        end = self.clock() + self.timeout
        while self.clock() < end:
            state = await self.read()
            pod = state.by_uid.get(wish.uid)
            if pod is None:
                raise self._stopped(f"{wish.pod}, for which the room is, is gone")
            grant = readable_grant(pod)
            if grant is not None:
                return spot(state.view.cluster, pod.spec.node_name, cards_of(grant))
            await asyncio.sleep(POLL)
        raise self._stopped(f"{wish.pod} does not start, though there was room: cotenant explain says why")

    def _stopped(self, why: str) -> Stopped:
        done = f"stopped after {self._evicted} of {self._steps} evictions"
        return Stopped(f"{why}: {done}; plan again from here")


def _uuids(spot: Spot) -> Cards:
    return frozenset(gpu.uuid for gpu in spot.gpus)


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"

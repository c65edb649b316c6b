"""Evicts lower-priority pods when a node has enough free memory in total but no single GPU has.

kube-scheduler evicts by a node's sums. Where the sums are enough it evicts nobody, though the eviction of one
pod would free a GPU. So the leader chooses the victims, holds the GPUs, and evicts. Where the sums are not
enough, kube-scheduler evicts and asks our extender for the victims: never both for one pod.

Nothing of this is stored. A server that takes over sees which pods are terminating, which costs nothing any
more, and continues from there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from cotenant.core.errors import CotenantError
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import Conflict, KubeError, NotFound
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.patches import Guard
from cotenant.kube.events import EventRecorder
from cotenant.kube.line.keeper import LineKeeper
from cotenant.kube.line.place import Place
from cotenant.kube.line.room_finder import RoomFinder
from cotenant.kube.logs import get_logger
from cotenant.kube.pods.unschedulable import is_unschedulable
from cotenant.kube.scheduling.eligible import no_wider
from cotenant.kube.scheduling.opening import Opening
from cotenant.kube.scheduling.tenants import LEAVES, STAYS
from cotenant.kube.scheduling.victims import Tries

log = get_logger(__name__)

TICK = 1.0
"""Seconds between two rounds."""
LOOK = 15.0
"""Seconds between two searches for one pod without result, unless it is refused again meanwhile."""
AGAIN = 5.0
"""Seconds after which another opening is searched, or an eviction that had no effect is sent again."""
FRESH = 30.0
"""Seconds for which kube-scheduler's question shows on which nodes a pod may be placed. Before anybody is
evicted by older knowledge or by a guess, kube-scheduler is made to ask again.
"""
LEFT = 30.0
"""Seconds that kube-scheduler has to evict the victims that our extender named."""
FOLLOW = 3.0
"""Seconds, beside kube-scheduler's longest backoff, that a pod has to be bound after all victims have
terminated.
"""
SPARE = 60.0
"""Seconds for which a pod is not tried again that a PodDisruptionBudget protects or that could not be
evicted.
"""
WITHIN = 4.0
"""Seconds for one eviction; the lease must hold at least as long when it is sent."""
TRIES = 3
"""Attempts at evictions that have no effect."""
MOST_LOOKS = 16
"""Pods that are searched for in one round."""


@dataclass
class _UnderWay:
    """An opening whose cards are held."""

    opening: Opening
    tries: int = 0
    next_try: float = float("-inf")
    opened: float | None = None
    """By the clock, when the last pod in the way had terminated."""


@dataclass
class Preempting:
    """`run()` evicts for waiting pods until it is cancelled; only while this server leads, and if the
    settings allow it.
    """

    client: Client
    line: LineKeeper
    finder: RoomFinder
    recorder: EventRecorder
    must_lead: Callable[[float], None]
    """Raises unless no other server can lead for this many seconds."""
    clock: Callable[[], float] = time.monotonic
    evicted: Callable[[], object] = lambda: None
    """Called for every pod that was evicted."""

    _under_way: dict[str, _UnderWay] = field(default_factory=dict, init=False)
    _looked: dict[str, float] = field(default_factory=dict, init=False)
    """UID of a waiting pod to the time of its last search."""
    _paused: dict[str, float] = field(default_factory=dict, init=False)
    """UID of a waiting pod to the time until which it is not searched for."""
    _nobody_below: tuple[int, float] = field(default=(LEAVES, 0.0), init=False)
    """A priority below which no pod was found, and until when that is assumed."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            if not self.line.settings.evict or not self.line.leading():
                continue
            try:
                await self._turn()
            except Exception:  # whatever it is, the server must not end by it
                log.exception("evicting for pods of higher priority failed")

    async def _turn(self) -> None:
        self._review()
        for uid in list(self._under_way):
            await self._evict(uid)
        due = self._due()
        if not due or not self._is_above_some(max(place.waiting.priority for place in due)):
            return
        tenants, hopeless = await self.finder.tenants(), list[Place]()
        for uid in [place.waiting.uid for place in due]:
            await asyncio.sleep(0)
            place = self.line.place(uid)
            if place is None or not self._may(place):
                continue
            self._looked[uid] = self.clock()
            if any(_no_better(place, other) for other in hopeless):
                continue
            if place.waiting.priority > tenants.lowest and not self.finder.has_room(place):
                opening = await self.finder.find(place, tenants)
                if opening is not None:
                    await self._open(uid, opening)
                else:
                    hopeless.append(place)

    def _review(self) -> None:
        """Gives up openings whose GPUs were lost, that stayed unused, or whose victims do not terminate."""
        now, finder = self.clock(), self.finder
        follow = self.line.settings.backoff + FOLLOW
        for uid, under in list(self._under_way.items()):
            awaited = [each for each in under.opening.awaited if finder.cluster.charged(each) is not None]
            if not awaited and under.opened is None:
                under.opened = now
            late = under.opened is not None and now - under.opened >= follow
            if late or not self._is_wanted(uid) or any(finder.rank(each) == STAYS for each in awaited):
                self._give_up(uid)
        there = {place.waiting.uid for place in self.line.places()}
        self._looked = {uid: at for uid, at in self._looked.items() if uid in there}
        self._paused = {uid: until for uid, until in self._paused.items() if until > now}
        finder.spared = {uid: until for uid, until in finder.spared.items() if until > now}
        finder.evicted &= {uid for under in self._under_way.values() for uid in under.opening.victims}

    def _is_above_some(self, priority: int) -> bool:
        """Reports whether any pod could be evicted for one of this priority. In most clusters all priorities
        are equal, and to see that, every pod is read: a negative answer is kept for a while.
        """
        now, (highest, until) = self.clock(), self._nobody_below
        if priority <= highest and now < until:
            return False
        if self.finder.is_above_some(priority):
            return True
        self._nobody_below = priority, now + AGAIN
        return False

    def _due(self) -> list[Place]:
        """Returns pods to search for, in the order of the line; if they are many, those searched for longest
        ago.
        """
        due = [place for place in self.line.places() if self._may(place) and self._is_due(place)]
        first = sorted((place.waiting.uid for place in due), key=self._looked_at)[:MOST_LOOKS]
        return [place for place in due if place.waiting.uid in first]

    def _is_due(self, place: Place) -> bool:
        uid, now = place.waiting.uid, self.clock()
        looked = self._looked_at(uid)
        return uid not in self._paused and (place.refused > looked or now - looked >= LOOK)

    def _looked_at(self, uid: str) -> float:
        return self._looked.get(uid, float("-inf"))

    def _may(self, place: Place) -> bool:
        """Reports whether we may evict for it now: kube-scheduler has tried it and evicts nobody. It finds a
        pod unschedulable only after it has considered evictions, and asks our extender before them.
        """
        pod = place.pod
        return (
            place.waiting.uid not in self._under_way
            and not place.stays_away
            and is_unschedulable(pod)
            and pod.spec.preemption_policy != "Never"
            and not pod.status.nominated_node_name
            and self.clock() - place.left >= LEFT
        )

    async def _open(self, uid: str, best: Opening) -> None:
        """Holds the GPUs and evicts, if what was found is still true: the search took a while. Nothing is
        awaited before the GPUs are held.
        """
        place = self.line.place(uid)
        if place is None or not self._may(place):
            return
        if self.clock() - place.asked > FRESH:
            await self.line.retry(uid)
            return
        behind = self.line.behind(place.pod)
        opening = self.finder.opening(place, best.node, behind, Tries(best.tries))
        if opening is None or opening.cost != best.cost:
            self._looked.pop(uid, None)
            return
        self.line.press(uid, opening.node, opening.cards, behind)
        self._under_way[uid] = _UnderWay(opening)
        await self._evict(uid)

    async def _evict(self, uid: str) -> None:
        """Evicts those of its victims that do not terminate yet. If there are several, all are tried by dry
        run first: if one cannot be evicted, none is evicted for nothing.
        """
        under, now = self._under_way[uid], self.clock()
        there = (self.finder.pods.get(each) for each in under.opening.victims)
        victims = [pod for pod in there if pod is not None and pod.metadata.deletion_timestamp is None]
        if not victims or now < under.next_try:
            return
        under.tries, under.next_try = under.tries + 1, now + AGAIN
        if under.tries > TRIES:
            self._spare(uid, victims[0])
            return
        for dry_run in (True, False) if len(victims) > 1 else (False,):
            for victim in victims:
                if not self._is_wanted(uid) or not await self._sent(uid, victim, dry_run=dry_run):
                    return

    async def _sent(self, uid: str, victim: Pod, *, dry_run: bool) -> bool:
        """Reports whether to continue. After a lost response the eviction is sent again later."""
        meta = victim.metadata
        try:
            self.must_lead(WITHIN)
            await self.client.evict(
                meta.name, meta.namespace, guard=Guard(meta.uid), dry_run=dry_run, within=WITHIN
            )
        except (NotFound, Conflict):
            return True  # it is gone; the name may be another pod's by now
        except CotenantError as error:
            log.warning(
                "eviction failed",
                namespace=meta.namespace,
                pod=meta.name,
                uid=meta.uid,
                for_uid=uid,
                error=error,
            )
            if not isinstance(error, KubeError):  # we may not lead for that long
                self._give_up(uid)
            elif not error.uncertain:
                self._spare(uid, victim)
            return False
        if not dry_run:
            self._tell(uid, victim)
        return True

    def _tell(self, uid: str, victim: Pod) -> None:
        meta, node = victim.metadata, self._under_way[uid].opening.node
        self.finder.evicted.add(meta.uid)
        self.evicted()
        log.info("pod evicted", namespace=meta.namespace, pod=meta.name, uid=meta.uid, node=node, for_uid=uid)
        why = f"evicted from {node}: pod {uid}, of higher priority, needs its room on the GPUs"
        self.recorder.record(victim, "EvictedForGPU", why)
        place = self.line.place(uid)
        if place is not None:
            what = f"pods of lower priority are evicted from {node}: it is placed when they have ended"
            self.recorder.record(place.pod, "EvictingForGPU", what)

    def _is_wanted(self, uid: str) -> bool:
        """Reports whether it still waits for these GPUs, and kube-scheduler has no other plan for it."""
        place = self.line.place(uid)
        return place is not None and self.line.still_presses(uid) and not place.pod.status.nominated_node_name

    def _spare(self, uid: str, victim: Pod) -> None:
        self.finder.spared[victim.metadata.uid] = self.clock() + SPARE
        self._give_up(uid)

    def _give_up(self, uid: str) -> None:
        """Releases the GPUs; another opening is searched after a while."""
        self._under_way.pop(uid, None)
        self._looked.pop(uid, None)
        self._paused[uid] = self.clock() + AGAIN
        self.line.relent(uid)


def _no_better(place: Place, other: Place) -> bool:
    """Reports whether it asks for the same as a pod ahead of it for which nothing was found."""
    one, two = place.pod.spec, other.pod.spec
    return (
        one.priority <= two.priority
        and place.waiting.demands == other.waiting.demands
        and (one.containers, one.init_containers) == (two.containers, two.init_containers)
        and no_wider(place.waiting.eligible, other.waiting.eligible)
    )

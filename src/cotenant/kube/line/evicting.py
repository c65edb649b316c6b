"""Room for a pod of high priority where a node's sums would do for it and no single card does.

kube-scheduler evicts by sums. Where they do already it finds nobody to evict, though the end of one pod would
open a card. So the leader finds whose, holds the cards, and has them evicted. Where the sums do not do,
kube-scheduler evicts and asks us whom: never both for one pod.

Nothing of this is kept anywhere. Who leads after a leader that died sees who is leaving, which costs nothing
any more, and goes on from there.
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
from cotenant.kube.line.keeper import LineKeeper, Place
from cotenant.kube.line.room_finder import RoomFinder
from cotenant.kube.logs import get_logger
from cotenant.kube.pods.unschedulable import is_unschedulable
from cotenant.kube.scheduling.eligible import no_wider
from cotenant.kube.scheduling.opening import Opening
from cotenant.kube.scheduling.tenants import LEAVES, STAYS

log = get_logger(__name__)

TICK = 1.0
"""Seconds between turns."""
LOOK = 15.0
"""Seconds between looks for one pod that nothing is found for, unless it is refused again meanwhile."""
AGAIN = 5.0
"""Seconds after which another opening is looked for, or an eviction is sent again that had no effect."""
FRESH = 30.0
"""Seconds for which a refusal tells to which nodes a pod may go. Before anybody is evicted by older knowledge
kube-scheduler is asked again."""
LEFT = 30.0
"""Seconds in which kube-scheduler evicts those whom it was told to."""
FOLLOW = 10.0
"""Seconds that a pod has to be bound when all who were in its way have ended."""
SPARE = 60.0
"""Seconds for which one whom a PodDisruptionBudget keeps, or who could not be evicted, is left alone."""
WITHIN = 4.0
"""Seconds for an eviction: so long the lease must hold when it is sent."""
TRIES = 3
"""Of evictions that had no effect."""
MOST_LOOKS = 16
"""Pods that are looked at in a turn."""


@dataclass
class _UnderWay:
    """An opening whose cards are held."""

    opening: Opening
    tries: int = 0
    next_try: float = float("-inf")
    opened: float | None = None
    """By the clock, when all who were in the way had ended."""


@dataclass
class Preempting:
    """`run()` opens room until it is cancelled; it does so only while it leads, and if it is to."""

    client: Client
    line: LineKeeper
    finder: RoomFinder
    recorder: EventRecorder
    must_lead: Callable[[float], None]
    """Raises unless nobody else can lead for so many seconds."""
    clock: Callable[[], float] = time.monotonic
    evicted: Callable[[], object] = lambda: None
    """Told of every pod that was evicted."""

    _under_way: dict[str, _UnderWay] = field(default_factory=dict, init=False)
    _looked: dict[str, float] = field(default_factory=dict, init=False)
    """UID of a waiting pod to when it was looked at last."""
    _paused: dict[str, float] = field(default_factory=dict, init=False)
    """UID of a waiting pod to until when it is not looked at."""
    _nobody_below: tuple[int, float] = field(default=(LEAVES, 0.0), init=False)
    """A priority below which nobody was, and until when that is taken for granted."""

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
        """Whose cards are lost, or open, or never will be."""
        now, finder = self.clock(), self.finder
        for uid, under in list(self._under_way.items()):
            awaited = [each for each in under.opening.awaited if finder.cluster.charged(each) is not None]
            if not awaited and under.opened is None:
                under.opened = now
            late = under.opened is not None and now - under.opened >= FOLLOW
            if late or not self._is_wanted(uid) or any(finder.rank(each) == STAYS for each in awaited):
                self._give_up(uid)
        there = {place.waiting.uid for place in self.line.places()}
        self._looked = {uid: at for uid, at in self._looked.items() if uid in there}
        self._paused = {uid: until for uid, until in self._paused.items() if until > now}
        finder.spared = {uid: until for uid, until in finder.spared.items() if until > now}
        finder.evicted &= {uid for under in self._under_way.values() for uid in under.opening.victims}

    def _is_above_some(self, priority: int) -> bool:
        """Whether anybody could be ended for such a pod. In most clusters all are alike, and to see that one
        has to look at everybody: it is not asked again at once.
        """
        now, (highest, until) = self.clock(), self._nobody_below
        if priority <= highest and now < until:
            return False
        if self.finder.is_above_some(priority):
            return True
        self._nobody_below = priority, now + AGAIN
        return False

    def _due(self) -> list[Place]:
        """In the order of the line; if they are many, those whose turn was longest ago."""
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
        """Whether evictions for it are our part, and now: kube-scheduler has tried it, and evicts nobody. It
        says that a pod cannot be placed when it has thought of evictions, and it asks us before them.
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
        """Looking took its time: what was found must still be so. Nothing is awaited until it is held."""
        place = self.line.place(uid)
        if place is None or not self._may(place):
            return
        if place.waiting.eligible is None or self.clock() - place.refused > FRESH:
            await self.line.call(uid)
            return
        behind = self.line.behind(place.pod)
        opening = self.finder.opening(place, best.node, behind)
        if opening is None or opening.cost != best.cost:
            self._looked.pop(uid, None)
            return
        self.line.press(uid, opening.node, opening.cards, behind)
        self._under_way[uid] = _UnderWay(opening)
        await self._evict(uid)

    async def _evict(self, uid: str) -> None:
        """Those of its victims who are not leaving yet. Several are asked about first: if one of them is not
        to be had, nobody is ended in vain.
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
        """Whether to go on. After an answer that was lost it is sent again some other time."""
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
        """Whether it waits for these cards still, and kube-scheduler has no other plan for it."""
        place = self.line.place(uid)
        return place is not None and self.line.still_presses(uid) and not place.pod.status.nominated_node_name

    def _spare(self, uid: str, victim: Pod) -> None:
        self.finder.spared[victim.metadata.uid] = self.clock() + SPARE
        self._give_up(uid)

    def _give_up(self, uid: str) -> None:
        """Another opening is looked for, after a while."""
        self._under_way.pop(uid, None)
        self._looked.pop(uid, None)
        self._paused[uid] = self.clock() + AGAIN
        self.line.relent(uid)


def _no_better(place: Place, other: Place) -> bool:
    """Whether it asks for the same as one ahead of it, for which nothing was found."""
    one, two = place.pod.spec, other.pod.spec
    return (
        one.priority <= two.priority
        and place.waiting.demands == other.waiting.demands
        and (one.containers, one.init_containers) == (two.containers, two.init_containers)
        and no_wider(place.waiting.eligible, other.waiting.eligible)
    )

"""Keeps the line of waiting pods, and has kube-scheduler retry those that fit when room appears.

kube-scheduler tries a pod within milliseconds of an event, and then not for minutes: alone, it would often
try too early and miss the room. So every pod that was refused is kept here. When the ledger gains room, those
that now fit are annotated, in order, which makes kube-scheduler try them at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput
from cotenant.core.refusal import ordinal
from cotenant.dialects import names
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import Conflict, KubeError, NotFound
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import PODS
from cotenant.kube.api.store import Change, Store
from cotenant.kube.events import EventRecorder
from cotenant.kube.line.membership import is_in_line, is_kept_by_others, rows_that_take_pods, waited, waiting
from cotenant.kube.line.place import Place
from cotenant.kube.line.settings import LineSettings
from cotenant.kube.logs import get_logger
from cotenant.kube.nodes.opening_mark import mark_of, opened_for
from cotenant.kube.pods.demand import demand_of
from cotenant.kube.pods.eligibility import takes_pods
from cotenant.kube.pods.unschedulable import created_at, may_be_bound, unschedulable_message
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.eligible import Eligible, only, rows_of
from cotenant.kube.scheduling.explaining import why
from cotenant.kube.scheduling.matrix import Rows
from cotenant.kube.scheduling.recent_room import RecentRoom
from cotenant.kube.scheduling.scan import Verdict, scan
from cotenant.kube.scheduling.waiting import WaitingPod, behind, order, serve

log = get_logger(__name__)

TICK = 1.0
"""Seconds between two checks for pods whose patience is over or that were not bound after a retry."""
SWEEP = 15.0
"""Seconds between two looks at all nodes for all pods, whatever changes were seen."""
LINGER = 5.0
"""Seconds for which room that one pod was retried for is offered to others too, if it is still there."""
AT_ONCE = 16
"""Retry annotations that are written at the same time."""


@dataclass
class LineKeeper:
    """`run()` serves the line until it is cancelled; only while this server leads."""

    client: Client
    cluster: ClusterLedger
    pods: Store[Pod]
    nodes: Store[Node]
    dialects: Dialects
    recorder: EventRecorder
    settings: LineSettings = field(default_factory=LineSettings)
    leading: Callable[[], bool] = lambda: True
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time

    pressing: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict, init=False)
    """UID to the node and the GPUs where others are being evicted for it. They are held for it, whatever its
    patience.
    """
    _places: dict[str, Place] = field(default_factory=dict, init=False)
    _moved: asyncio.Event = field(default_factory=asyncio.Event, init=False, repr=False)
    _gained: RecentRoom = field(init=False, repr=False)
    _swept: float = field(default=float("-inf"), init=False)
    _served: float = field(default=float("-inf"), init=False)
    _open: tuple[float, Eligible] = field(default=(float("-inf"), None), init=False, repr=False)
    """Until when, and which nodes take pods."""
    _nodes_changed: bool = field(default=False, init=False)
    """A node has begun or ceased to take pods since the guesses were renewed."""
    _marked: dict[str, Node] = field(default_factory=dict, init=False, repr=False)
    """The nodes, by name, where room is being opened by `cotenant plan defrag`."""

    def __post_init__(self) -> None:
        self._gained = RecentRoom(self.cluster, LINGER)

    def __len__(self) -> int:
        return len(self._places)

    def add(self, pod: Pod, demands: tuple[Demand, ...], rows: Rows | None = None) -> None:
        """Puts a pod in line that was refused on these nodes. On other nodes it may not be placed. Without
        `rows` (a bind found no room) what is known of its nodes stays, and is no newer than before.
        """
        uid = pod.metadata.uid
        known = self.pods.get(uid)
        if known is not None and not may_be_bound(known):
            return  # the scheduler that asks has not seen the change yet
        now, place = self.clock(), self._places.get(uid)
        since = now if place is None else place.waiting.since
        left = float("-inf") if place is None else place.left
        asked = retried = float("-inf")
        if rows is not None:
            eligible, asked = only(self.cluster, rows), now
        elif place is not None:
            eligible, asked, retried = place.waiting.eligible, place.asked, place.retried
        else:
            eligible = self._open_rows()
        member = waiting(pod, demands, since, eligible, self.wall())
        self._set(Place(known or pod, member, now, asked, retried=retried, left=left))

    def _set(self, place: Place) -> None:
        self._places[place.waiting.uid] = place
        self._explain(place.waiting.uid)

    def refuse(self, pod: Pod, why_: str) -> None:
        """Records an event that the pod can never be served, and takes it out of the line."""
        self.forget(pod.metadata.uid)
        if self.leading():
            self.recorder.record(pod, "GPUDemandRefused", why_)

    def forget(self, uid: str) -> None:
        self.pressing.pop(uid, None)
        if self._places.pop(uid, None) is not None:
            self.cluster.unhold(uid)

    def place(self, uid: str) -> Place | None:
        return self._places.get(uid)

    def places(self) -> list[Place]:
        """Lists the pods in line, the head first, with all that is known of them."""
        return [self._places[waiting.uid] for waiting in self._order()]

    def uids(self) -> list[str]:
        """Lists the pods in line, the head first."""
        return [waiting.uid for waiting in self._order()]

    def press(self, uid: str, node: str, cards: tuple[str, ...], behind: Collection[str]) -> None:
        """Holds these GPUs for it until it has them or `relent` releases them. What is held there for those
        `behind` it is released.
        """
        for other, (where, held) in self.cluster.holds().items():
            if other in behind and where == node and not set(held).isdisjoint(cards):
                self.cluster.unhold(other)
        self.cluster.hold(uid, node, cards)
        self.pressing[uid] = self.cluster.holds()[uid]

    def is_pressing(self, uid: str) -> bool:
        """Reports whether others are being evicted for the pod already."""
        return uid in self.pressing

    def still_presses(self, uid: str) -> bool:
        """Reports whether the GPUs are held for it: they are not once a pod ahead of it has taken them."""
        return uid in self.pressing and self.cluster.holds().get(uid) == self.pressing[uid]

    def relent(self, uid: str) -> None:
        if self.still_presses(uid):
            self.cluster.unhold(uid)
            self.moved()
        self.pressing.pop(uid, None)

    def asked(self, uid: str) -> None:
        """Notes that kube-scheduler tries the pod, and that our extender named a node."""
        place = self._places.get(uid)
        if place is not None and place.tried < place.offered:
            place.tried = self.clock()

    def leave_to_scheduler(self, uid: str) -> None:
        """Notes that our extender has named victims for it to kube-scheduler."""
        if uid in self._places:
            self._places[uid].left = self.clock()

    def place_of(self, uid: str) -> int | None:
        """Returns its place, 1 for the head; None if it is not in line."""
        line = self.uids()
        return line.index(uid) + 1 if uid in line else None

    def behind(self, pod: Pod) -> frozenset[str]:
        """Returns the pods after it for which GPUs are held, whether or not it is in line itself: what is
        held for them gives way to it. The others, maybe thousands, hold nothing.
        """
        places = (self._places.get(uid) for uid in self.cluster.holds())
        line = (place.waiting for place in places if place is not None)
        return behind(line, pod.spec.priority, created_at(pod, self.wall()), pod.metadata.uid)

    def on_pod(self, change: Change[Pod]) -> None:
        """Follows a change of a pod: it leaves the line, enters it though we never refused it, or has other
        wishes.
        """
        pod, uid = change.object, change.object.metadata.uid
        if change.kind == "deleted" or not may_be_bound(pod) or self._leaves_line(change):
            self.forget(uid)
        elif uid in self._places:
            place = self._places[uid]
            place.pod = pod
            if _asks_anew(change):
                self._put(pod)
        elif is_in_line(pod, self.dialects):
            self._put(pod)
        self.moved()

    def on_node(self, change: Change[Node]) -> None:
        """Follows a change of a node: it may bring room, and it may begin or cease to take pods."""
        before, node = change.before, change.object
        if change.kind == "deleted" or before is None or takes_pods(before) != takes_pods(node):
            self._nodes_changed = True
        if change.kind == "deleted" or mark_of(node) is None:
            marked = self._marked.pop(node.metadata.name, None) is not None
        else:
            self._marked[node.metadata.name], marked = node, True
        if marked:
            self._served = float("-inf")  # whoever gets or loses a hold by it does so at once
        self.moved()

    def refill(self) -> None:
        """Fills the line at the beginning of a term, by what the API server shows."""
        self._places.clear()
        self.pressing.clear()
        self._hold({})
        self._open = float("-inf"), None
        self._marked = {node.metadata.name: node for node in self.nodes if mark_of(node) is not None}
        for pod in self.pods:
            if is_in_line(pod, self.dialects):
                self._put(pod)
        self._swept = float("-inf")
        self.moved()

    def moved(self) -> None:
        """Says that the ledger may have gained room, which matters if any pod waits."""
        if self._places:
            self._moved.set()

    async def run(self) -> None:
        while True:
            await self._pause()
            if self.leading():
                await self._serve()

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TICK):
                await self._moved.wait()
        self._moved.clear()

    async def _serve(self) -> None:
        now = self.clock()
        gained, sweep = self._gained.rows(now), now - self._swept >= SWEEP
        if not self._places or not (sweep or len(gained) or now - self._served >= TICK):
            return
        self._served = now
        if self._sees_who_stays_away(now):
            sweep = True  # those behind them are looked at again, without them
        if sweep:
            self._swept = now
            self._forget_unseen(now)
        if sweep or self._nodes_changed:
            self._renew_guesses(now)
        opened = opened_for(self._marked.values(), self.wall())
        line = [
            replace(place.waiting, since=now) if uid in opened else place.waiting
            for uid, place in self._places.items()
            if self._waits(place)
        ]
        rows = None if sweep else gained
        served = serve(self.cluster, line, now, self.settings.patience, rows, self.pressing)
        self._hold(served.holds)
        woken = set(served.wake)
        due = [
            waiting.uid
            for waiting in self._order()
            if self._is_due(self._places[waiting.uid], now, fits=waiting.uid in woken)
        ]
        for start in range(0, len(due), AT_ONCE):
            await asyncio.gather(*(self.retry(uid) for uid in due[start : start + AT_ONCE]))

    def _waits(self, place: Place) -> bool:
        """Reports whether room is to be found for it. A pod that is being bound has its room already."""
        return not place.stays_away and self.cluster.charged(place.waiting.uid) is None

    def _sees_who_stays_away(self, now: float) -> bool:
        """Notes who stays away; reports whether somebody does who did not before."""
        more = False
        for place in self._places.values():
            if place.retries and not place.stays_away:
                place.stays_away = place.is_away(now, self.settings)
                more = more or place.stays_away
        return more

    def _forget_unseen(self, now: float) -> None:
        """Forgets pods that were gone when kube-scheduler asked about them: no change will report it."""
        for uid, place in list(self._places.items()):
            if now - place.refused >= SWEEP and self.pods.get(uid) is None:
                self.forget(uid)

    def _is_due(self, place: Place, now: float, *, fits: bool) -> bool:
        """Reports whether to retry it: at once if it fits, but not twice in a moment; and again if it was not
        bound.
        """
        if fits:
            return now - place.retried >= place.pause(self.settings)
        if now < place.next_retry:
            return False
        place.next_retry = now + place.pause(self.settings)
        rows = rows_of(self.cluster, place.waiting.eligible)
        found = scan(self.cluster, place.waiting.uid, place.waiting.demands, rows)
        return bool((found == Verdict.FITS).any())

    def _hold(self, holds: Mapping[str, tuple[str, tuple[str, ...]]]) -> None:
        before = self.cluster.holds()
        for uid in before:
            if uid not in holds:
                self.cluster.unhold(uid)
        for uid, (node, cards) in holds.items():
            if before.get(uid) != (node, cards):
                self.cluster.hold(uid, node, cards)
                if uid in self._places:
                    self._explain(uid)

    async def retry(self, uid: str) -> None:
        """Makes kube-scheduler retry it, by an annotation that is guarded by UID: the name may be another
        pod's by now.
        """
        place = self._places.get(uid)
        if place is None or not self.leading():
            return
        place.note_retry(self.clock(), self.settings)
        meta = place.pod.metadata
        changes = {"metadata": {"annotations": {names.RETRY: f"{self.wall():.3f}"}}}
        try:
            await self.client.merge_patch(
                PODS, meta.name, changes, meta.namespace, guard=Guard(uid), within=5.0
            )
        except (NotFound, Conflict):
            if self.pods.get(uid) is None:  # else we shall be told that it goes
                self.forget(uid)
        except KubeError as error:
            log.warning(
                "pod not annotated for another try",
                namespace=meta.namespace,
                pod=meta.name,
                uid=uid,
                error=error,
            )

    def _leaves_line(self, change: Change[Pod]) -> bool:
        """Reports whether kube-scheduler has just given other reasons than GPUs. What it said before may be
        older than our own refusal.
        """
        before, pod = change.before, change.object
        is_new = before is None or unschedulable_message(before) != unschedulable_message(pod)
        return is_new and is_kept_by_others(pod, self.dialects)

    def _put(self, pod: Pod) -> None:
        try:
            demands = demand_of(pod, self.dialects).demands
        except BadInput as error:
            self.refuse(pod, str(error))
            return
        place = self._places.get(pod.metadata.uid)
        if not demands:
            return
        if place is None:
            since = self.clock() - waited(pod, self.wall())
            self._set(Place(pod, waiting(pod, demands, since, self._open_rows(), self.wall())))
        else:
            # A pod that stays away does so, whatever its author writes, until kube-scheduler asks about it.
            place.waiting = replace(place.waiting, demands=demands)
            self._explain(pod.metadata.uid)

    def _renew_guesses(self, now: float) -> None:
        """Lets pods that kube-scheduler has not asked about go to the nodes that take pods now. A node that
        was cordoned or not Ready when such a pod entered the line would be closed to it for ever otherwise.
        """
        self._nodes_changed = self._nodes_changed and now < self._open[0]  # else worked out anew just below
        rows = self._open_rows()
        for place in self._places.values():
            if place.is_guessed and place.waiting.eligible is not rows:
                place.waiting = replace(place.waiting, eligible=rows)

    def _open_rows(self) -> Eligible:
        """Returns the nodes that take pods, worked out at most once in a TICK: nodes may be thousands."""
        now, (until, rows) = self.clock(), self._open
        if now >= until:
            rows = rows_that_take_pods(self.cluster, self.nodes)
            self._open = now + TICK, rows
        return rows

    def _explain(self, uid: str) -> None:
        if self.leading():
            self.recorder.record(self._places[uid].pod, "WaitingForGPU", lambda: self._reason(uid))

    def _reason(self, uid: str) -> str:
        place = self._places[uid]
        reason = why(self.cluster, uid, place.waiting.demands, rows_of(self.cluster, place.waiting.eligible))
        return f"{reason}: waiting, {ordinal(self.place_of(uid) or 1)} in line"

    def _order(self) -> list[WaitingPod]:
        return order(place.waiting for place in self._places.values())


def _asks_anew(change: Change[Pod]) -> bool:
    """Reports whether its annotations have changed: while a pod waits its author may edit them."""
    before = change.before
    return before is not None and _wishes(before) != _wishes(change.object)


def _wishes(pod: Pod) -> dict[str, str]:
    return {key: text for key, text in pod.metadata.annotations.items() if key != names.RETRY}

"""Serves the line: decides which waiting pods are woken, and which GPUs are held for them.

A smaller pod may pass a bigger one that does not fit yet, so that GPUs are not left idle. But one that has
waited as long as `patience` holds GPUs of one node: no pod behind it is placed there any more, so they drain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cotenant.core.demand import Demand
from cotenant.core.loss import NO_REQUESTS, Requests
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.eligible import Eligible
from cotenant.kube.scheduling.line_round import CurrentPod, LineRound
from cotenant.kube.scheduling.matrix import Rows


@dataclass(frozen=True, slots=True, eq=False)
class WaitingPod:
    """One pod in the line."""

    uid: str
    demands: tuple[Demand, ...]
    priority: int
    since: float
    """Since when it waits, on the clock of `now`: its patience counts from here."""
    eligible: Eligible = None
    created: float = 0.0
    """Unix time: among equals the older pod comes first."""
    requests: Requests = NO_REQUESTS
    """What it takes of its node beside GPUs."""


@dataclass(frozen=True, slots=True)
class ServedLine:
    """The decision: wake these, in this order, and hold these GPUs; pods that are not named hold nothing."""

    wake: tuple[str, ...]
    holds: Mapping[str, tuple[str, tuple[str, ...]]]
    """UID of a waiting pod to the node and the cards held for it."""
    places: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """For each woken pod, the node and the GPUs that were counted for it, part by part.

    It may be placed elsewhere: which node it gets is decided when kube-scheduler asks.
    """


def order(line: Iterable[WaitingPod]) -> list[WaitingPod]:
    """Sorts by priority, the highest first, then by age, then by UID. All three are in the API: everybody
    who asks finds the same order.
    """
    return sorted(line, key=_position)


def behind(line: Iterable[WaitingPod], priority: int, created: float, uid: str) -> frozenset[str]:
    """Returns the UIDs of those who come after such a pod, whether or not it waits itself."""
    own = -priority, created, uid
    return frozenset(each.uid for each in line if _position(each) > own)


def _position(waiting: WaitingPod) -> tuple[int, float, str]:
    return -waiting.priority, waiting.created, waiting.uid


def serve(
    cluster: ClusterLedger,
    line: Sequence[WaitingPod],
    now: float,
    patience: float,
    rows: Rows | None = None,
    pressing: Collection[str] = (),
) -> ServedLine:
    """Decides which pods are woken and which GPUs are held for whom. The ledger is not changed.

    Every pod sees the room that those in front leave: room that wakes one pod wakes no other. The holds of
    pods behind give way. On the quick path, with the `rows` that gained room since the last time, no pod
    searches elsewhere, except on GPUs that are held, and only a few get new holds. Pods in `pressing` keep
    what is held for them, however short they have waited: others are being evicted for them.
    """
    queue = order(line)
    round_ = LineRound(cluster, [waiting.uid for waiting in queue], rows)
    places = dict[str, tuple[str, tuple[str, ...]]]()
    holds = dict[str, tuple[str, tuple[str, ...]]]()
    for waiting in queue:
        pod = CurrentPod(waiting.demands, waiting.eligible, round_.comes(waiting.uid), waiting.requests)
        overdue = now - waiting.since >= patience
        row = round_.find_room(pod)
        hold = pod.own
        if row is not None:
            places[waiting.uid] = cluster.name(row), cluster.uuids(row, round_.take(row, pod))
            keeps = hold is not None and hold[0] == row
        else:
            keeps = (overdue or waiting.uid in pressing) and round_.may_keep(pod)
        if hold is not None and not keeps:
            round_.let_go(hold)
            hold = None
        if row is None and overdue and hold is None:
            hold = round_.find_cards(pod)
        if hold is not None:
            holds[waiting.uid] = cluster.name(hold[0]), tuple(sorted(cluster.uuids(*hold)))
    return ServedLine(tuple(places), holds, places)

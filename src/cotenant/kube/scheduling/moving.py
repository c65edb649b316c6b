"""Tries on a ledger what becomes of an evicted pod: its controller makes another, which the policy places.

The GPUs that it leaves are out of service until its replacement is placed, and so are those that are to be
opened: nothing returns to the hole that it left. A controller may make the replacement while the pod still
terminates or after it has ended. Both are tried, and a move counts only if both lead to the same place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.core.loss import NO_REQUESTS, Requests
from cotenant.dialects.dialect import SlotDemand
from cotenant.dialects.pod_grant import PodGrant
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.eligible import Eligible, rows_of
from cotenant.kube.scheduling.matrix import Rows
from cotenant.kube.scheduling.node_sums import NodeSums
from cotenant.kube.scheduling.placing import place_pod
from cotenant.kube.scheduling.ranking import best
from cotenant.kube.scheduling.scan import has_room
from cotenant.kube.scheduling.waiting import WaitingPod

Cards = frozenset[str]
"""UUIDs of GPUs of one node."""


@dataclass(frozen=True, slots=True)
class Movable:
    """A pod that may be evicted, and what is known of its replacement: it asks for the same."""

    uid: str
    slots: tuple[SlotDemand, ...]
    requests: Requests = NO_REQUESTS
    takes: Mapping[str, int] = field(default_factory=dict)
    """What it takes of its node, by resource."""
    eligible: Eligible = None
    priority: int = 0
    started: float = 0.0

    @property
    def demands(self) -> tuple[Demand, ...]:
        return tuple(slot.demand for slot in self.slots)


@dataclass(frozen=True, slots=True)
class Move:
    """An eviction, and where the replacement is placed."""

    pod: Movable
    source: str
    """The node that it leaves."""
    before: PodGrant
    node: str
    after: PodGrant

    @property
    def left(self) -> Cards:
        """The GPUs that it leaves."""
        return cards_of(self.before)

    @property
    def cards(self) -> tuple[str, ...]:
        """The GPUs that its replacement gets."""
        return tuple(sorted(cards_of(self.after)))


def cards_of(grant: PodGrant) -> Cards:
    return frozenset(share.uuid for share in shares_of(grant))


def shares_of(grant: PodGrant) -> list[Share]:
    return [share for slot in grant.slots for share in slot.shares]


class Trial:
    """A ledger on which moves are tried, and undone in the opposite order.

    `waiting`: the line. A move is refused if it gives one of those the room that another move needs.
    """

    def __init__(
        self, cluster: ClusterLedger, sums: NodeSums | None = None, waiting: Sequence[WaitingPod] = ()
    ) -> None:
        self.cluster = cluster
        self.sums = sums if sums is not None else NodeSums()
        self.moves = 0
        """How many were tried."""
        holds = cluster.holds()
        self._waiting = {
            (each.demands, id(each.eligible), each.uid if each.uid in holds else ""): each for each in waiting
        }.values()
        """One of each kind: pods that wait are often alike."""
        self._reported: dict[str, tuple[GPU, ...]] = {}
        """The GPUs of nodes where some are out of service for a trial, as their nodes report them."""
        self._shares: dict[str, dict[str, list[tuple[str, Share]]]] = {}

    def reported(self, node: str) -> tuple[GPU, ...]:
        """Returns the GPUs of a node as it reports them, whatever is out of service for a trial."""
        return self._reported.get(node) or self.cluster.gpus(node)

    def shares(self, node: str) -> Mapping[str, Sequence[tuple[str, Share]]]:
        """Returns by GPU what is charged on a node, with the UIDs of the pods."""
        known = self._shares.get(node)
        if known is None:
            known = self._shares[node] = {}
            for uid in self.cluster.pods_on(node):
                charged = self.cluster.charged(uid)
                for share in shares_of(charged[1]) if charged is not None else ():
                    known.setdefault(share.uuid, []).append((uid, share))
        return known

    def close(self, node: str, cards: Collection[str]) -> None:
        """Takes these GPUs of a node out of service, and puts all others of it back. Those that are held for
        a pod in line stay in service: nothing else is placed there, and they would be held elsewhere.
        """
        if cards:
            holds = self.cluster.holds().values()
            cards = {*cards}.difference(*(held for where, held in holds if where == node))
        if not cards and node not in self._reported:
            return
        reported = self._reported.setdefault(node, self.cluster.gpus(node))
        gpus = [replace(gpu, healthy=gpu.healthy and gpu.uuid not in cards) for gpu in reported]
        self.cluster.change_gpus(node, gpus)
        if not cards:
            del self._reported[node]

    def move(self, pod: Movable, node: str, cards: Cards) -> Move | None:
        """Evicts a pod while these GPUs of this node are out of service. Returns None, and changes nothing,
        if its replacement finds no place, or one that depends on how long the pod takes to terminate, or if a
        pod in line would take what it leaves.
        """
        charged = self.cluster.charged(pod.uid)
        if charged is None:
            return None
        self.moves += 1
        source, before = charged
        left = cards_of(before)
        self._close_both(source, left, node, cards)
        early = self.place(pod)
        self._release(pod, source)
        late = self.place(pod)
        if late is None or early not in (None, late):
            self._put(pod, source, before)
            self._close_both(source, frozenset(), node, cards)
            return None
        move = Move(pod, source, before, *late)
        self._put(pod, *late)
        self._close_both(source, frozenset(), node, cards)
        if (source != node or not left <= cards) and self._wakes_another(source):
            self.undo(move)
            return None
        return move

    def repeat(self, move: Move) -> None:
        """Does again what was undone."""
        self._release(move.pod, move.source)
        self._put(move.pod, move.node, move.after)

    def undo(self, move: Move) -> None:
        self._release(move.pod, move.node)
        self._put(move.pod, move.source, move.before)

    def place(self, pod: Movable) -> tuple[str, PodGrant] | None:
        """Returns node and grant that a new pod like this one gets now; None without room."""
        rows = self.rows(pod)
        while len(rows):
            row = best(self.cluster, pod.uid, pod.demands, rows, pod.requests)
            if row is None:
                return None
            node = self.cluster.name(row)
            if not self.sums.missing(node, pod.takes):
                grant = place_pod(self.cluster, node, pod.uid, pod.slots, pod.requests)
                if grant is not None:
                    return node, grant
            rows = rows[rows != row]
        return None

    def rows(self, pod: Movable) -> Rows:
        """Returns the nodes that have the CPU, the memory and the place for it, and to which it may go."""
        matrix, rows = self.cluster.matrix, rows_of(self.cluster, pod.eligible)
        beside = matrix.cpu[rows] >= pod.requests.cpu
        beside &= matrix.memory[rows] >= pod.requests.memory
        beside &= matrix.pods[rows] >= 1
        there: Rows = rows[np.flatnonzero(beside)]
        return there

    def _close_both(self, source: str, left: Cards, node: str, cards: Cards) -> None:
        if source == node:
            self.close(node, cards | left)
        else:
            self.close(source, left)

    def _release(self, pod: Movable, node: str) -> None:
        self._shares.pop(node, None)
        self.cluster.release(pod.uid)
        self.sums.add(node, pod.takes, -1)

    def _put(self, pod: Movable, node: str, grant: PodGrant) -> None:
        self._shares.pop(node, None)
        self.cluster.load(node, grant)
        self.cluster.request(pod.uid, node, pod.requests)
        self.sums.add(node, pod.takes)

    def _wakes_another(self, node: str) -> bool:
        """Reports whether a pod in line fits on this node now."""
        row = self.cluster.rows([node])
        return any(
            (each.eligible is None or each.eligible.where(row, self.cluster.matrix.added)[0])
            and has_room(self.cluster, each.demands, row, (each.uid,))
            for each in self._waiting
        )

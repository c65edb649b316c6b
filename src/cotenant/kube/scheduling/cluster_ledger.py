"""Keeps the cluster's ledger: all GPUs of all nodes, and which pod holds what on them.

Each node has a `core.Ledger`, which is exact and decides what may be charged; one matrix is kept in step with
all of them, so that a question about 5,000 nodes is a few numpy operations. A charge belongs to a pod, by its
UID: a pod that was deleted and created again under its name is another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cotenant.core.errors import DuplicateCharge
from cotenant.core.gpu import GPU
from cotenant.core.learning import Supply
from cotenant.core.ledger import Ledger, Room
from cotenant.core.loss import Requests, Spare
from cotenant.dialects.pod_grant import PodGrant
from cotenant.kube.scheduling.kept_costs import KeptCosts
from cotenant.kube.scheduling.learned import Learned
from cotenant.kube.scheduling.matrix import Matrix, Rows
from cotenant.kube.scheduling.node_rows import NodeRows
from cotenant.kube.scheduling.requests import RequestSums

NOT_REPORTED = Spare()
"""What a node has beside its GPUs if nobody says."""


@dataclass(slots=True)
class _Node:
    row: int
    gpus: tuple[GPU, ...]
    """In the order of the matrix."""
    outside: dict[str, int]
    ledger: Ledger
    has: Spare
    """What it has beside its GPUs, for all pods."""


class ClusterLedger:
    """The cluster's ledger. Callers change it by these methods alone."""

    def __init__(self) -> None:
        self.matrix = Matrix()
        self.learned = Learned(self.matrix, Supply(), self._read)
        """What the policy `frag` judges placements by."""
        self.costs = KeptCosts(self.matrix, self.learned, self._read)
        """What nodes cost pods by that policy now."""
        self._rows = NodeRows()
        self._nodes: dict[str, _Node] = {}
        self._pods: dict[str, tuple[str, PodGrant]] = {}
        self._on: dict[str, dict[str, PodGrant]] = {}
        self._holds: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._gained: set[int] = set()
        self._requests = RequestSums()
        self._named = Counter[str]()
        self._named_of: dict[str, Counter[str]] = {}

    def set_node(
        self, name: str, gpus: Sequence[GPU], outside: Mapping[str, int], has: Spare = NOT_REPORTED
    ) -> None:
        """Adds a node, or changes it; what is charged on it stays charged. `has`: its CPU and memory, and how
        many pods it takes, for all pods together.
        """
        node, told = self._nodes.get(name), tuple(gpus)
        if node is not None and node.gpus == told and node.outside == outside and node.has == has:
            return
        cards = tuple(sorted(told, key=lambda gpu: (gpu.index, gpu.uuid)))
        if node is not None and node.gpus == cards and node.outside == outside:
            self._set_has(name, node, has)
            return
        if node is not None:
            self.learned.supply.add(node.gpus, node.has, -1)
        self.learned.supply.add(cards, has)
        charges = [charge for grant in self._on.get(name, {}).values() for charge in grant.charges]
        ledger = Ledger(cards, outside, charges)
        row = self._row(name)
        self._nodes[name] = _Node(row, cards, dict(outside), ledger, has)
        before = self._room(row)
        same = node is not None and [gpu.uuid for gpu in node.gpus] == [gpu.uuid for gpu in cards]
        self.matrix.lay_out(row, [ledger.room_on(gpu.uuid) for gpu in cards])
        for holder, cards_held in self._holds.values():
            if holder == name:
                self._mark_held(name, cards_held, 1)
        for uid in self._on.get(name, ()):
            self._count_names(uid)
        self._update_spare(name)
        if not same or any((after > was).any() for was, after in zip(before, self._room(row), strict=True)):
            self._gained.add(row)

    def change_gpus(self, name: str, gpus: Sequence[GPU]) -> None:
        """Changes the GPUs of a node that exists, and nothing else about it."""
        node = self._nodes[name]
        self.set_node(name, gpus, node.outside, node.has)

    def drop_node(self, name: str) -> None:
        """Removes a node. What is charged on it stays known, and counts again when it returns."""
        node = self._nodes.pop(name, None)
        if node is not None:
            self._rows.drop(name)
            self.learned.supply.add(node.gpus, node.has, -1)
            self.matrix.drop_row(node.row)
            self._changed(node.row)
            self._gained.discard(node.row)

    def rows(self, names: Sequence[str]) -> Rows:
        """Returns the row of each node, -1 if it does not exist. A node keeps its row as long as it exists;
        then another node may get it.
        """
        return self._rows.of(names)

    def located(self, names: Sequence[str]) -> tuple[Sequence[str], Rows]:
        """Returns the nodes that are named, in any order, and their rows; sooner if they are all nodes."""
        return self._rows.located(names)

    def name(self, row: int) -> str:
        """Returns the name of the node, empty if no node has this row."""
        return self._rows.name(row)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes that exist."""
        return tuple(self._nodes)

    def gpus(self, node: str) -> tuple[GPU, ...]:
        """Returns the node's GPUs, in the order of the matrix's columns."""
        there = self._nodes.get(node)
        return there.gpus if there is not None else ()

    def ledger(self, node: str) -> Ledger:
        """Returns the node's exact ledger, an empty one if the node does not exist. Callers must not change
        it.
        """
        there = self._nodes.get(node)
        return there.ledger if there is not None else Ledger(())

    def charge(self, node: str, grant: PodGrant) -> None:
        """Charges a new grant, all slots or none: raises NoRoom or DuplicateCharge, and then nothing has
        changed.

        Holds are not checked: they bind those who choose GPUs.
        """
        if grant.uid in self._pods:
            raise DuplicateCharge(f"pod {grant.uid} is charged already, on {self._pods[grant.uid][0]}")
        ledger, taken = self.ledger(node), list[str]()
        try:
            for charge in grant.charges:
                ledger.charge(charge)
                taken.append(charge.id)
        except BaseException:
            for id in taken:
                ledger.release(id)
            raise
        self._remember(node, grant)
        self._refresh(node, grant)

    def load(self, node: str, grant: PodGrant) -> None:
        """Charges a grant that exists already, whether or not it would fit or its node is known today."""
        known = self._pods.get(grant.uid)
        if known is not None:
            if known == (node, grant):
                return
            self.release(grant.uid)
        there = self._nodes.get(node)
        if there is not None:
            for charge in grant.charges:
                there.ledger.load(charge)
        self._remember(node, grant)
        self._refresh(node, grant)

    def release(self, uid: str) -> str | None:
        """Releases all that the pod holds, and what it takes beside GPUs. Returns the node it was on, None if
        no GPU was charged.
        """
        self._update_spare(self._requests.drop(uid))
        known = self._pods.pop(uid, None)
        if known is None:
            return None
        self._count_names(uid)
        node, grant = known
        on = self._on[node]
        del on[uid]
        if not on:
            del self._on[node]
        there = self._nodes.get(node)
        if there is not None:
            for charge in grant.charges:
                there.ledger.release(charge.id)
            self._refresh(node, grant)
            self._gained.add(there.row)
        return node

    def request(self, uid: str, node: str, requests: Requests) -> bool:
        """Notes what a pod on a node takes beside GPUs, with or without GPU. Returns whether the pod is new
        there.
        """
        before = self._requests.of(uid)
        if before == (node, requests):
            return False
        if before is not None and before[0] != node:
            self._update_spare(self._requests.drop(uid))
        self._requests.put(uid, node, requests)
        self._update_spare(node)
        self._count_names(uid)
        return before is None or before[0] != node

    def reserved(self, models: Sequence[str]) -> frozenset[str]:
        """Returns the models of which more is likely to be asked for by name than is free; not those that
        this pod names itself.
        """
        loss = self.learned.loss
        if not loss.usual:
            return frozenset()
        free = Counter[str]()
        for gpu, size in zip(self.matrix.kinds.gpus, self.matrix.free_of_kind[1:], strict=True):
            free[gpu.model] += size
        return loss.reserved(free, self._named, models)

    def spare(self, node: str) -> Spare:
        """Returns what the node has left beside its GPUs. Without a place for another pod that is nothing."""
        there = self._nodes.get(node)
        return Spare() if there is None else self._requests.left(node, there.has)

    def charged(self, uid: str) -> tuple[str, PodGrant] | None:
        return self._pods.get(uid)

    def pods_on(self, node: str) -> tuple[str, ...]:
        """Returns the UIDs of the pods charged on this node."""
        return tuple(self._on.get(node, ()))

    @property
    def pods(self) -> Mapping[str, tuple[str, PodGrant]]:
        """Node and grant of every charged pod, by UID."""
        return dict(self._pods)

    def hold(self, uid: str, node: str, cards: Collection[str]) -> None:
        """Holds these GPUs (UUIDs) for a pod, in place of those held for it before."""
        new = node, tuple(sorted(set(cards)))
        if self._holds.get(uid) == new:
            return
        self.unhold(uid)
        self._holds[uid] = new
        self._mark_held(*new, 1)

    def unhold(self, uid: str) -> None:
        held = self._holds.pop(uid, None)
        if held is not None:
            self._mark_held(*held, -1)
            there = self._nodes.get(held[0])
            if there is not None:
                self._gained.add(there.row)

    def holds(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Returns, by UID, the node and the GPUs that are held."""
        return dict(self._holds)

    def held_places(self, uid: str) -> tuple[int, list[int]] | None:
        """Returns row and columns of the GPUs that are held for this pod; None if none are."""
        held = self._holds.get(uid)
        if held is None:
            return None
        columns = self.columns(*held)
        return (self._rows[held[0]], columns) if columns else None

    def columns(self, node: str, cards: Collection[str]) -> list[int]:
        """Returns the columns of these GPUs in the node's row, if they exist."""
        there = self._nodes.get(node)
        if there is None:
            return []
        return [column for column, gpu in enumerate(there.gpus) if gpu.uuid in cards]

    def uuids(self, row: int, columns: Collection[int]) -> tuple[str, ...]:
        """Returns the UUIDs of the GPUs at these places."""
        gpus = self._nodes[self.name(row)].gpus
        return tuple(gpus[column].uuid for column in columns)

    def take_gained(self) -> Rows:
        """Returns the rows that gained room, were added or recovered since the last call."""
        rows = np.array(sorted(self._gained), np.int32)
        self._gained.clear()
        return rows

    def _row(self, name: str) -> int:
        row = self._rows.get(name)
        if row is None:
            row = self.matrix.add_row()
            self._rows.add(name, row)
        return row

    def _room(self, row: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        matrix = self.matrix
        return matrix.free[:, row].copy(), matrix.compute[:, row].copy(), matrix.unused[:, row].copy()

    def _remember(self, node: str, grant: PodGrant) -> None:
        self._pods[grant.uid] = node, grant
        self._on.setdefault(node, {})[grant.uid] = grant
        self._count_names(grant.uid)

    def _refresh(self, node: str, grant: PodGrant) -> None:
        """Updates the matrix where the grant has shares."""
        there = self._nodes.get(node)
        if there is None:
            return
        touched = {share.uuid for slot in grant.slots for share in slot.shares}
        for column, gpu in enumerate(there.gpus):
            if gpu.uuid in touched:
                self.matrix.update(there.row, column, there.ledger.room_on(gpu.uuid))
        self._changed(there.row)

    def _read(self, row: int) -> tuple[Sequence[Room], Spare]:
        """Returns what a node has free, in the order of the matrix."""
        there = self._nodes.get(self.name(row))
        if there is None:
            return (), Spare()
        rooms = [there.ledger.room_on(gpu.uuid) for gpu in there.gpus]
        return rooms, self.spare(self.name(row))

    def _set_has(self, name: str, node: _Node, has: Spare) -> None:
        self.learned.supply.add(node.gpus, node.has, -1)
        self.learned.supply.add(node.gpus, has)
        node.has = has
        self._update_spare(name)

    def _update_spare(self, name: str | None) -> None:
        there = None if name is None else self._nodes.get(name)
        if there is not None and name is not None:
            self.matrix.spare(there.row, self._requests.left(name, there.has))
            self._changed(there.row)

    def _count_names(self, uid: str) -> None:
        """Counts anew what a pod holds on cards of models that it asked for by name."""
        before = self._named_of.pop(uid, None)
        if before is not None:
            self._named.subtract(before)
        known, asked = self._pods.get(uid), self._requests.of(uid)
        if known is None or asked is None or not asked[1].by_name:
            return
        models = {gpu.uuid: gpu.model for gpu in self.gpus(known[0])}
        held = Counter[str]()
        for slot in known[1].slots:
            for share in slot.shares:
                if share.uuid in models:
                    held[models[share.uuid]] += share.memory
        self._named.update(held)
        self._named_of[uid] = held

    def _changed(self, row: int) -> None:
        self.learned.changed(row)
        self.costs.changed(row)

    def _mark_held(self, node: str, cards: Collection[str], by: int) -> None:
        for column in self.columns(node, cards):
            self.matrix.held[column, self._rows[node]] += by
            self.costs.changed(self._rows[node])

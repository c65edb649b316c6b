"""Keeps the cluster's ledger: all GPUs of all nodes, and which pod holds what on them.

Each node has a `core.Ledger`, which is exact and decides what may be charged; one matrix is kept in step with
all of them, so that a question about 5,000 nodes is a few numpy operations. A charge belongs to a pod, by its
UID: a pod that was deleted and created again under its name is another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from cotenant.core.errors import DuplicateCharge
from cotenant.core.fragmentation import DEFAULT_TYPICAL, Typical
from cotenant.core.gpu import GPU
from cotenant.core.ledger import Ledger
from cotenant.dialects.pod_grant import PodGrant
from cotenant.kube.scheduling.matrix import Matrix, Rows


@dataclass(slots=True)
class _Node:
    row: int
    gpus: tuple[GPU, ...]
    """In the order of the matrix."""
    outside: dict[str, int]
    ledger: Ledger


class ClusterLedger:
    """The cluster's ledger. Callers change it by these methods alone."""

    def __init__(self, typical: Typical = DEFAULT_TYPICAL) -> None:
        self.typical = typical
        """The demands that are likely to come, for the policy `frag`."""
        self.matrix = Matrix()
        self._rows: dict[str, int] = {}
        self._names: list[str] = []
        self._nodes: dict[str, _Node] = {}
        self._pods: dict[str, tuple[str, PodGrant]] = {}
        self._on: dict[str, dict[str, PodGrant]] = {}
        self._holds: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._gained: set[int] = set()

    def set_node(self, name: str, gpus: Sequence[GPU], outside: Mapping[str, int]) -> None:
        """Adds a node, or changes it; what is charged on it stays charged."""
        node, told = self._nodes.get(name), tuple(gpus)
        if node is not None and node.gpus == told and node.outside == outside:
            return
        cards = tuple(sorted(told, key=lambda gpu: (gpu.index, gpu.uuid)))
        if node is not None and node.gpus == cards and node.outside == outside:
            return
        charges = [charge for grant in self._on.get(name, {}).values() for charge in grant.charges]
        ledger = Ledger(cards, outside, charges)
        row = self._row(name)
        self._nodes[name] = _Node(row, cards, dict(outside), ledger)
        before = self._room(row)
        same = node is not None and [gpu.uuid for gpu in node.gpus] == [gpu.uuid for gpu in cards]
        self.matrix.lay_out(row, [ledger.room_on(gpu.uuid) for gpu in cards])
        for holder, cards_held in self._holds.values():
            if holder == name:
                self._mark_held(name, cards_held, 1)
        if not same or any((after > was).any() for was, after in zip(before, self._room(row), strict=True)):
            self._gained.add(row)

    def drop_node(self, name: str) -> None:
        """Removes a node. What is charged on it stays known, and counts again when it returns."""
        node = self._nodes.pop(name, None)
        if node is not None:
            del self._rows[name]
            self._names[node.row] = ""
            self.matrix.drop_row(node.row)
            self._gained.discard(node.row)

    def rows(self, names: Sequence[str]) -> Rows:
        """Returns the row of each node, -1 if it does not exist. A node keeps its row as long as it exists;
        then another node may get it.
        """
        return np.fromiter(map(self._rows.get, names, repeat(-1)), np.int32, len(names))

    def name(self, row: int) -> str:
        """Returns the name of the node, empty if no node has this row."""
        return self._names[row]

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
        """Releases all that the pod holds. Returns the node it was on, None if nothing was charged."""
        known = self._pods.pop(uid, None)
        if known is None:
            return None
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
        gpus = self._nodes[self._names[row]].gpus
        return tuple(gpus[column].uuid for column in columns)

    def take_gained(self) -> Rows:
        """Returns the rows that gained room, were added or recovered since the last call."""
        rows = np.array(sorted(self._gained), np.int32)
        self._gained.clear()
        return rows

    def _row(self, name: str) -> int:
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = self.matrix.add_row()
            if row == len(self._names):
                self._names.append(name)
            self._names[row] = name
        return row

    def _room(self, row: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        matrix = self.matrix
        return matrix.free[:, row].copy(), matrix.compute[:, row].copy(), matrix.unused[:, row].copy()

    def _remember(self, node: str, grant: PodGrant) -> None:
        self._pods[grant.uid] = node, grant
        self._on.setdefault(node, {})[grant.uid] = grant

    def _refresh(self, node: str, grant: PodGrant) -> None:
        """Updates the matrix where the grant has shares."""
        there = self._nodes.get(node)
        if there is None:
            return
        touched = {share.uuid for slot in grant.slots for share in slot.shares}
        for column, gpu in enumerate(there.gpus):
            if gpu.uuid in touched:
                self.matrix.update(there.row, column, there.ledger.room_on(gpu.uuid))

    def _mark_held(self, node: str, cards: Collection[str], by: int) -> None:
        for column in self.columns(node, cards):
            self.matrix.held[column, self._rows[node]] += by

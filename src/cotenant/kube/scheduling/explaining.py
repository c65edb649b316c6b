"""Explains why a pod waits, in a sentence for people. A scheduler gets constant texts instead (see
`reasons`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.units import format_apart, format_bytes
from cotenant.dialects import names
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.demand_mask import how_many, in_order, want
from cotenant.kube.scheduling.filling import brand_new, now
from cotenant.kube.scheduling.kinds import NO_CARD
from cotenant.kube.scheduling.matrix import Bools, Rows, Window
from cotenant.kube.scheduling.scan import HOPEFUL, Verdict, scan


def why(cluster: ClusterLedger, uid: str, demands: Sequence[Demand], rows: Rows) -> str:
    """Returns a sentence with figures: what is asked, what there is, and what to do if waiting is useless."""
    known = rows[rows >= 0]
    known = known[cluster.matrix.cards[known] > 0]
    if not len(known):
        there = {0: "there is no node", 1: "the only node has no known GPU"}.get(
            len(rows), f"none of {len(rows)} nodes has a known GPU"
        )
        return f"{_all_asked(demands)} asked, {there}: GPUs are known once the agent runs on their node"
    verdict = _best(cluster, uid, demands, known)
    if verdict == Verdict.FITS:
        fit = int((scan(cluster, uid, demands, known) == Verdict.FITS).sum())
        return f"{_all_asked(demands)} asked, there is room on {fit} of {_nodes(len(known))}"
    for demand in in_order(demands):
        if _best(cluster, uid, (demand,), known) == verdict:
            return _Why(cluster, uid, demand, known).sentence(verdict)
    if verdict == Verdict.TOO_BIG:
        end = "more than any node could give if it were empty: ask for less, or for fewer containers in a pod"
    else:
        end = f"no node has room for all of it at once (of {_nodes(len(known))})"
    return f"{_all_asked(demands)} asked, {end}"


def _best(cluster: ClusterLedger, uid: str, demands: Sequence[Demand], rows: Rows) -> Verdict:
    """Returns the most hopeful verdict of all nodes."""
    found = set(scan(cluster, uid, demands, rows).tolist())
    return next(each for each in HOPEFUL if each in found)


class _Why:
    """One demand, and the nodes with GPUs that it might go to."""

    def __init__(self, cluster: ClusterLedger, uid: str, demand: Demand, rows: Rows) -> None:
        self.cluster, self.uid, self.demand, self.rows = cluster, uid, demand, rows
        self.window = Window(cluster.matrix, rows)
        self.part = want(demand, self.window)
        self.of = f"(of {_nodes(len(rows))})"

    def sentence(self, verdict: Verdict) -> str:
        told = {
            Verdict.HELD: self._held,
            Verdict.NO_ROOM: self._no_room,
            Verdict.TOO_BIG: self._too_big,
            Verdict.UNKNOWN_MODEL: self._unknown,
        }
        return told[verdict]()

    def _held(self) -> str:
        at = int(np.flatnonzero(scan(self.cluster, self.uid, (self.demand,), self.rows) == Verdict.HELD)[0])
        fit = self.part.fits(*now(self.window))[:, at] & (self.window.held[:, at] > 0)
        card = self._card(int(fit.argmax()), at)
        return f"{_asked(self.demand)} asked, {card} has room but is held for a pod ahead in the line"

    def _no_room(self) -> str:
        fit = self.part.fits(*now(self.window))
        most, at = self._most(fit)
        if self.demand.memory is None:
            unused = {0: "none is", 1: "1 is"}.get(most, f"{most} are")
            where = f" on {self._node(at)}" if most else ""
            return f"{_asked(self.demand)} asked, {unused} unused{where} now {self.of}"
        if most:
            have = "1 GPU has" if most == 1 else f"{most} GPUs have"
            return f"{_asked(self.demand)} asked, at most {have} that room, on {self._node(at)} {self.of}"
        lacking = self._compute()
        return lacking or self._largest_room()

    def _compute(self) -> str | None:
        """Says that compute is missing, if a GPU has the memory."""
        memory = self._allowed(self.window.free >= self.part.need)
        if not self.part.compute or not memory.any():
            return None
        column, at = self._greatest(np.where(memory, self.window.compute, -1))
        found = f"at most {self.window.compute[column, at]}% is free beside that memory"
        return f"{_asked(self.demand)} asked, {found}, on {self._card(column, at)} {self.of}"

    def _largest_room(self) -> str:
        room = self._allowed(self.window.emptied > 0)
        if not room.any():
            return f"{_asked(self.demand)} asked, no GPU that matches is healthy {self.of}"
        whole = np.maximum(self.window.size, 1) if _in_parts(self.demand) else 1
        column, at = self._greatest(np.where(room, self.window.free / whole, -1))
        free, gpu = int(self.window.free[column, at]), self._gpu(column, at)
        if _in_parts(self.demand):
            asked, found = _asked(self.demand), f"{format_bytes(free)} of {format_bytes(gpu.memory)}"
        else:
            amount, found = format_apart(self.demand.per_card(0), free)
            asked = _asked(self.demand, amount)
        return f"{asked} asked, largest free room {found} on {self._card(column, at)} {self.of}"

    def _too_big(self) -> str:
        wished = " that matches" if self.demand.models or self.demand.uuids else ""
        allowed = self._allowed(self.window.size >= 0)
        most, at = self._most(allowed)
        if most < self.demand.count:
            return (
                f"{_asked(self.demand)} asked, no node has more than {most}{wished}: ask for {most} or fewer"
            )
        fit = self.part.fits(*brand_new(self.window))
        large, at = self._most(fit)
        if large:
            have = "1 GPU" if large == 1 else f"{large} GPUs"
            return f"{_asked(self.demand)} asked, no node has more than {have} of that size: ask for less"
        column, at = self._greatest(np.where(allowed, self.window.size, -1))
        gpu = self._gpu(column, at)
        amount, size = format_apart(self.demand.per_card(gpu.memory), gpu.memory)
        end = f"the largest GPU{wished} has {size} ({self._card(column, at)}, {gpu.model})"
        return f"{_asked(self.demand, amount)} asked, {end}: ask for less{self._spread(allowed)}"

    def _spread(self, allowed: Bools) -> str:
        """Says over how many GPUs of one node it would fit."""
        memory = self.demand.memory
        if memory is None or memory.bytes is None:
            return ""
        for cards in range(self.demand.count + 1, allowed.shape[0] + 1):
            part = -(-memory.bytes // cards)
            if (how_many(allowed & (self.window.size >= part)) >= cards).any():
                annotation = f"{names.gpu_count('<container>')}: {cards}"
                return f", or spread it over {cards} GPUs with annotation {annotation}"
        return ""

    def _unknown(self) -> str:
        demand = self.demand
        wishes = [*(["model " + " or ".join(demand.models)] if demand.models else []), *demand.uuids]
        kinds = np.unique(self.window.kind[self.window.kind != NO_CARD]).tolist()
        there = ", ".join(sorted({self.cluster.matrix.kinds.model(kind) for kind in kinds}))
        none = f"no such GPU is on any of {_nodes(len(self.rows))}"
        return f"{' and '.join(wishes)} asked, {none}: there is {there}"

    def _allowed(self, mask: Bools) -> Bools:
        there = mask & brand_new(self.window).unused
        return there if self.part.accepts is None else there & self.part.accepts

    def _most(self, mask: Bools) -> tuple[int, int]:
        counts = how_many(mask)
        at = int(counts.argmax())
        return int(counts[at]), at

    def _greatest(self, values: np.ndarray) -> tuple[int, int]:
        column, at = np.unravel_index(int(values.argmax()), values.shape)
        return int(column), int(at)

    def _node(self, at: int) -> str:
        return self.cluster.name(int(self.rows[at]))

    def _gpu(self, column: int, at: int) -> GPU:
        return self.cluster.gpus(self._node(at))[column]

    def _card(self, column: int, at: int) -> str:
        return f"{self._gpu(column, at)} of {self._node(at)}"


def _in_parts(demand: Demand) -> bool:
    return demand.memory is not None and demand.memory.percent is not None


def _asked(demand: Demand, amount: str | None = None) -> str:
    if demand.memory is None:
        return "1 whole GPU" if demand.count == 1 else f"{demand.count} whole GPUs of one node"
    text = amount
    if text is None:
        text = f"{demand.memory} of a GPU" if _in_parts(demand) else format_bytes(demand.per_card(0))
    if demand.compute:
        text += f" and {demand.compute}% of the compute"
    return text if demand.count == 1 else f"{text} on each of {demand.count} GPUs of one node"


def _all_asked(demands: Sequence[Demand]) -> str:
    return " and ".join(_asked(demand) for demand in in_order(demands)) or "nothing"


def _nodes(count: int) -> str:
    return f"{count} node{'s' if count != 1 else ''} with GPUs"

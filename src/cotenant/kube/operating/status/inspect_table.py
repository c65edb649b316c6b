"""Prints the tables of `kubectl inspect gpushare`, which people and their scripts are used to.

Units are chosen as that tool does: by how much of `aliyun.com/gpu-mem` a card of the first node is worth;
more than 100 can only be MiB. With MiB the heads are those of its user guide, with GiB those that it prints
today.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cotenant.core.errors import BadInput
from cotenant.dialects.aliyun import COUNT, MEMORY
from cotenant.dialects.quantity import parse_whole
from cotenant.kube.api.timestamps import timestamp
from cotenant.observe.view import GpuView, NodeView

_GAP = 2
_LONGEST_RULE = 120
"""Characters. The tool's own grows with the number of pods on the first node."""


@dataclass(frozen=True, slots=True)
class Unit:
    """How amounts are shown."""

    name: str
    bytes: int
    card: str
    """The heading of a GPU's column."""
    node: str
    """The heading of the node's column."""
    beyond: int
    """By how much the rule is longer than the first row."""


MIB = Unit("MiB", 2**20, "GPU{}(Allocated MiB/Total MiB)", "GPU Memory", 40)
GIB = Unit("GiB", 2**30, "GPU{}(Allocated/Total)", "GPU Memory(GiB)", 20)


def unit_of(nodes: Sequence[NodeView]) -> Unit:
    """GiB where no node has that resource: it is the tool's default."""
    for seen in nodes:
        memory, cards = (_shown(seen, name) for name in (MEMORY, COUNT))
        if memory and cards:
            return MIB if memory // cards > 100 else GIB
    return GIB


def _shown(node: NodeView, resource: str) -> int:
    try:
        return parse_whole(node.capacity.get(resource, "0"), resource, "1")
    except BadInput:
        return 0


def summary(nodes: Sequence[NodeView]) -> str:
    """One line a node."""
    seen, unit = [each for each in nodes if each.gpus], unit_of(nodes)
    placed = [_columns(each) for each in seen]
    width = max((max(columns) + 1 for columns in placed), default=0)
    head = ["NAME", "IPADDRESS", *(unit.card.format(at) for at in range(width)), unit.node]
    rows = []
    for each, columns in zip(seen, placed, strict=True):
        cells = [_of(*_amounts((columns[at],), unit)) if at in columns else "0/0" for at in range(width)]
        rows.append([each.name, each.address, *cells, _of(*_amounts(each.gpus, unit))])
    rule = sum(len(cell) + 1 for cell in rows[0]) + unit.beyond if rows else 0
    lines = [
        *aligned([head, *rows]),
        "-" * rule,
        "Allocated/Total GPU Memory In Cluster:",
        _total(seen, unit),
    ]
    return "\n".join(lines) + "\n"


def details(nodes: Sequence[NodeView], namespace: str | None = None) -> str:
    """Lists the pods of each GPU, or those of one namespace; all are counted."""
    seen, unit = [each for each in nodes if each.gpus], unit_of(nodes)
    lines: list[str] = []
    rule = 0
    for each in seen:
        used, total = _amounts(each.gpus, unit)
        rows = _pod_rows(each, unit, namespace)
        rule = rule or min(sum(len(cell) + 1 for row in rows for cell in row) + len(rows) + 10, _LONGEST_RULE)
        lines += ["", *aligned([["NAME:", each.name], ["IPADDRESS:", each.address]]), ""]
        lines += aligned(
            [
                ["NAME", "NAMESPACE", *(f"GPU{at}(Allocated)" for at in sorted(_columns(each)))],
                *rows,
                ["Allocated :", f"{used} ({_percent(used, total)}%)"],
                ["Total :", str(total)],
            ]
        )
        lines += [
            f"GPU{at} {remark}" for at, card in sorted(_columns(each).items()) for remark in remarks(card)
        ]
        lines += _idle(each, namespace)
        lines.append("-" * rule)
    lines += ["", "", f"Allocated/Total GPU Memory In Cluster:  {_total(seen, unit)}"]
    return "\n".join(lines) + "\n"


def limits(nodes: Sequence[NodeView], namespace: str | None = None) -> str:
    """Lists what was asked to hold each pod to its limit and what does, as far as agents have reported it;
    empty if they have not.
    """
    pods = {
        (each.name, held.namespace, held.name): held
        for each in nodes
        for card in each.gpus
        for held in card.shares
        if held.enforcer and namespace in {None, held.namespace}
    }
    if not pods:
        return ""
    rows = [
        [name, of, node, held.enforcer_asked, held.enforcer, held.limit_problem]
        for (node, of, name), held in sorted(pods.items())
    ]
    return "\n".join(["", *aligned([["POD", "NAMESPACE", "NODE", "ASKED", "HOLDS"], *rows])]) + "\n"


def remarks(card: GpuView) -> list[str]:
    """Says why a GPU takes no new grant, and whose memory it has."""
    found = []
    if card.problem is not None:
        found.append(f"is sick and takes no new grant: {card.problem}")
    if card.drained:
        found.append("is drained and takes no new grant")
    if card.gpu.shared:
        found.append("has no memory of its own: it shares the host's")
    return found


def _idle(seen: NodeView, namespace: str | None) -> list[str]:
    """Names the pods that hold GPU and do not use it, the longest first."""
    pods = {
        (held.idle_since, str(held))
        for card in seen.gpus
        for held in card.shares
        if held.idle_since is not None and namespace in {None, held.namespace}
    }
    return [f"{name} has been idle since {timestamp(since)}" for since, name in sorted(pods)]


def _pod_rows(seen: NodeView, unit: Unit, namespace: str | None) -> list[list[str]]:
    columns = _columns(seen)
    pods = {
        (held.namespace, held.name, held.grant): held
        for card in seen.gpus
        for held in card.shares
        if namespace in {None, held.namespace}
    }
    rows = []
    for key in sorted(pods):
        by_card = {
            at: sum(held.memory for held in card.shares if held.grant == key[2])
            for at, card in columns.items()
        }
        rows.append([key[1], key[0], *(str(-(-by_card[at] // unit.bytes)) for at in sorted(columns))])
    return rows


def _columns(seen: NodeView) -> dict[int, GpuView]:
    """The column of each GPU: its index, or its position where indexes are shared (MIG)."""
    by_index = {card.gpu.index: card for card in seen.gpus}
    return by_index if len(by_index) == len(seen.gpus) else dict(enumerate(seen.gpus))


def _amounts(cards: Sequence[GpuView], unit: Unit) -> tuple[int, int]:
    """Allocated and total; a full GPU shows as full, even if its size is not a whole number of units."""
    used = total = 0
    for card in cards:
        size = card.gpu.memory // unit.bytes
        taken = -(-card.granted // unit.bytes)
        used += min(taken, size) if card.granted <= card.gpu.memory else taken
        total += size
    return used, total


def _of(used: int, total: int) -> str:
    return f"{used}/{total}"


def _total(nodes: Sequence[NodeView], unit: Unit) -> str:
    used, total = _amounts([card for each in nodes for card in each.gpus], unit)
    return f"{used}/{total} ({_percent(used, total)}%)"


def _percent(used: int, total: int) -> int:
    return used * 100 // total if total else 0


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as they need to be, two spaces apart, without spaces at the end of a line."""
    widths: dict[int, int] = {}
    for row in rows:
        for at, cell in enumerate(row):
            widths[at] = max(widths.get(at, 0), len(cell))
    return ["".join(cell.ljust(widths[at] + _GAP) for at, cell in enumerate(row)).rstrip() for row in rows]

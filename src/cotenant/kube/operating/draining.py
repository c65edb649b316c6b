"""Takes one GPU out of service without its node, by an annotation on the node that the server honours.

A drained GPU takes no new grant. Pods on it stay until they end by themselves: nothing is evicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cotenant.core.errors import BadInput
from cotenant.core.gpu import begins
from cotenant.core.units import format_bytes
from cotenant.dialects import names
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import Conflict
from cotenant.kube.api.objects import Node
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import NODES
from cotenant.kube.nodes.gpus import drained_of, write_drained
from cotenant.kube.operating.status.reading import read_all
from cotenant.kube.operating.status.snapshot import share_json
from cotenant.observe.view import GpuView, NodeView

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Target:
    """The GPU that is meant."""

    node: Node
    uuid: str
    card: GpuView | None
    """None: it is gone, and only its annotation is left."""

    def __str__(self) -> str:
        return f"{self.card} ({self.uuid})" if self.card else f"{self.uuid} of {self.node.metadata.name}"


@dataclass(frozen=True, slots=True)
class Drained:
    target: Target
    drained: bool
    changed: bool

    @property
    def sentence(self) -> str:
        already = "" if self.changed else " already"
        if not self.drained:
            state = f"is{already} in service" if self.changed or self.target.card else "was not drained"
            return f"{self.target} {state}{self._takes_none()}"
        return f"{self.target} is{already} drained: it takes no new grant; {self._who()}"

    def _takes_none(self) -> str:
        card = self.target.card
        if card is None:
            return ", and is not there any more"
        return f", but it is sick: {card.problem}" if card.problem is not None else ""

    def _who(self) -> str:
        held = self.target.card.shares if self.target.card else ()
        if not held:
            return "nobody is on it"
        who = ", ".join(f"{each} ({format_bytes(each.memory)})" for each in held)
        return f"still there until they end: {who}"

    def to_json(self) -> dict[str, Any]:
        return {
            "node": self.target.node.metadata.name,
            "uuid": self.target.uuid,
            "index": self.target.card.gpu.index if self.target.card else None,
            "drained": self.drained,
            "changed": self.changed,
            "pods": [share_json(each) for each in self.target.card.shares] if self.target.card else [],
        }


def find_card(nodes: Sequence[Node], seen: Sequence[NodeView], asked: str, on: str | None = None) -> Target:
    """Finds a GPU by UUID or the beginning of one, by `node/index`, or by an index on the node `on`."""
    name, slash, last = asked.rpartition("/")
    if slash and not name.startswith("MIG-GPU-"):  # the UUIDs of older MIG instances have slashes
        if on not in {None, name}:
            raise BadInput(f"GPU: {asked!a} names the node {name}, and --node {on}: leave out one of them")
        on, asked = name, last
    by_name = {node.metadata.name: node for node in nodes}
    if on is not None and on not in by_name:
        there = ", ".join(each.name for each in seen) or "none"
        raise BadInput(f"no node {on}: nodes with GPUs are {there}")
    cards = [(by_name[each.name], card) for each in seen if on in {None, each.name} for card in each.gpus]
    if asked.isascii() and asked.isdigit():
        return _by_index(cards, int(asked), on)
    found = [Target(node, card.gpu.uuid, card) for node, card in cards if begins(card.gpu.uuid, asked)]
    if not found:  # of a card that is gone there may still be a mark
        found = [
            Target(node, uuid, None)
            for node in nodes
            if on in {None, node.metadata.name}
            for uuid in sorted(drained_of(node))
            if begins(uuid, asked)
        ]
    exact = [each for each in found if each.uuid == asked]
    return _only(exact or found, asked, on)


def _by_index(cards: Sequence[tuple[Node, GpuView]], index: int, on: str | None) -> Target:
    if on is None:
        raise BadInput(f"GPU: {index} is the index of a GPU on every node: write NODE/{index}, or a UUID")
    found = [Target(node, card.gpu.uuid, card) for node, card in cards if card.gpu.index == index]
    return _only(found, str(index), on)


def _only(found: Sequence[Target], asked: str, on: str | None) -> Target:
    where = f" on node {on}" if on is not None else ""
    if not found:
        raise BadInput(f"GPU: no GPU {asked!a}{where}: `cotenant status -o json` lists all of them")
    if len(found) > 1:
        raise BadInput(f"GPU: {asked!a}{where} is {' or '.join(str(each) for each in found)}: give its UUID")
    return found[0]


def patch_for(target: Target, *, drained: bool) -> dict[str, Any] | None:
    """Returns None if nothing is to be changed."""
    before = drained_of(target.node)
    after = before | {target.uuid} if drained else before - {target.uuid}
    if after == before:
        return None
    return {"metadata": {"annotations": {names.DRAINED: write_drained(sorted(after))}}}


async def set_drained(client: Client, asked: str, on: str | None, *, drained: bool) -> Drained:
    """Guards the write by what was read: two people who drain two GPUs of a node at once drain both."""
    for attempt in range(_ATTEMPTS):
        seen = await read_all(client)
        target = find_card(seen.nodes, seen.view.nodes, asked, on)
        patch = patch_for(target, drained=drained)
        if patch is None:
            return Drained(target, drained, changed=False)
        try:
            await client.merge_patch(NODES, target.node.metadata.name, patch, guard=Guard.of(target.node))
        except Conflict:
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        return Drained(target, drained, changed=True)
    raise AssertionError("unreachable")

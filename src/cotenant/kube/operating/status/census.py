"""Every card of the cluster and who holds what on it, by what nodes and pods say of themselves.

This is not the server's ledger but a second count of the same things: it needs no server, and where the two
differ, something is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cotenant.core.errors import CotenantError
from cotenant.core.gpu import GPU
from cotenant.dialects import names
from cotenant.dialects.pod_grant import GrantUnreadable, PodGrant
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.nodes.gpus import NONE, GpusUnreadable, NodeCard, NodeGpus, drained_of, read_gpus
from cotenant.kube.pods.demand import grant_of


@dataclass(frozen=True, slots=True)
class Held:
    """What one pod holds on one card."""

    namespace: str
    pod: str
    uid: str
    memory: int
    whole: bool
    compute: int = 0
    """Percent of the card's; 0 if none was asked for."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}"

    def to_json(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "pod": self.pod,
            "uid": self.uid,
            "memory": self.memory,
            "whole": self.whole,
        }


@dataclass(frozen=True, slots=True)
class CardSeen:
    """One card."""

    node: str
    card: NodeCard
    drained: bool
    held: tuple[Held, ...]

    @property
    def granted(self) -> int:
        return sum(each.memory for each in self.held)

    @property
    def compute(self) -> int:
        """Percent that are granted."""
        return sum(each.compute for each in self.held)

    @property
    def gpu(self) -> GPU:
        return self.card.gpu(drained=self.drained)

    def __str__(self) -> str:
        return f"GPU {self.card.index} of {self.node}"

    def to_json(self) -> dict[str, Any]:
        return {
            "index": self.card.index,
            "uuid": self.card.uuid,
            "model": self.card.model,
            "memory": self.card.memory,
            "granted": self.granted,
            "outside": self.card.outside,
            "problem": self.card.problem,
            "drained": self.drained,
            "pods": [each.to_json() for each in self.held],
        }


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node that has cards, or says something of cards that nobody can read."""

    node: Node
    told: NodeGpus
    cards: tuple[CardSeen, ...]
    """In the order of their indexes."""
    trouble: str | None = None

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def address(self) -> str:
        found = (each.address for each in self.node.status.addresses if each.type == "InternalIP")
        return next(found, "unknown")

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "address": self.address,
            "agent": self.told.agent,
            "enforcer": self.told.enforcer,
            "mps": self.told.mps,
            "trouble": self.trouble,
            "memory": sum(card.card.memory for card in self.cards),
            "granted": sum(card.granted for card in self.cards),
            "gpus": [card.to_json() for card in self.cards],
        }


def census(nodes: Iterable[Node], pods: Iterable[Pod]) -> tuple[NodeSeen, ...]:
    """By name. A grant that is none holds nothing here; the doctor tells of it."""
    held: dict[tuple[str, str], dict[str, Held]] = {}
    for pod in pods:
        grant = readable_grant(pod)
        if grant is not None:
            _count(held, pod, grant)
    seen = (_node(node, held) for node in nodes if names.GPUS in node.metadata.annotations)
    return tuple(sorted(seen, key=lambda each: each.name))


def readable_grant(pod: Pod) -> PodGrant | None:
    """What the pod holds, if that can be told."""
    try:
        return grant_of(pod)
    except GrantUnreadable:
        return None


def _count(held: dict[tuple[str, str], dict[str, Held]], pod: Pod, grant: PodGrant) -> None:
    meta = pod.metadata
    for slot in grant.slots:
        for share in slot.shares:
            on = held.setdefault((pod.spec.node_name, share.uuid), {})
            before = on.get(grant.uid)
            on[grant.uid] = Held(
                meta.namespace,
                meta.name,
                meta.uid,
                share.memory + (before.memory if before else 0),
                share.whole or (before is not None and before.whole),
                (share.compute or 0) + (before.compute if before else 0),
            )


def _node(node: Node, held: dict[tuple[str, str], dict[str, Held]]) -> NodeSeen:
    try:
        told = read_gpus(node.metadata.annotations.get(names.GPUS))
    except GpusUnreadable as error:
        return NodeSeen(node, NONE, (), str(error))
    name, drained = node.metadata.name, drained_of(node)
    cards = (
        CardSeen(
            name,
            card,
            card.uuid in drained,
            tuple(sorted(held.get((name, card.uuid), {}).values(), key=str)),
        )
        for card in told.cards
    )
    return NodeSeen(node, told, tuple(sorted(cards, key=lambda card: (card.card.index, card.card.uuid))))


class NoSuchNode(CotenantError):
    """The node that was asked for is not there, or has no cards."""


def one_node(seen: tuple[NodeSeen, ...], name: str, nodes: Iterable[Node]) -> tuple[NodeSeen, ...]:
    """The node of that name alone."""
    found = tuple(each for each in seen if each.name == name and each.cards)
    if found:
        return found
    if all(node.metadata.name != name for node in nodes):
        there = ", ".join(each.name for each in seen) or "none"
        raise NoSuchNode(f"no node {name}: nodes with GPUs are {there}")
    raise NoSuchNode(
        f"node {name} shows no GPU: Cotenant's agent must run there: "
        f"kubectl get pods -A -o wide --field-selector spec.nodeName={name}"
    )

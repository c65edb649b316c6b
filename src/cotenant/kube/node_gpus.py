"""The cards of a node, as the annotation `cotenant.dev/gpus` tells of them.

The agent writes it through `nodes/status`, the server reads it: each card by itself, since a node's capacity
is only their sum. What cannot be read is no card at all: nothing is placed where nobody knows what there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from cotenant.core.errors import CotenantError
from cotenant.core.gpu import GPU
from cotenant.core.units import LARGEST
from cotenant.dialects import names
from cotenant.kube.objects import Node

VERSION = 1

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
_Bytes = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]


class GpusUnreadable(CotenantError):
    """The annotation is damaged, or of a newer version."""


class NodeCard(msgspec.Struct, frozen=True, omit_defaults=True):
    """One card, and what cannot be known from grants."""

    uuid: _Text
    index: Annotated[int, msgspec.Meta(ge=0, le=4096)]
    model: str
    memory: _Bytes
    parent: str | None = None
    """UUID of the physical card if this is a MIG instance."""
    problem: str | None = None
    """Why it takes no new grant."""
    outside: _Bytes = 0
    """Bytes held by processes that no grant covers."""

    def gpu(self, *, drained: bool = False) -> GPU:
        healthy = self.problem is None and not drained
        return GPU(self.uuid, self.index, self.model, self.memory, healthy=healthy, parent=self.parent)


class NodeGpus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the agent of a node tells."""

    version: int
    cards: tuple[NodeCard, ...]
    agent: str = ""
    """Its version."""
    enforcer: str = "shim"
    """The strongest that the node offers: `driver`, `shim` or `watch`."""
    mps: bool = False
    """Whether shares of compute are enforced."""
    resources: tuple[str, ...] = ()
    """What the agent put into the node's capacity: only that it may take away again."""


NONE = NodeGpus(VERSION, ())


def write_gpus(gpus: NodeGpus) -> str:
    """The annotation's text."""
    return msgspec.json.encode(gpus).decode()


def read_gpus(text: str | None) -> NodeGpus:
    """What the annotation says; no cards if there is none."""
    if not text:
        return NONE
    try:
        gpus = msgspec.json.decode(text, type=NodeGpus)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise GpusUnreadable(f"annotation {names.GPUS}: {error}: the node's agent writes it anew") from None
    if gpus.version != VERSION:
        raise GpusUnreadable(
            f"annotation {names.GPUS}: it has version {gpus.version}, and this is made for {VERSION}"
        )
    if len({card.uuid for card in gpus.cards}) != len(gpus.cards):
        raise GpusUnreadable(f"annotation {names.GPUS}: it names a card twice")
    return gpus


def gpus_of_node(node: Node) -> tuple[tuple[GPU, ...], dict[str, int]]:
    """Its cards, and the bytes held outside grants by UUID. Drained cards take no new grant."""
    told = read_gpus(node.metadata.annotations.get(names.GPUS))
    drained = drained_of(node)
    return (
        tuple(card.gpu(drained=card.uuid in drained) for card in told.cards),
        {card.uuid: card.outside for card in told.cards if card.outside},
    )


def drained_of(node: Node) -> frozenset[str]:
    """UUIDs of cards that people took out of service."""
    return frozenset(
        part for text in node.metadata.annotations.get(names.DRAINED, "").split(",") if (part := text.strip())
    )


def write_drained(uuids: Sequence[str]) -> str | None:
    """The annotation's text; None removes it."""
    return ",".join(sorted(set(uuids))) or None

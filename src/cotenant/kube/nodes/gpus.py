"""Reads and writes the annotation `cotenant.dev/gpus`, in which a node reports its GPUs.

The agent writes it through `nodes/status`, the server reads it: each GPU by itself, since a node's capacity
is only their sum. An annotation that is not valid counts as no GPUs: nothing is placed where nobody knows
what there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from cotenant.core.errors import CotenantError
from cotenant.core.gpu import GPU
from cotenant.core.units import LARGEST
from cotenant.dialects import names
from cotenant.kube.api.objects import Node

VERSION = 1

_Uuid = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}\Z")]
"""A UUID that a grant can name."""
_MOST_CARDS = 256
"""GPUs of one node, MIG instances included. A damaged annotation must not make the ledger of all nodes wider.
"""
_Bytes = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]


class GpusUnreadable(CotenantError):
    """The annotation is not valid, or of a newer version."""


class NodeCard(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU, and what cannot be known from grants."""

    uuid: _Uuid
    index: Annotated[int, msgspec.Meta(ge=0, le=4096)]
    model: str
    memory: _Bytes
    parent: str | None = None
    """UUID of the physical GPU if this is a MIG instance."""
    problem: str | None = None
    """Why it takes no new grant."""
    outside: _Bytes = 0
    """Bytes held by processes that no grant covers."""
    shared: bool = False
    """Its memory is the host's."""

    def gpu(self, *, drained: bool = False) -> GPU:
        healthy = self.problem is None and not drained
        return GPU(
            self.uuid,
            self.index,
            self.model,
            self.memory,
            healthy=healthy,
            parent=self.parent,
            shared=self.shared,
        )


class NodeGpus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the agent of a node reports."""

    version: int
    cards: Annotated[tuple[NodeCard, ...], msgspec.Meta(max_length=_MOST_CARDS)]
    agent: str = ""
    """The agent's version."""
    enforcer: str = "shim"
    """The strongest that the node offers: `driver`, `shim` or `watch`."""
    mps: bool = False
    """Whether shares of compute are enforced."""
    resources: tuple[str, ...] = ()
    """What the agent put into the node's capacity: only that it may take away again."""


class _Version(msgspec.Struct, frozen=True):
    version: int = 0


NONE = NodeGpus(VERSION, ())


def write_gpus(gpus: NodeGpus) -> str:
    """Encodes the annotation."""
    return msgspec.json.encode(gpus).decode()


def read_gpus(text: str | None) -> NodeGpus:
    """Decodes the annotation; no GPUs if it is missing."""
    if not text:
        return NONE
    try:
        version = msgspec.json.decode(text, type=_Version).version
        if version != VERSION:
            raise GpusUnreadable(
                f"annotation {names.GPUS}: it has version {version}, and this is made for {VERSION}"
            )
        gpus = msgspec.json.decode(text, type=NodeGpus)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise GpusUnreadable(f"annotation {names.GPUS}: {error}: the node's agent writes it anew") from None
    if len({card.uuid for card in gpus.cards}) != len(gpus.cards):
        raise GpusUnreadable(f"annotation {names.GPUS}: it names a GPU twice")
    return gpus


def gpus_of_node(node: Node) -> tuple[tuple[GPU, ...], dict[str, int]]:
    """Returns the node's GPUs, and the bytes held outside grants by UUID. Drained GPUs take no new grant."""
    told = read_gpus(node.metadata.annotations.get(names.GPUS))
    drained = drained_of(node)
    return (
        tuple(card.gpu(drained=card.uuid in drained) for card in told.cards),
        {card.uuid: card.outside for card in told.cards if card.outside},
    )


def drained_of(node: Node) -> frozenset[str]:
    """Returns the UUIDs of GPUs that people took out of service."""
    return frozenset(
        part for text in node.metadata.annotations.get(names.DRAINED, "").split(",") if (part := text.strip())
    )


def write_drained(uuids: Sequence[str]) -> str | None:
    """Encodes the annotation of drained GPUs; None removes it."""
    return ",".join(sorted(set(uuids))) or None

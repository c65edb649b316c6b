"""Hollow nodes with cards, as an agent would describe them."""

import uuid
from collections.abc import Mapping, Sequence

from cluster.testbed import hollow
from cluster.testbed.api import Object

from cotenant.dialects import names
from cotenant.dialects.registry import Dialects
from cotenant.kube.nodes.gpus import VERSION, NodeCard, NodeGpus, write_gpus

GIB = 2**30
MODEL = "NVIDIA A100-SXM4-80GB"
SLOTS = 128
"""Slots a card, as agents offer them by default."""


def uuid_of(node: str, index: int) -> str:
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node}/{index}')}"


def gpu_node(
    name: str,
    cards: Sequence[int],
    *,
    model: str = MODEL,
    dialects: Dialects | None = None,
    labels: Mapping[str, str] | None = None,
) -> Object:
    """`cards`: bytes of each."""
    described = [NodeCard(uuid_of(name, index), index, model, size) for index, size in enumerate(cards)]
    gpus = [card.gpu() for card in described]
    shown = (dialects or Dialects()).capacity(gpus)
    capacity = {**shown, names.GPU_SLOT: SLOTS * len(cards)}
    told = NodeGpus(VERSION, tuple(described), resources=tuple(sorted(shown)))
    return hollow.node(
        name,
        {resource: str(amount) for resource, amount in capacity.items()},
        annotations={names.GPUS: write_gpus(told)},
        labels=labels,
    )

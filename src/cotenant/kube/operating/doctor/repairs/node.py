"""Marks on nodes."""

from __future__ import annotations

from cotenant.dialects import names
from cotenant.kube.api.client import Client
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import NODES
from cotenant.kube.nodes.gpus import drained_of, read_gpus, write_drained
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import Finding
from cotenant.kube.operating.doctor.repairs.repair import NotRepaired


async def undrain(client: Client, _facts: Facts, finding: Finding) -> str:
    name, _, uuid = finding.target.partition("/")
    node = await client.get(NODES, name)
    cards = {card.uuid for card in read_gpus(node.metadata.annotations.get(names.GPUS)).cards}
    if not cards or uuid in cards:
        raise NotRepaired(f"{name} does not tell any more that {uuid} is gone: the mark stays")
    after = drained_of(node) - {uuid}
    patch = {"metadata": {"annotations": {names.DRAINED: write_drained(sorted(after))}}}
    await client.merge_patch(NODES, name, patch, guard=Guard.of(node))
    return f"the drained mark of {uuid} is taken off {name}"

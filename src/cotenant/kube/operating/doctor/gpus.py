"""Checks GPUs themselves: their health, memory that no grant covers, and marks of GPUs that were drained."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from cotenant.core.checkup import NotRepaired
from cotenant.core.finding import ERROR, WARNING, Finding, Kind
from cotenant.core.units import format_bytes
from cotenant.dialects import names
from cotenant.kube.api.client import Client
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import NODES
from cotenant.kube.nodes.gpus import drained_of, read_gpus, write_drained
from cotenant.kube.nodes.opening_mark import mark_of
from cotenant.kube.operating.defrag.closing import Closing
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.remedies import FIX, few
from cotenant.kube.operating.doctor.subject import ClusterSubject

DRAINED_GONE = Kind("drained-gone", WARNING, "a GPU that came back with that UUID would stay out of service")
DEFRAG_LEFT = Kind("defrag-left", WARNING, "its drained GPUs get no new grant, though nobody needs that")
SICK = Kind("sick", WARNING, "it gets no new grant")
SHARED = Kind(
    "shared-memory",
    WARNING,
    "a grant limits what is allocated through CUDA; everything else on the node uses the same memory",
)
OUTSIDE = Kind("outside", WARNING, "that much less can be granted, and the GPU not as a whole")


REPORTED_TWICE = Kind(
    "reported-twice",
    ERROR,
    "one of the reports is false: an agent's credential is misused, or machines were cloned; GPU pods "
    "that are placed by the false one do not start, or share a GPU that is not theirs",
)


def reported_twice(facts: Facts) -> Iterator[Finding]:
    """A GPU is in one machine. Nodes that report the same GPU do not both have it."""
    claimed: dict[str, list[str]] = defaultdict(list)
    for card in facts.view.gpus:
        claimed[card.gpu.uuid].append(card.node)
    for uuid, nodes in claimed.items():
        if len(nodes) > 1:
            others = f"on {' and '.join(nodes)}" if len(nodes) < 3 else "on each of them"
            yield REPORTED_TWICE.at(
                uuid,
                f"{uuid} is reported by {len(nodes)} nodes: {few(nodes)}",
                f"run nvidia-smi -L {others} to see which has it; cordon the other (kubectl cordon NODE) "
                "and delete its agent's pod, which revokes that token: kubectl get pods -o wide "
                f"-n {facts.installed.namespace} -l app.kubernetes.io/component=agent",
            )


def drained_gone(facts: Facts) -> Iterator[Finding]:
    """Only for nodes that report their GPUs: for others it is not known what is gone."""
    nodes = {node.metadata.name: node for node in facts.nodes}
    for seen in facts.view.nodes:
        if seen.trouble is not None or not seen.gpus:
            continue
        for uuid in sorted(drained_of(nodes[seen.name]) - {card.gpu.uuid for card in seen.gpus}):
            yield DRAINED_GONE.at(
                f"{seen.name}/{uuid}",
                f"{seen.name} has a drained mark for {uuid}, which is not there any more",
                f"{FIX}: it removes the mark",
                "undrain",
            )


def defrag_left(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        name, mark = node.metadata.name, mark_of(node)
        if mark is not None and mark.is_over(facts.now.timestamp()):
            yield DEFRAG_LEFT.at(
                name,
                f"a `cotenant plan defrag --apply` that was killed has left GPUs of {name} drained",
                f"{FIX}: it puts them back into service",
                "put-back",
            )


def sick(facts: Facts) -> Iterator[Finding]:
    for card in facts.view.gpus:
        if card.problem is not None:
            yield SICK.at(
                card.gpu.uuid,
                f"{card} is not healthy: {card.problem}",
                "read the driver's messages on the node (dmesg, NVRM); to keep the GPU out of service: "
                f"cotenant drain {card.node}/{card.gpu.index}",
                means=f"{SICK.means}; these pods hold it: {few([str(held) for held in card.shares])}"
                if card.shares
                else None,
            )


def shared(facts: Facts) -> Iterator[Finding]:
    for card in facts.view.gpus:
        if card.gpu.shared:
            yield SHARED.at(
                card.gpu.uuid,
                f"{card} has no memory of its own: its {format_bytes(card.gpu.memory)} are the host's",
                "give pods there a limit of memory too, so that the host keeps its part",
            )


def outside(facts: Facts) -> Iterator[Finding]:
    for card in facts.view.gpus:
        if card.outside:
            yield OUTSIDE.at(
                card.gpu.uuid,
                f"{format_bytes(card.outside)} of {card} are held by processes that no grant covers",
                f"run nvidia-smi on {card.node} to see these processes, and give them a grant or end them",
            )


async def undrain(client: Client, _facts: Facts, finding: Finding) -> str:
    name, _, uuid = finding.target.partition("/")
    node = await client.get(NODES, name)
    cards = {card.uuid for card in read_gpus(node.metadata.annotations.get(names.GPUS)).cards}
    if not cards or uuid in cards:
        raise NotRepaired(f"{name} does not report any more that {uuid} is gone: the mark stays")
    after = drained_of(node) - {uuid}
    patch = {"metadata": {"annotations": {names.DRAINED: write_drained(sorted(after))}}}
    await client.merge_patch(NODES, name, patch, guard=Guard.of(node))
    return f"removed the drained mark of {uuid} from {name}"


async def put_back(client: Client, facts: Facts, finding: Finding) -> str:
    node = await client.get(NODES, finding.target)
    await Closing(client, 0.0, facts.now.timestamp).clean_up([node])
    return f"put back into service what was left drained on {finding.target}"


SUBJECT = ClusterSubject(
    checks=(reported_twice, drained_gone, defrag_left, sick, shared, outside),
    repairs={"undrain": undrain, "put-back": put_back},
)

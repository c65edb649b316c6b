"""Checks what nodes report of their GPUs, and whether an agent runs there that reports it."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.core.finding import ERROR, Finding, Kind
from cotenant.core.units import format_bytes
from cotenant.dialects import names
from cotenant.kube.operating.doctor.facts import Facts, amount_of
from cotenant.kube.operating.doctor.remedies import look_at_agent
from cotenant.kube.operating.doctor.subject import ClusterSubject
from cotenant.kube.pods.requests import requests_of_all

UNREADABLE = Kind("node-unreadable", ERROR, "no GPU pod is placed there")
UNTOLD = Kind("node-untold", ERROR, "no GPU pod is placed there")
CAPACITY_DIFFERS = Kind(
    "capacity-differs", ERROR, "pods that would fit are not placed there, or the kubelet rejects them"
)
AGENT_MISSING = Kind("agent-missing", ERROR, "no GPU container starts there, and nothing watches its GPUs")


def annotation(facts: Facts) -> Iterator[Finding]:
    for seen in facts.view.nodes:
        if seen.trouble is not None:
            yield _at(UNREADABLE, facts, seen.name, f"{seen.name}: {seen.trouble}")
    for node in facts.nodes:
        name = node.metadata.name
        if names.GPUS not in node.metadata.annotations and amount_of(node.status.capacity, names.GPU_MEMORY):
            found = f"{name} has {names.GPU_MEMORY}, but does not report its GPUs"
            yield _at(UNTOLD, facts, name, found)


def capacity(facts: Facts) -> Iterator[Finding]:
    """Agents show more than their GPUs have if pods there request more: the kubelet must admit them again."""
    if facts.is_unread("pods"):
        return
    for seen in facts.view.nodes:
        size = sum(card.gpu.memory for card in seen.gpus)
        shown = amount_of(seen.capacity, names.GPU_MEMORY)
        if not seen.gpus or size == shown or size < shown <= _requested(facts, seen.name):
            continue
        of_gpus = f"its GPUs have {format_bytes(size)}"
        found = f"{seen.name}: {names.GPU_MEMORY} is {format_bytes(shown)}, but {of_gpus}"
        yield _at(CAPACITY_DIFFERS, facts, seen.name, found)


def agents(facts: Facts) -> Iterator[Finding]:
    if facts.is_unread("pods"):
        return
    running = facts.component("agent")
    ready = {each.spec.node_name for each in running if each.metadata.uid in facts.ready}
    here = {each.spec.node_name: each.metadata.name for each in running}
    for seen in facts.view.nodes:
        if seen.name not in ready:
            state = f"{here[seen.name]} is not ready" if seen.name in here else "no agent runs there"
            found = f"{seen.name} has GPUs, but no agent that is ready: {state}"
            yield _at(AGENT_MISSING, facts, seen.name, found)


def _at(kind: Kind, facts: Facts, node: str, found: str) -> Finding:
    return kind.at(f"node {node}", found, look_at_agent(facts, node))


def _requested(facts: Facts, node: str) -> int:
    """Bytes of GPU memory that the pods of a node request."""
    return requests_of_all(pod for pod in facts.pods if pod.spec.node_name == node)[names.GPU_MEMORY]


SUBJECT = ClusterSubject(checks=(annotation, capacity, agents))

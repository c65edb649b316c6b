"""Nodes: what they tell of their cards, who tells it, and who else serves the same cards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cotenant.core.errors import BadInput
from cotenant.core.units import format_bytes
from cotenant.dialects import names
from cotenant.dialects.nvidia import CARDS
from cotenant.dialects.quantity import parse_whole
from cotenant.kube.node_gpus import drained_of
from cotenant.kube.objects import Node
from cotenant.kube.operating.doctor.facts import VERSION, Facts, ImagePod
from cotenant.kube.operating.doctor.finding import ERROR, FIX, WARNING, Finding
from cotenant.kube.pods import has_ended

_PLUGINS = (
    ("gpushare-device-plugin", "Alibaba Cloud's gpushare"),
    ("k8s-gpushare-plugin", "Alibaba Cloud's gpushare"),
    ("volcano-device-plugin", "Volcano's"),
    ("volcano-vgpu-device-plugin", "Volcano's vGPU"),
    ("nvidia/k8s-device-plugin", "NVIDIA's"),
    ("hami", "HAMi's"),
)
_SEES_NONE = {"", "void", "none"}


def annotation(facts: Facts) -> Iterator[Finding]:
    for seen in facts.census:
        if seen.trouble is not None:
            yield Finding(
                "node-unreadable",
                f"node {seen.name}",
                ERROR,
                f"{seen.name}: {seen.trouble}",
                "nothing is placed there",
                _look_at_agent(facts, seen.name),
            )
    for node in facts.nodes:
        if names.GPUS not in node.metadata.annotations and _amount(node, names.GPU_MEMORY):
            yield Finding(
                "node-untold",
                f"node {node.metadata.name}",
                ERROR,
                f"{node.metadata.name} shows {names.GPU_MEMORY} and does not tell of its cards",
                "nothing is placed there",
                _look_at_agent(facts, node.metadata.name),
            )


def capacity(facts: Facts) -> Iterator[Finding]:
    """It may be more than the cards, never less: pods that are there must be admitted again."""
    asked = _asked_by_node(facts)
    for seen in facts.census:
        if not seen.cards:
            continue
        size, shown = sum(card.card.memory for card in seen.cards), _amount(seen.node, names.GPU_MEMORY)
        if size == shown or size < shown <= max(size, asked[seen.name]):
            continue
        yield Finding(
            "capacity-differs",
            f"node {seen.name}",
            ERROR,
            f"{seen.name}: {names.GPU_MEMORY} is {format_bytes(shown)}, its cards have {format_bytes(size)}",
            "pods that would fit are not placed there, or the kubelet turns them away",
            _look_at_agent(facts, seen.name),
        )


def agents(facts: Facts) -> Iterator[Finding]:
    running = facts.component("agent")
    ready = {each.spec.node_name for each in running if each.metadata.uid in facts.ready}
    here = {each.spec.node_name: each for each in running}
    for seen in facts.census:
        if seen.name not in ready:
            pod = here.get(seen.name)
            state = f"{pod.metadata.name} is not ready" if pod else "there is none"
            yield Finding(
                "agent-missing",
                f"node {seen.name}",
                ERROR,
                f"{seen.name} has cards, and no agent that is ready: {state}",
                "no GPU container starts there, and nobody watches its cards",
                _look_at_agent(facts, seen.name),
            )


def versions(facts: Facts) -> Iterator[Finding]:
    servers = {each.metadata.labels.get(VERSION, "") for each in facts.component("server")} - {""}
    wanted = servers or {facts.version}
    if len(servers) > 1:
        yield Finding(
            "versions-differ",
            "server",
            WARNING,
            f"servers of several versions run: {', '.join(sorted(servers))}",
            "an upgrade is under way, or did not end",
            f"kubectl rollout status -n {facts.installed.namespace} deployment/cotenant-server",
        )
    others = [seen for seen in facts.census if seen.told.agent and seen.told.agent not in wanted]
    for version in sorted({seen.told.agent for seen in others}):
        nodes = [seen.name for seen in others if seen.told.agent == version]
        yield Finding(
            "versions-differ",
            f"agent {version}",
            WARNING,
            f"agents of version {version} on {_few(nodes)}, and the server is {', '.join(sorted(wanted))}",
            "an upgrade is under way, or did not end",
            f"kubectl rollout status -n {facts.installed.namespace} daemonset/cotenant-agent",
        )


def second_plugin(facts: Facts) -> Iterator[Finding]:
    ours = {seen.name: seen for seen in facts.census if seen.cards}
    for seen in ours.values():
        if _amount(seen.node, CARDS) and CARDS not in seen.told.resources:
            yield Finding(
                "second-plugin",
                f"node {seen.name}",
                ERROR,
                f"{seen.name} shows {CARDS} too: NVIDIA's device plugin serves the same cards",
                "pods that ask it get cards that Cotenant has granted to others",
                "keep one of them off the node by a label, or serve these pods too: dialects.nvidia.enabled",
            )
    for pod in facts.images:
        whose = _plugin(pod)
        if whose is not None and pod.spec.node_name in ours:
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            yield Finding(
                "second-plugin",
                f"pod {name}",
                ERROR,
                f"{whose} device plugin runs on {pod.spec.node_name}, which has cards of Cotenant's: {name}",
                "two plugins give out the same cards, and neither knows of the other's pods",
                "remove that plugin from the node: see docs/operating.md",
            )


def sees_cards(facts: Facts) -> Iterator[Finding]:
    ours = {seen.name for seen in facts.census if seen.cards}
    granted = {
        pod.metadata.uid for pod in facts.pods if names.GRANT in pod.metadata.annotations or has_ended(pod)
    }
    own = {pod.metadata.uid for pod in facts.own}
    for pod in facts.images:
        if pod.spec.node_name not in ours or pod.metadata.uid in granted | own:
            continue
        for container in pod.spec.containers:
            for variable in container.env:
                if variable.name == names.VISIBLE_DEVICES and variable.value not in _SEES_NONE:
                    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
                    yield Finding(
                        "sees-cards",
                        f"pod {name}",
                        WARNING,
                        f"{name} asked for no GPU and says {variable.name}={variable.value}",
                        "where NVIDIA's runtime is the default, it sees cards and can fill them",
                        "remove the variable, or make another runtime the default: see docs/security.md",
                    )


def drained_gone(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        seen = next((each for each in facts.census if each.name == node.metadata.name), None)
        if seen is not None and seen.trouble is not None:
            continue
        there = {card.card.uuid for card in seen.cards} if seen else set()
        for uuid in sorted(drained_of(node) - there):
            yield Finding(
                "drained-gone",
                f"{node.metadata.name}/{uuid}",
                WARNING,
                f"{node.metadata.name} has a drained mark for {uuid}, which is not there any more",
                "a card that came back under that UUID would stay out of service",
                FIX,
                "undrain",
            )


def sick(facts: Facts) -> Iterator[Finding]:
    for seen in facts.census:
        for card in seen.cards:
            if card.card.problem is not None:
                yield Finding(
                    "sick",
                    card.card.uuid,
                    WARNING,
                    f"{card} is sick: {card.card.problem}",
                    "it takes no new grant"
                    + (f"; on it: {_few([str(h) for h in card.held])}" if card.held else ""),
                    f"look at its driver's log; cotenant drain {card.node}/{card.card.index} keeps it out",
                )
            if card.card.outside:
                yield Finding(
                    "outside",
                    card.card.uuid,
                    WARNING,
                    f"{format_bytes(card.card.outside)} of {card} are held by processes that no grant covers",
                    "that much less can be granted, and the card not as a whole",
                    f"nvidia-smi on {card.node} tells which processes these are",
                )


def _plugin(pod: ImagePod) -> str | None:
    images = [container.image.lower() for container in pod.spec.containers]
    return next((whose for part, whose in _PLUGINS if any(part in image for image in images)), None)


def _asked_by_node(facts: Facts) -> Counter[str]:
    asked: Counter[str] = Counter()
    for pod in facts.pods:
        if pod.spec.node_name and not has_ended(pod):
            for container in pod.spec.containers or ():
                asked[pod.spec.node_name] += _whole(container.resources.limits.get(names.GPU_MEMORY))
    return asked


def _amount(node: Node, resource: str) -> int:
    return _whole(node.status.capacity.get(resource))


def _whole(text: str | None) -> int:
    try:
        return parse_whole(text or "0", "capacity", "1")
    except BadInput:
        return 0


def _look_at_agent(facts: Facts, node: str) -> str:
    return (
        f"kubectl get pods -n {facts.installed.namespace} -o wide --field-selector spec.nodeName={node} "
        "-l app.kubernetes.io/component=agent, and its log"
    )


def _few(names_: list[str]) -> str:
    return ", ".join(names_[:5]) + (f" and {len(names_) - 5} more" if len(names_) > 5 else "")

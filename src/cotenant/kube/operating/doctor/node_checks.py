"""Nodes: what they tell of their cards, who tells it, and who else serves the same cards."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from cotenant.core.errors import BadInput
from cotenant.core.units import format_bytes
from cotenant.dialects import names
from cotenant.dialects.nvidia import CARDS
from cotenant.dialects.quantity import parse_whole
from cotenant.kube.api.objects import Node
from cotenant.kube.nodes.gpus import drained_of
from cotenant.kube.operating.doctor.facts import Facts, ImagePod
from cotenant.kube.operating.doctor.finding import ERROR, FIX, WARNING, Finding
from cotenant.kube.pods.demand import has_ended

_PLUGINS = tuple(
    (re.compile(pattern), whose)
    for pattern, whose in (
        (r"gpushare-(device-)?plugin", "Alibaba Cloud's gpushare device plugin"),
        (r"volcano-device-plugin", "Volcano's device plugin"),
        (r"volcano-vgpu-device-plugin", "Volcano's vGPU device plugin"),
        (r"(?<!rocm/)\bk8s-device-plugin|nvidia-gpu-device-plugin", "NVIDIA's device plugin"),
        (r"k8s-dra-driver-gpu", "NVIDIA's DRA driver"),
        (r"(^|/)hami(-[a-z-]+)?(:|@|$)|projecthami/", "HAMi's device plugin"),
        (r"gpu-manager(:|@|$)", "Tencent's GPU manager"),
    )
)
"""By images, wherever they were copied to."""
_OTHERS = re.compile(r"nvidia\.com/(gpu|mig-|v?gpu)|aliyun\.com/gpu-|volcano\.sh/v?gpu-|tencent\.com/vcuda-")
"""What other plugins put into a node's capacity."""


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
    if facts.is_unread("pods"):
        return
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
    if facts.is_unread("pods"):
        return
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
    """Of servers among each other, of agents against servers, else among each other, and of this program."""
    servers = facts.server_versions
    agents = {seen.name: seen.told.agent for seen in facts.census if seen.told.agent}
    space = facts.installed.namespace
    if len(servers) > 1:
        yield _versions(
            "server",
            f"servers of several versions run: {', '.join(sorted(servers))}",
            f"kubectl rollout status -n {space} deployment/cotenant-server",
        )
    most = Counter(agents.values()).most_common(1)
    wanted = servers or {version for version, _ in most}
    who = "the server is" if servers else "most others are"
    for version in sorted(set(agents.values()) - wanted):
        nodes = [name for name, its in agents.items() if its == version]
        yield _versions(
            f"agent {version}",
            f"agents of version {version} on {_few(nodes)}, and {who} {', '.join(sorted(wanted))}",
            f"kubectl rollout status -n {space} daemonset/cotenant-agent",
        )
    if facts.version and wanted and facts.version not in wanted:
        yield Finding(
            "versions-differ",
            "cotenant",
            WARNING,
            f"this program is of version {facts.version}, and the cluster runs {', '.join(sorted(wanted))}",
            "it may misjudge what it sees; --fix does not restore the webhook, which another version made",
            f"pip install 'cotenant[cluster]=={max(wanted)}'",
        )


def _versions(target: str, found: str, remedy: str) -> Finding:
    means = "an upgrade is under way, or did not end"
    return Finding("versions-differ", target, WARNING, found, means, remedy)


def second_plugin(facts: Facts) -> Iterator[Finding]:
    ours = {seen.name: seen for seen in facts.census if seen.cards}
    spoken = facts.installed.settings.dialects.resources
    for seen in ours.values():
        own = spoken.union(seen.told.resources)
        shown = (name for name in seen.node.status.capacity if _OTHERS.match(name) and name not in own)
        others = sorted(name for name in shown if _amount(seen.node, name))
        if others:
            serve = "dialects.nvidia.enabled" if others == [CARDS] else "the dialects in docs/moving.md"
            yield Finding(
                "second-plugin",
                f"node {seen.name}",
                ERROR,
                f"{seen.name} shows {', '.join(others)} too: another device plugin serves the same cards",
                "pods that ask it get cards that Cotenant has granted to others",
                f"keep one of them off the node by a label, or serve these pods too: {serve}",
            )
    for pod in facts.images:
        whose = _plugin(pod)
        if whose is None or pod.spec.node_name not in ours or pod.metadata.uid in facts.ended:
            continue
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        owner = next((each for each in pod.metadata.owner_references if each.controller), None)
        yield Finding(
            "second-plugin",
            f"pod {name}",
            ERROR,
            f"{whose} runs on {pod.spec.node_name}, which has cards of Cotenant's: {name}",
            "two plugins give out the same cards, and neither knows of the other's pods",
            "take it off the node, as docs/moving.md says: "
            + (
                f"kubectl edit {owner.kind.lower()} -n {pod.metadata.namespace} {owner.name}"
                if owner is not None
                else f"kubectl delete pod -n {pod.metadata.namespace} {pod.metadata.name}"
            ),
        )


def drained_gone(facts: Facts) -> Iterator[Finding]:
    """Only where a node tells of its cards: of others it is not known what is gone."""
    for seen in facts.census:
        if seen.trouble is not None or not seen.cards:
            continue
        for uuid in sorted(drained_of(seen.node) - {card.card.uuid for card in seen.cards}):
            yield Finding(
                "drained-gone",
                f"{seen.name}/{uuid}",
                WARNING,
                f"{seen.name} has a drained mark for {uuid}, which is not there any more",
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
    return next((whose for known, whose in _PLUGINS if any(map(known.search, images))), None)


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

"""Finds device plugins of others that serve the GPUs that Cotenant grants."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cotenant.core.finding import ERROR, Finding, Kind
from cotenant.dialects.nvidia import CARDS
from cotenant.kube.operating.doctor.facts import Facts, ImagePod, amount_of
from cotenant.kube.operating.doctor.remedies import delete_pod
from cotenant.kube.operating.doctor.subject import ClusterSubject

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
"""By their images, whatever registry these were copied to."""
_OTHERS = re.compile(r"nvidia\.com/(gpu|mig-|v?gpu)|aliyun\.com/gpu-|volcano\.sh/v?gpu-|tencent\.com/vcuda-")
"""Extended resources that other plugins add to a node's capacity."""

SECOND_PLUGIN = Kind(
    "second-plugin", ERROR, "two plugins hand out the same GPUs, and neither knows of the other's pods"
)


def by_capacity(facts: Facts) -> Iterator[Finding]:
    spoken = facts.installed.settings.dialects.resources
    for seen in facts.view.nodes:
        own = spoken.union(seen.resources)
        shown = (name for name in seen.capacity if _OTHERS.match(name) and name not in own)
        others = sorted(name for name in shown if amount_of(seen.capacity, name))
        if seen.gpus and others:
            serve = "dialects.nvidia.enabled" if others == [CARDS] else "the dialects in docs/moving.md"
            yield SECOND_PLUGIN.at(
                f"node {seen.name}",
                f"{seen.name} also has {', '.join(others)}: another device plugin serves the same GPUs",
                f"keep one of them off the node by a label, or serve these pods too: {serve}",
            )


def by_image(facts: Facts) -> Iterator[Finding]:
    ours = {seen.name for seen in facts.view.nodes if seen.gpus}
    for pod in facts.images:
        whose = _plugin(pod)
        if whose is None or pod.spec.node_name not in ours or pod.metadata.uid in facts.ended:
            continue
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        yield SECOND_PLUGIN.at(
            f"pod {name}",
            f"{whose} runs on {pod.spec.node_name}, whose GPUs Cotenant grants: {name}",
            f"take it off the node, as docs/moving.md says: {_take_off(pod)}",
        )


def _plugin(pod: ImagePod) -> str | None:
    images = [container.image.lower() for container in pod.spec.containers]
    return next((whose for known, whose in _PLUGINS if any(map(known.search, images))), None)


def _take_off(pod: ImagePod) -> str:
    namespace = pod.metadata.namespace
    for owner in pod.metadata.owner_references:
        if owner.controller:
            return f"kubectl edit {owner.kind.lower()} -n {namespace} {owner.name}"
    return delete_pod(namespace, pod.metadata.name)


SUBJECT = ClusterSubject(checks=(by_capacity, by_image))

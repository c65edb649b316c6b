"""Reads from the API server whose pods are whose, what they ask for now, and which GPUs there are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from cotenant.advice.pod_names import PodWorkload
from cotenant.core.gpu import GPU
from cotenant.core.quantity import parse_quantity
from cotenant.core.rightsizing.cards import Asked
from cotenant.dialects import names
from cotenant.dialects.aliyun import MEMORY as ALIYUN
from cotenant.dialects.volcano import MEMORY as VOLCANO
from cotenant.kube.api.client import Client
from cotenant.kube.api.objects import Container, Pod
from cotenant.kube.operating.status.reading import read_all
from cotenant.kube.pods.demand import has_ended, readable_grant
from cotenant.kube.pods.owner import owner_of

_OF_NVIDIA = re.compile(r"nvidia\.com/(gpu(\.shared)?|mig-.+)")
"""What NVIDIA's device plugin offers: cards or turns on them, with time-slicing renamed where it is told to,
and MIG instances.
"""


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """A cluster at one moment."""

    pods: Mapping[tuple[str, str], PodWorkload]
    """The workload of each pod, by namespace and name."""
    asked: Mapping[tuple[str, str, str], int]
    """Bytes on one GPU that a container asks for, by namespace, pod and container."""
    machines: tuple[tuple[GPU, ...], ...]
    """The GPUs of each node that work."""
    held: Mapping[tuple[str, str, str], Asked]
    """What each container that has a grant holds, in all."""
    spellings: Mapping[tuple[str, str, str], tuple[str, int, tuple[str, ...]]]
    """How each container writes its demand, if not in our own resource: the resource, the bytes of one, and
    the resources that must go if ours is written.
    """


async def read_cluster(client: Client) -> ClusterNow:
    """Reads nodes and pods once."""
    seen = await read_all(client)
    pods: dict[tuple[str, str], PodWorkload] = {}
    asked: dict[tuple[str, str, str], int] = {}
    held: dict[tuple[str, str, str], Asked] = {}
    spellings: dict[tuple[str, str, str], tuple[str, int, tuple[str, ...]]] = {}
    for pod in seen.pods:
        if has_ended(pod):
            continue
        key = pod.metadata.namespace, pod.metadata.name
        pods[key] = owner_of(pod)
        for container in pod.spec.containers or ():
            memory = _memory(pod, container)
            if memory is not None:
                asked[(*key, container.name)] = memory
            if (spelled := _spelling(container)) is not None:
                spellings[(*key, container.name)] = spelled
        grant = readable_grant(pod)
        for slot in grant.slots if grant is not None else ():
            whole = any(share.whole for share in slot.shares)
            total = None if whole else sum(share.memory for share in slot.shares)
            held[(*key, slot.container)] = Asked(total, max(1, len(slot.shares)))
    machines = tuple(
        tuple(card.gpu for card in node.gpus if card.gpu.healthy) for node in seen.view.nodes if node.gpus
    )
    return ClusterNow(pods, asked, machines, held, spellings)


def _memory(pod: Pod, container: Container) -> int | None:
    """Returns the bytes on one GPU; admission writes them for pods of all dialects."""
    text = container.resources.limits.get(names.GPU_MEMORY)
    amount = parse_quantity(text) if text is not None else None
    if amount is None or amount <= 0:
        return None
    count = pod.metadata.annotations.get(names.gpu_count(container.name), "1")
    return ceil(amount / (int(count) if count.isdecimal() and int(count) > 0 else 1))


def _spelling(container: Container) -> tuple[str, int, tuple[str, ...]] | None:
    """Reads another system's resource beside ours, which admission wrote: their ratio is its unit."""
    limits = container.resources.limits
    ours = parse_quantity(limits.get(names.GPU_MEMORY, "0")) or 0
    for resource in (ALIYUN, VOLCANO):
        theirs = parse_quantity(limits.get(resource, "0")) or 0
        if theirs > 0 and ours > 0 and ours % theirs == 0:
            return resource, int(ours // theirs), ()
    whole = tuple(each for each in limits if each == names.GPU or _OF_NVIDIA.fullmatch(each))
    return (names.GPU_MEMORY, 1, whole) if whole else None

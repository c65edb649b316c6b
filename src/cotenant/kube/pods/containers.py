"""Lists a pod's containers in the order in which the kubelet starts them: one rule for all readers.

Init containers come first, in their order, then the containers. An init container whose restart policy is
`Always` is a sidecar: it goes on running. Ephemeral containers cannot ask for resources and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cotenant.kube.api.objects import Container, Pod

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PodContainer:
    """A container, as far as slots depend on it."""

    name: str
    position: int
    """`containers` count from 0, `initContainers` go on after the last of them."""
    ends_first: bool
    """A plain init container: it has ended before the next one starts. A sidecar has not."""
    resources: Mapping[str, Mapping[str, object]]
    """Its `limits` and `requests`."""


def pod_container(
    name: str,
    position: int,
    restart_policy: object,
    limits: Mapping[str, object],
    requests: Mapping[str, object],
    *,
    is_init: bool,
) -> PodContainer:
    """Makes a container of what any form of a pod says of it."""
    ends_first = is_init and not goes_on(restart_policy)
    return PodContainer(name, position, ends_first, {"limits": limits, "requests": requests})


def in_start_order(init_containers: Sequence[T], containers: Sequence[T]) -> Iterator[tuple[T, int, bool]]:
    """Yields each with its position and whether it is an init container."""
    for index, each in enumerate(init_containers):
        yield each, len(containers) + index, True
    for index, each in enumerate(containers):
        yield each, index, False


def goes_on(restart_policy: object) -> bool:
    """Reports whether an init container with this restart policy is a sidecar."""
    return restart_policy == "Always"


def all_containers(pod: Pod) -> tuple[Container, ...]:
    """Returns init containers and containers, in the order in which the kubelet starts them."""
    return (*pod.spec.init_containers, *(pod.spec.containers or ()))

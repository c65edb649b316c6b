"""Declares which open-ended fields of pods are kept in memory: annotations, labels and variables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from cotenant.dialects import names
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Container, Pod
from cotenant.kube.pods.demand import MIRROR


@dataclass(frozen=True)
class PodFields:
    """What a part needs of every pod, besides what is bounded by the API: that is always kept."""

    annotations: frozenset[str] = frozenset()
    container_annotations: frozenset[Callable[[str], str]] = frozenset()
    """Functions from a container's name to an annotation's."""
    labels: frozenset[str] = frozenset()
    env: bool = False
    """Whether the names of the containers' variables are needed."""

    def __or__(self, other: PodFields, /) -> PodFields:
        return PodFields(
            self.annotations | other.annotations,
            self.container_annotations | other.container_annotations,
            self.labels | other.labels,
            self.env or other.env,
        )

    @cached_property
    def _of_containers(self) -> tuple[Callable[[str], str], ...]:
        return tuple(self.container_annotations)

    def keep(self, pod: Pod, /) -> Pod:
        """Annotations and labels are looked up by name, so that many others cost no time either."""
        meta, spec = pod.metadata, pod.spec
        annotations, labels = meta.annotations, meta.labels
        if annotations:
            containers = (*(spec.containers or ()), *spec.init_containers)
            own = (name(each.name) for each in containers for name in self._of_containers)
            annotations = {key: annotations[key] for key in (*self.annotations, *own) if key in annotations}
        if labels:
            labels = {key: labels[key] for key in self.labels if key in labels}
        meta = replace(meta, annotations=annotations, labels=labels, finalizers=())
        if not self.env:
            spec = replace(
                spec,
                containers=None if spec.containers is None else _without_env(spec.containers),
                init_containers=_without_env(spec.init_containers),
            )
        return Pod(meta, spec, pod.status)


def gpu_fields(dialects: Dialects) -> PodFields:
    """What a pod's demand, its grant and its place in line are read from."""
    own = (*names.SERVER_ONLY, names.GPU_MODEL, names.GPU_UUID, names.PLACEMENT, names.ENFORCE, MIRROR)
    others = (each for dialect in dialects.on for each in dialect.pod_annotations)
    return PodFields(
        frozenset((*own, *others)),
        frozenset((names.gpu_count, names.devices, names.compute, names.card_memory)),
    )


def _without_env(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    return tuple(replace(each, env=()) if each.env else each for each in containers)

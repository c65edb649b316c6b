"""Declares which open-ended fields of pods are kept in memory: annotations, labels and variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from cotenant.dialects import names
from cotenant.dialects.pod_grant import LONGEST
from cotenant.dialects.registry import Dialects
from cotenant.dialects.wishes import LONGEST_WISH
from cotenant.kube.api.objects import (
    Condition,
    Container,
    ContainerState,
    ContainerStatus,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    Quantities,
    Resources,
    Running,
)
from cotenant.kube.pods.annotation_size import size_of
from cotenant.kube.pods.demand import MIRROR, has_ended
from cotenant.kube.pods.requests import pod_requests
from cotenant.kube.pods.slots import MOST_IN_ALL

_OWN = f"{names.DOMAIN}/"
_LONGEST_WAITING = {names.GPU_MODEL: LONGEST_WISH, names.GPU_UUID: LONGEST_WISH, "": 128}
_LONGEST_ON_NODE = {names.GRANT: LONGEST, "": LONGEST_WISH}
"""Characters that are kept of an annotation; under "" those of all others."""
_MOST_RESOURCES = 32
"""Resources that are kept of one container, or of a pod without GPU."""
_CONDITIONS = frozenset({"PodScheduled", "Ready", names.GPU_IDLE, names.GPU_LIMIT_HELD})
"""Conditions that are kept of a pod, by type."""
_LONGEST_MESSAGE = 8192
"""Characters that are kept of a scheduler's words: it names every resource that the author asked for."""
_RUNNING, _NOT_RUNNING = ContainerState(running=Running()), ContainerState()
_FIRST_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Kept before all others of what a pod takes of its node."""
_MOST_LABELS = 32
_LONGEST_LABELS = 4096
"""Labels that are kept of a replica, and characters in all of them."""
_LONGEST_OWNER = 253
"""Characters that are kept of the name and of the kind of a controller."""
_MOST_CONTAINERS = 16
"""Containers that are kept of a pod without GPU."""


@dataclass(frozen=True)
class PodFields:
    """What a part needs of every pod, besides what is bounded by the API: that is always kept."""

    annotations: frozenset[str] = frozenset()
    container_annotations: frozenset[Callable[[str], str]] = frozenset()
    """Functions from a container's name to an annotation's."""
    labels: frozenset[str] = frozenset()
    replicas: bool = False
    """Whether pods are counted as replicas of workloads: then their labels (within bounds) and the conditions
    that tell how far they are are kept, also of pods that ask for no GPU.
    """
    env: bool = False
    """Whether the names of the containers' variables are needed."""
    controllers: bool = False
    """Whether the name and kind of the pod's controller are needed."""
    container_ids: bool = False
    """Whether the container IDs of pods that ask for no GPU are needed, too."""
    resources: frozenset[str] = frozenset()
    """A pod that names one of these, or any of ours, asks for GPU. Of others, annotations and variables are
    left out; without any here, those of all pods are kept.
    """

    def __or__(self, other: PodFields, /) -> PodFields:
        return PodFields(
            self.annotations | other.annotations,
            self.container_annotations | other.container_annotations,
            self.labels | other.labels,
            self.replicas or other.replicas,
            self.env or other.env,
            self.controllers or other.controllers,
            self.container_ids or other.container_ids,
            self.resources | other.resources,
        )

    @cached_property
    def _of_containers(self) -> tuple[Callable[[str], str], ...]:
        return tuple(self.container_annotations)

    def keep(self, pod: Pod, /) -> Pod:
        """Cuts a pod to what is needed, so that its author does not decide how much memory it takes.

        Annotations and labels are looked up by name, so that many others cost no time either. Of a pod that
        asks for no GPU, what counts is what it takes of its node; of one that has ended, that it has.
        """
        meta, spec = pod.metadata, pod.spec
        annotations, labels, left_out = meta.annotations, meta.labels, 0
        asks = not has_ended(pod) and self._asks_for_gpu(spec)
        if annotations:
            annotations = self._annotations(annotations, spec) if asks else {}
        if asks and not spec.node_name:
            left_out = size_of(meta.annotations) - size_of(annotations)
        if labels:
            labels = self._labels(labels)
        meta = replace(
            meta,
            annotations=annotations,
            labels=labels,
            finalizers=(),
            owner_references=_controller(meta.owner_references) if self.controllers else (),
            left_out=left_out,
        )
        spec = replace(
            spec,
            scheduler_name="",
            runtime_class_name="",
            priority_class_name="",
            scheduling_gates=spec.scheduling_gates[:1],
        )
        if asks:
            return Pod(meta, self._containers(spec), _status(pod.status))
        conditions = _without_words(pod.status) if self.replicas and not has_ended(pod) else ()
        status = PodStatus(pod.status.phase, conditions=conditions)
        if self.container_ids and not has_ended(pod):
            status = replace(
                status,
                container_statuses=_briefly(pod.status.container_statuses),
                init_container_statuses=_briefly(pod.status.init_container_statuses),
            )
        return Pod(meta, _requests_alone(pod, spec), status)

    def _labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        kept = {key: labels[key] for key in self.labels if key in labels}
        if not self.replicas:
            return kept
        length = 0
        for key, value in labels.items():
            length += len(key) + len(value)
            if len(kept) >= _MOST_LABELS or length > _LONGEST_LABELS:
                break
            kept[key] = value
        return kept

    def _asks_for_gpu(self, spec: PodSpec) -> bool:
        if not self.resources:
            return True
        for each in (*(spec.containers or ()), *spec.init_containers):
            for name in each.resources.limits:
                if name.startswith(_OWN) or name in self.resources:
                    return True
        return False

    def _annotations(self, annotations: Mapping[str, str], spec: PodSpec) -> dict[str, str]:
        """A text that is too long to be valid is cut where it still is too long. What a server writes at bind
        counts on a node only.
        """
        longest = _LONGEST_ON_NODE if spec.node_name else _LONGEST_WAITING
        containers = (*(spec.containers or ()), *spec.init_containers)[:MOST_IN_ALL]
        own = (name(each.name) for each in containers for name in self._of_containers)
        return {
            key: annotations[key][: longest.get(key, longest[""]) + 1]
            for key in (*self.annotations, *own)
            if key in annotations
        }

    def _containers(self, spec: PodSpec) -> PodSpec:
        """Admission refuses more containers than are kept."""
        return replace(
            spec,
            containers=spec.containers and tuple(map(self._container, spec.containers[:MOST_IN_ALL])),
            init_containers=tuple(map(self._container, spec.init_containers[:MOST_IN_ALL])),
            resources=Resources(_of_node(spec.resources.requests)),
            overhead=_of_node(spec.overhead),
        )

    def _container(self, container: Container) -> Container:
        resources = container.resources
        if max(len(resources.limits), len(resources.requests)) > _MOST_RESOURCES:
            resources = Resources(self._first(resources.requests), self._first(resources.limits))
            container = replace(container, resources=resources)
        return replace(container, env=()) if container.env and not self.env else container

    def _first(self, quantities: Quantities) -> Quantities:
        """Keeps the resources that are read before all others, those of our domain that are not known too."""
        order = sorted(quantities, key=lambda name: name not in self.resources)
        return {name: quantities[name] for name in order[:_MOST_RESOURCES]}


def _controller(owners: tuple[OwnerReference, ...]) -> tuple[OwnerReference, ...]:
    """Keeps the one owner that is the controller. The API server bounds neither its name nor its kind."""
    return tuple(
        OwnerReference(each.kind[:_LONGEST_OWNER], each.name[:_LONGEST_OWNER], controller=True)
        for each in owners
        if each.controller
    )[:1]


def _requests_alone(pod: Pod, spec: PodSpec) -> PodSpec:
    """Returns the spec of a pod without GPU: while it is on a node, its requests, as one container where it
    has many.
    """
    if not spec.node_name or has_ended(pod):
        return replace(spec, containers=(), init_containers=(), resources=Resources(), overhead={})
    containers, inits = spec.containers or (), spec.init_containers
    resources = sum(len(each.resources.requests) for each in (*containers, *inits))
    resources += len(spec.resources.requests) + len(spec.overhead)
    if len(containers) + len(inits) <= _MOST_CONTAINERS and resources <= _MOST_RESOURCES:
        return replace(
            spec,
            containers=tuple(map(_requesting, containers)),
            init_containers=tuple(map(_requesting, inits)),
            resources=Resources(spec.resources.requests),
        )
    counted = pod_requests(pod)
    texts = {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in counted.items()}
    whole = Container("", Resources(_of_node(texts)))
    return replace(spec, containers=(whole,), init_containers=(), resources=Resources(), overhead={})


def _of_node(quantities: Quantities) -> Quantities:
    """Keeps what every node has before all others."""
    if len(quantities) <= _MOST_RESOURCES:
        return quantities
    order = sorted(quantities, key=lambda name: (name not in _FIRST_RESOURCES, "/" in name))
    return {name: quantities[name] for name in order[:_MOST_RESOURCES]}


def _status(status: PodStatus) -> PodStatus:
    """Keeps what a scheduler and an agent say of the pod, and of its containers their IDs and whether they
    run and are ready.
    """
    kept = (each for each in status.conditions if each.type in _CONDITIONS)
    return PodStatus(
        phase=status.phase,
        nominated_node_name=status.nominated_node_name,
        conditions=tuple(map(_condition, kept)),
        container_statuses=_briefly(status.container_statuses),
        init_container_statuses=_briefly(status.init_container_statuses),
    )


def _without_words(status: PodStatus) -> tuple[Condition, ...]:
    kept = (each for each in status.conditions if each.type in _CONDITIONS)
    return tuple(replace(each, message="", reason="") for each in kept)


def _condition(condition: Condition) -> Condition:
    if len(condition.message) <= _LONGEST_MESSAGE:
        return condition
    return replace(condition, message=condition.message[:_LONGEST_MESSAGE])


def _briefly(statuses: tuple[ContainerStatus, ...]) -> tuple[ContainerStatus, ...]:
    return tuple(
        ContainerStatus(
            each.name,
            _RUNNING if each.state.running is not None else _NOT_RUNNING,
            ready=each.ready,
            container_id=each.container_id,
        )
        for each in statuses[:MOST_IN_ALL]
    )


def _requesting(container: Container) -> Container:
    return Container(container.name, Resources(container.resources.requests), container.restart_policy)


def gpu_fields(dialects: Dialects) -> PodFields:
    """What a pod's demand, its grant and its place in line are read from."""
    wishes = (names.GPU_MODEL, names.GPU_UUID, names.PLACEMENT, names.ENFORCE, names.EVICT_OVER_LIMIT)
    own = (*names.SERVER_ONLY, *wishes, MIRROR)
    others = (each for dialect in dialects.on for each in dialect.pod_annotations)
    return PodFields(
        frozenset((*own, *others)),
        frozenset((names.gpu_count, names.devices, names.compute, names.card_memory, names.mps_memory)),
        resources=dialects.resources,
    )

"""Reads the kinds that make replicas and are watched: Deployment, StatefulSet, ReplicaSet and
ReplicationController.

Only what decisions need is kept of each: how many replicas are wanted, which pods are its replicas, what one
of them would ask of a GPU, and our annotations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
from msgspec.structs import replace

from cotenant.dialects import names
from cotenant.dialects.registry import Dialects
from cotenant.kube.api import resources
from cotenant.kube.api.objects import Container, Meta, Pod, PodSpec, Resources
from cotenant.kube.api.resources import Resource
from cotenant.kube.pods.eligibility import ANYWHERE, Placement, Toleration
from cotenant.kube.pods.fields import PodFields, gpu_fields
from cotenant.kube.scaler.selector import Selector, read_selector

OURS = (names.SCALE_DOWN_THRESHOLD, names.SCALE_DOWN_THRESHOLD_WHEN_OTHERS_WAIT, names.RELEASED_REPLICAS)
_LONGEST = 64
"""Characters that are kept of an annotation; a longer one is not valid."""
_LONGEST_PLACEMENT = 4096
"""Characters that are kept of what selects nodes, as JSON. If it is longer, every node counts."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class TemplateSpec(PodSpec, frozen=True, gc=False, rename="camel"):
    """A pod's spec with what says on which nodes it may be placed."""

    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    affinity: dict[str, Any] | None = None


class Template(msgspec.Struct, frozen=True, gc=False):
    metadata: Meta = Meta()
    spec: TemplateSpec = TemplateSpec()


class WorkloadSpec(msgspec.Struct, frozen=True, gc=False):
    replicas: int | None = None
    selector: dict[str, Any] = {}
    template: Template = Template()


class Workload(msgspec.Struct, frozen=True, gc=False):
    """A workload of any of the watched kinds."""

    metadata: Meta = Meta()
    spec: WorkloadSpec = WorkloadSpec()

    @property
    def replicas(self) -> int:
        """How many replicas are wanted; the API's default is 1."""
        return 1 if self.spec.replicas is None else self.spec.replicas

    @property
    def selector(self) -> Selector:
        return read_selector(self.spec.selector)

    @property
    def placement(self) -> Placement:
        """On which nodes its replicas may be placed, by its template."""
        spec = self.spec.template.spec
        if not (spec.node_selector or spec.tolerations or spec.affinity):
            return ANYWHERE
        return Placement(spec.node_selector, spec.tolerations, spec.affinity)

    @property
    def is_owned(self) -> bool:
        """Reports whether a controller of its own scales it, as a Deployment does its ReplicaSets. Those get
        copies of the Deployment's annotations.
        """
        return any(each.controller for each in self.metadata.owner_references)

    def pod(self) -> Pod:
        """Returns a pod as its template has it, before admission. What is only limited is requested, too, as
        the API server does it.
        """
        template = self.spec.template
        meta = Meta(namespace=self.metadata.namespace, annotations=template.metadata.annotations)
        spec = template.spec
        return Pod(
            meta,
            replace(
                spec,
                containers=spec.containers and tuple(map(_defaulted, spec.containers)),
                init_containers=tuple(map(_defaulted, spec.init_containers)),
            ),
        )


def _defaulted(container: Container) -> Container:
    resources = container.resources
    requests = {**resources.limits, **resources.requests}
    return replace(container, resources=Resources(requests, resources.limits))


WATCHED: tuple[Resource[Workload], ...] = tuple(
    each.read_as(Workload)
    for each in (
        resources.DEPLOYMENTS,
        resources.STATEFUL_SETS,
        resources.REPLICA_SETS,
        resources.REPLICATION_CONTROLLERS,
    )
)


@dataclass(frozen=True)
class WorkloadFields:
    """What is kept of a workload, so that its author does not decide how much memory it takes."""

    dialects: Dialects

    def __or__(self, other: WorkloadFields, /) -> WorkloadFields:
        del other
        return self

    @cached_property
    def _pod(self) -> PodFields:
        return gpu_fields(self.dialects)

    def keep(self, workload: Workload, /) -> Workload:
        meta, template = workload.metadata, workload.spec.template
        priority = template.spec.priority_class_name
        pod = self._pod.keep(Pod(Meta(annotations=template.metadata.annotations), template.spec))
        where = _bounded(workload.placement)
        spec = replace(
            pod.spec,
            priority_class_name=priority,
            node_selector=where.node_selector,
            tolerations=where.tolerations,
            affinity=where.affinity,
        )
        assert isinstance(spec, TemplateSpec)  # noqa: S101 - as the template's was
        return Workload(
            replace(
                meta,
                annotations={
                    key: meta.annotations[key][: _LONGEST + 1] for key in OURS if key in meta.annotations
                },
                labels={},
                owner_references=tuple(each for each in meta.owner_references if each.controller)[:1],
                finalizers=(),
            ),
            WorkloadSpec(
                workload.spec.replicas,
                workload.spec.selector,
                Template(pod.metadata, spec),
            ),
        )


def _bounded(placement: Placement) -> Placement:
    """Keeps what decides about a node: the selector, the tolerations and the required terms."""
    if placement is ANYWHERE:
        return placement
    required = placement.terms
    affinity = None if required is None else {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": required}}}
    kept = Placement(placement.node_selector, placement.tolerations, affinity)
    return kept if len(msgspec.json.encode(kept)) <= _LONGEST_PLACEMENT else ANYWHERE

"""Holds everything that the checks look at. What could not be read is None, and `unread` says why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec

from cotenant.core.quantity import parse_quantity
from cotenant.kube.api.objects import Generic, Lease, Meta, Node, Pod
from cotenant.kube.operating.installed import Installed
from cotenant.kube.operating.status.snapshot import snapshot
from cotenant.kube.pods.demand import has_ended
from cotenant.kube.scaler.conflicts import Autoscaler
from cotenant.kube.scaler.resource import GpuScaler
from cotenant.kube.scheduling.pod_statistics import EndedPods
from cotenant.observe.state import AgentState, ServerState
from cotenant.observe.view import View

NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
VERSION = "app.kubernetes.io/version"


class Variable(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    value: str = ""


class ImageContainer(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    image: str = ""
    env: tuple[Variable, ...] = ()


class HostPath(msgspec.Struct, frozen=True, gc=False):
    path: str = ""


class Volume(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    host_path: HostPath | None = None


class ImageSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""
    runtime_class_name: str = ""
    containers: tuple[ImageContainer, ...] = ()
    init_containers: tuple[ImageContainer, ...] = ()
    ephemeral_containers: tuple[ImageContainer, ...] = ()
    volumes: tuple[Volume, ...] = ()

    @property
    def all_containers(self) -> tuple[ImageContainer, ...]:
        return (*self.init_containers, *self.containers, *self.ephemeral_containers)


class ImageStatus(msgspec.Struct, frozen=True, gc=False):
    pod_ip: str = msgspec.field(default="", name="podIP")


class ImagePod(msgspec.Struct, frozen=True, gc=False):
    """A pod with the fields that say what it runs: images, variables, volumes."""

    metadata: Meta = Meta()
    spec: ImageSpec = ImageSpec()
    status: ImageStatus = ImageStatus()


@dataclass(frozen=True)
class Facts:
    now: datetime
    installed: Installed
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    images: tuple[ImagePod, ...] = ()
    """The same pods by their images and variables."""
    own: tuple[ImagePod, ...] = ()
    """Pods of Cotenant itself."""
    namespaces: tuple[Meta, ...] = ()
    quotas: tuple[Generic, ...] = ()
    lease: Lease | None = None
    slices: Mapping[str, Mapping[str, Any]] | None = None
    """EndpointSlices of the extender's Service, by name."""
    certificates: Mapping[str, str] | None = None
    """The Secret's data."""
    policies: Mapping[str, Mapping[str, Any]] | None = None
    bindings: Mapping[str, Mapping[str, Any]] | None = None
    """ValidatingAdmissionPolicies and their bindings, by name."""
    definition: Mapping[str, Any] | None = None
    """The CustomResourceDefinition of GpuScalers."""
    scalers: tuple[GpuScaler, ...] = ()
    hpas: tuple[Autoscaler, ...] = ()
    scaled_objects: tuple[Autoscaler, ...] = ()
    """KEDA's."""
    workloads: tuple[Mapping[str, Any], ...] | None = None
    """Deployments and DaemonSets of Cotenant itself."""
    not_created: Mapping[str, str] = field(default_factory=dict)
    """Why a controller could not create pods, by the UID of their owner: the newest of its events."""
    schedulers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """KubeSchedulerConfigurations found in ConfigMaps, by their places there."""
    own_schedulers: frozenset[str] = frozenset()
    """Those that belong to this installation."""
    states: Mapping[str, AgentState] = field(default_factory=dict)
    """What agents report at `/state`, by node."""
    ledgers: Mapping[str, ServerState] = field(default_factory=dict)
    """What servers report at `/state`, by the names of their pods."""
    ended_pods: EndedPods | None = None
    """What the leader kept of pods that have ended, for its policy."""
    version: str = ""
    """Of this program."""
    unread: tuple[str, ...] = ()

    def is_unread(self, what: str) -> bool:
        """Whether it may not be read: then nothing is known of it, and nothing is reported as wrong."""
        return any(each.startswith(f"{what}:") for each in self.unread)

    @cached_property
    def view(self) -> View:
        """The GPUs and who holds them, by what nodes and pods say of themselves."""
        return snapshot(self.nodes, self.pods)

    def component(self, name: str) -> tuple[ImagePod, ...]:
        """Pods of one part of Cotenant: `server`, `agent`, `scheduler`."""
        return tuple(each for each in self.own if each.metadata.labels.get(COMPONENT) == name)

    @cached_property
    def ready(self) -> frozenset[str]:
        """UIDs of pods that are ready."""
        return frozenset(
            pod.metadata.uid
            for pod in self.pods
            if any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
        )

    @cached_property
    def server_versions(self) -> frozenset[str]:
        found = {pod.metadata.labels.get(VERSION, "") for pod in self.component("server")}
        return frozenset(found - {""})

    @property
    def knows_installed(self) -> bool:
        """Whether this program knows what was installed: it has the settings, and the servers' version."""
        same = not self.server_versions or self.version in self.server_versions
        return self.installed.settings_known and same

    @cached_property
    def ended(self) -> frozenset[str]:
        """UIDs of pods that have ended."""
        return frozenset(pod.metadata.uid for pod in self.pods if has_ended(pod))

    @cached_property
    def leader(self) -> ImagePod | None:
        """The pod that the Lease names."""
        holder = (self.lease.spec.holder_identity or "") if self.lease else ""
        return next(
            (pod for pod in self.component("server") if holder.startswith(f"{pod.metadata.name}_")), None
        )


def amount_of(capacity: Mapping[str, str], resource: str) -> int:
    """How much of an extended resource a node's capacity has; 0 if that is missing or not valid."""
    return int(parse_quantity(capacity.get(resource, "0")) or 0)

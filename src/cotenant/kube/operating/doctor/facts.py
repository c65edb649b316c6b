"""All that the checks look at. What could not be read is None, and `unread` says why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec

from cotenant.kube.objects import Generic, Lease, Meta, Node, Pod
from cotenant.kube.operating.census import NodeSeen, census
from cotenant.kube.operating.installed import Installed

COMPONENT = "app.kubernetes.io/component"
VERSION = "app.kubernetes.io/version"


class Variable(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    value: str = ""


class ImageContainer(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    image: str = ""
    env: tuple[Variable, ...] = ()


class ImageSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""
    containers: tuple[ImageContainer, ...] = ()


class ImageStatus(msgspec.Struct, frozen=True, gc=False):
    pod_ip: str = msgspec.field(default="", name="podIP")


class ImagePod(msgspec.Struct, frozen=True, gc=False):
    """A pod by what it runs, not by what it asks for."""

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
    endpoints: tuple[str, ...] | None = None
    """Addresses behind the extender's Service."""
    certificates: Mapping[str, str] | None = None
    """The Secret's data."""
    policies: Mapping[str, Mapping[str, Any]] | None = None
    bindings: Mapping[str, Mapping[str, Any]] | None = None
    """ValidatingAdmissionPolicies and their bindings, by name."""
    schedulers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """KubeSchedulerConfigurations found in ConfigMaps, by where they stand."""
    states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What agents tell of their slots, by node."""
    ledgers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What servers tell of their ledgers, by the names of their pods."""
    version: str = ""
    """Of the program that examines."""
    unread: tuple[str, ...] = ()

    @cached_property
    def census(self) -> tuple[NodeSeen, ...]:
        return census(self.nodes, self.pods)

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

"""Declares every kind that we read or write: its path in the API and the type its objects are read as."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from cotenant.kube.api import objects
from cotenant.kube.api.errors import Undecodable

T = TypeVar("T")
M = TypeVar("M")


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list."""

    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class WatchLine(msgspec.Struct, Generic[T], frozen=True):
    """One line of a watch that reports a change of an object."""

    type: str
    object: T


@dataclass(frozen=True)
class Resource(Generic[T]):
    """One kind: its place in the API and the type that its objects are read as."""

    model: type[T]
    kind: str
    plural: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    keep: Callable[[T], T] | None = None
    """Reduces each object as it is read: objects may carry a lot of data that we do not use."""

    def read_as(self, model: type[M]) -> Resource[M]:
        """Returns the same kind, with objects read as another type."""
        return replace(self, model=model, keep=None)  # type: ignore[arg-type, return-value]

    @property
    def raw(self) -> Resource[dict[str, Any]]:
        """The same kind, with objects as plain JSON."""
        return self.read_as(dict)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """Returns the path of an object, or of the collection without `name`. Names are checked, not only
        quoted: an empty name would address the whole collection.
        """
        parts = ["", "apis", self.group, self.version] if self.group else ["", "api", self.version]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", _segment(namespace, "namespace")]
        elif self.namespaced and name is not None:
            raise ValueError(f"{self.plural} {name}: which namespace?")
        parts.append(self.plural)
        if name is not None:
            parts.append(_segment(name, "name"))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def decode(self, body: bytes | msgspec.Raw) -> T:
        read = decode(self._decoder, body, self.kind)
        return read if self.keep is None else self.keep(read)

    def decode_page(self, body: bytes) -> Page[T]:
        if self.keep is None:
            return decode(self._page_decoder, body, f"list of {self.plural}")
        page = decode(_RAW_PAGE, body, f"list of {self.plural}")
        return Page(page.metadata, [self.decode(each) for each in page.items or ()])

    def decode_event(self, line: bytes) -> WatchLine[T]:
        event = decode(self._event_decoder, line, "watch event")
        return event if self.keep is None else WatchLine(event.type, self.keep(event.object))

    @cached_property
    def _event_decoder(self) -> msgspec.json.Decoder[WatchLine[T]]:
        return msgspec.json.Decoder(WatchLine[self.model])  # type: ignore[name-defined]

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[T]:
        return msgspec.json.Decoder(self.model)

    @cached_property
    def _page_decoder(self) -> msgspec.json.Decoder[Page[T]]:
        return msgspec.json.Decoder(Page[self.model])  # type: ignore[name-defined]


_RAW_PAGE = msgspec.json.Decoder(Page[msgspec.Raw])


def decode(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw, what: str) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        problem = str(error)
    raise Undecodable(f"the API server's {what}: {Undecodable.said}: {problem}")


def _segment(text: str, what: str) -> str:
    if not text or text in {".", ".."} or "/" in text or "%" in text:
        raise ValueError(f"{text!r} is not a valid {what} of Kubernetes")
    return quote(text, safe="")


PODS = Resource(objects.Pod, "Pod", "pods")
NODES = Resource(objects.Node, "Node", "nodes", namespaced=False)
LEASES = Resource(objects.Lease, "Lease", "leases", group="coordination.k8s.io")
EVENTS = Resource(objects.Event, "Event", "events")
NAMESPACES = Resource(objects.Generic, "Namespace", "namespaces", namespaced=False)
CONFIG_MAPS = Resource(objects.Generic, "ConfigMap", "configmaps")
SECRETS = Resource(objects.Secret, "Secret", "secrets")
SERVICES = Resource(objects.Generic, "Service", "services")
RESOURCE_QUOTAS = Resource(objects.Generic, "ResourceQuota", "resourcequotas")
REPLICATION_CONTROLLERS = Resource(objects.Generic, "ReplicationController", "replicationcontrollers")

POD_DISRUPTION_BUDGETS = Resource(
    objects.Generic, "PodDisruptionBudget", "poddisruptionbudgets", group="policy"
)

DEPLOYMENTS = Resource(objects.Generic, "Deployment", "deployments", group="apps")
REPLICA_SETS = Resource(objects.Generic, "ReplicaSet", "replicasets", group="apps")
STATEFUL_SETS = Resource(objects.Generic, "StatefulSet", "statefulsets", group="apps")
DAEMON_SETS = Resource(objects.Generic, "DaemonSet", "daemonsets", group="apps")
JOBS = Resource(objects.Generic, "Job", "jobs", group="batch")

ENDPOINT_SLICES = Resource(objects.Generic, "EndpointSlice", "endpointslices", group="discovery.k8s.io")

_ADMISSION = "admissionregistration.k8s.io"
MUTATING_WEBHOOK_CONFIGURATIONS = Resource(
    objects.MutatingWebhookConfiguration,
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    group=_ADMISSION,
    namespaced=False,
)
ADMISSION_POLICIES = Resource(
    objects.Generic,
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    group=_ADMISSION,
    namespaced=False,
)
ADMISSION_POLICY_BINDINGS = Resource(
    objects.Generic,
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    group=_ADMISSION,
    namespaced=False,
)

GPU_SCALERS = Resource(objects.Generic, "GpuScaler", "gpuscalers", group="cotenant.dev", version="v1alpha1")
DEFINITIONS = Resource(
    objects.Generic,
    "CustomResourceDefinition",
    "customresourcedefinitions",
    group="apiextensions.k8s.io",
    namespaced=False,
)
PRIORITY_CLASSES = Resource(
    objects.Generic, "PriorityClass", "priorityclasses", group="scheduling.k8s.io", namespaced=False
)
HPAS = Resource(
    objects.Generic,
    "HorizontalPodAutoscaler",
    "horizontalpodautoscalers",
    group="autoscaling",
    version="v2",
)
SCALED_OBJECTS = Resource(
    objects.Generic, "ScaledObject", "scaledobjects", group="keda.sh", version="v1alpha1"
)


def discovered(model: type[T], kind: str, plural: str, group: str, version: str) -> Resource[T]:
    """Returns a namespaced kind that only the API server's discovery knows, such as a scaler's target."""
    return Resource(model, kind, plural, group=group, version=version)

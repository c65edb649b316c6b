"""Finds and scales the target of a GpuScaler: anything with a `scale` subresource.

The four kinds of Kubernetes itself are watched; of any other kind the scale is read in every round. A patch
goes to the scale subresource with the resourceVersion of a read just before it: what others changed meanwhile
is never overwritten.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from cotenant.core.errors import BadInput, CotenantError
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import Forbidden, NotFound, Unreachable
from cotenant.kube.api.objects import Meta
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import Resource, discovered
from cotenant.kube.api.store import Store
from cotenant.kube.scaler.selector import Selector, parse_selector
from cotenant.kube.scaler.workload import Workload
from cotenant.scaling.specification import Target

WITHIN = 4.0
"""Seconds for one call; the lease must hold at least as long when a patch is sent."""
_FORGET = 300.0
"""Seconds for which it is remembered how a kind is called in the API."""


class ScaleSpec(msgspec.Struct, frozen=True, gc=False):
    replicas: int = 0


class ScaleStatus(msgspec.Struct, frozen=True, gc=False):
    selector: str = ""


class Scale(msgspec.Struct, frozen=True, gc=False):
    """autoscaling/v1 Scale."""

    metadata: Meta = Meta()
    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()


class _ApiResource(msgspec.Struct, frozen=True):
    name: str = ""
    kind: str = ""
    namespaced: bool = False


class _ApiResources(msgspec.Struct, frozen=True):
    resources: tuple[_ApiResource, ...] = ()


class TargetError(CotenantError):
    """The target cannot be scaled. `reason` is one word for a condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ScaleChanged(CotenantError):
    """Somebody has changed the replicas since they were looked at."""


@dataclass(frozen=True, slots=True)
class Found:
    """A target as it is now."""

    resource: Resource[Scale]
    name: str
    namespace: str
    uid: str
    replicas: int
    selector: Selector
    workload: Workload | None = None
    """None: its kind is not watched."""

    @property
    def removes_by_cost(self) -> bool:
        """Whether it heeds pod-deletion-cost: a StatefulSet always removes its last replica."""
        return self.workload is not None and self.resource.kind != "StatefulSet"


@dataclass
class Targets:
    client: Client
    watched: Sequence[tuple[Resource[Workload], Store[Workload]]]
    must_lead: Callable[[float], None]
    is_fresh: Callable[[Resource[Workload]], bool] = lambda _: True
    """Whether a kind has been listed in this term."""
    clock: Callable[[], float] = time.monotonic
    _kinds: dict[tuple[str, str], tuple[float, Resource[Scale] | None]] = field(
        default_factory=dict, init=False
    )
    """By apiVersion and kind: until when, and its place in the API; None if it has no scale."""
    _watches: dict[tuple[str, str], tuple[Resource[Workload], Resource[Scale], Store[Workload]]] = field(
        init=False
    )
    """By apiVersion and kind. Made once: a thousand scalers look their targets up in every round."""

    def __post_init__(self) -> None:
        self._watches = {
            (resource.api_version, resource.kind): (resource, resource.read_as(Scale), store)
            for resource, store in self.watched
        }

    async def find(self, target: Target, namespace: str) -> Found:
        """Returns the target; TargetError if it is not there or cannot be scaled."""
        watch = self._watches.get((target.api_version, target.kind))
        if watch is None:
            return await self._read(target, namespace)
        resource, scale, store = watch
        if not self.is_fresh(resource):
            raise Unreachable(f"list {resource.plural}: not listed yet")
        workload = store.named(target.name, namespace)
        if workload is None:
            raise _gone(target, namespace)
        return Found(
            scale,
            target.name,
            namespace,
            workload.metadata.uid,
            workload.replicas,
            workload.selector,
            workload,
        )

    async def scale(self, found: Found, replicas: int) -> None:
        """Sets the replicas, unless they are no longer what `found` has: ScaleChanged. Conflict if they
        change in this very moment.
        """
        now = await self.client.get(
            found.resource, found.name, found.namespace, subresource="scale", within=WITHIN
        )
        if now.metadata.uid != found.uid or now.spec.replicas != found.replicas:
            raise ScaleChanged(
                f"{found.resource.kind} {found.name} has {now.spec.replicas} replicas, not {found.replicas}"
            )
        self.must_lead(WITHIN)
        await self.client.merge_patch(
            found.resource,
            found.name,
            {"spec": {"replicas": replicas}},
            found.namespace,
            guard=Guard.of(now),
            subresource="scale",
            retry=False,
            within=WITHIN,
        )

    async def _read(self, target: Target, namespace: str) -> Found:
        resource = await self._resource(target)
        try:
            scale = await self.client.get(
                resource, target.name, namespace, subresource="scale", within=WITHIN
            )
        except NotFound:
            raise _gone(target, namespace) from None
        except Forbidden:
            raise TargetError(
                "Forbidden",
                f"the server may not get and patch {resource.plural}/scale of {target.api_version}: give its "
                "service account a ClusterRole for it",
            ) from None
        try:
            selector = parse_selector(scale.status.selector)
        except BadInput as error:
            raise TargetError("NotScalable", f"{target.kind} {target.name}: {error}") from None
        meta = scale.metadata
        return Found(resource, target.name, namespace, meta.uid, scale.spec.replicas, selector)

    async def _resource(self, target: Target) -> Resource[Scale]:
        key = target.api_version, target.kind
        until, known = self._kinds.get(key, (0.0, None))
        if self.clock() >= until:
            known = await self._discover(target)
            self._kinds[key] = self.clock() + _FORGET, known
        if known is None:
            raise TargetError(
                "NotScalable",
                f"{target.kind} of {target.api_version} has no scale subresource: only what `kubectl scale` "
                "can scale is a target",
            )
        return known

    async def _discover(self, target: Target) -> Resource[Scale] | None:
        group, slash, version = target.api_version.rpartition("/")
        path = f"/apis/{group}/{version}" if slash else f"/api/{version}"
        try:
            listed = await self.client.get_path(path, _ApiResources, within=WITHIN)
        except NotFound:
            raise TargetError(
                "TargetNotFound", f"the API server has no {target.api_version}: is its CRD installed?"
            ) from None
        names: Mapping[str, _ApiResource] = {each.name: each for each in listed.resources}
        plural = next(
            (each.name for each in listed.resources if each.kind == target.kind and "/" not in each.name),
            None,
        )
        if plural is None:
            raise TargetError(
                "TargetNotFound", f"the API server has no {target.kind} in {target.api_version}"
            )
        if f"{plural}/scale" not in names or not names[plural].namespaced:
            return None
        return discovered(Scale, target.kind, plural, group if slash else "", version)


def _gone(target: Target, namespace: str) -> TargetError:
    return TargetError("TargetNotFound", f"no {target.kind} {target.name} in namespace {namespace}")

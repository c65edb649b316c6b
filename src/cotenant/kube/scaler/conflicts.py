"""Finds what else scales the target of a GpuScaler: an HPA, a KEDA ScaledObject, or another GpuScaler."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cotenant.kube.api import resources
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import KubeError, NotFound
from cotenant.kube.api.objects import Meta
from cotenant.kube.api.store import Store
from cotenant.kube.logs import get_logger
from cotenant.scaling.specification import Target

log = get_logger(__name__)

LOOK = 20.0
"""Seconds between two lists of ScaledObjects. They are not watched: most clusters do not have the kind."""
_WITHIN = 10.0

Aim = tuple[str, str, str, str]
"""Namespace, group, kind and name of a target. Not its version: any one leads to the same object."""


class ScaleTargetRef(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class AutoscalerSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    scale_target_ref: ScaleTargetRef = ScaleTargetRef()


class Autoscaler(msgspec.Struct, frozen=True, gc=False):
    """A HorizontalPodAutoscaler or a ScaledObject, as far as we read them."""

    metadata: Meta = Meta()
    spec: AutoscalerSpec = AutoscalerSpec()


HPAS = resources.HPAS.read_as(Autoscaler)
SCALED_OBJECTS = resources.SCALED_OBJECTS.read_as(Autoscaler)


@dataclass(frozen=True)
class AutoscalerFields:
    """Keeps the name and the target."""

    def __or__(self, other: AutoscalerFields, /) -> AutoscalerFields:
        return other

    def keep(self, each: Autoscaler, /) -> Autoscaler:
        meta = each.metadata
        kept = Meta(meta.name, meta.namespace, meta.uid, meta.resource_version)
        return Autoscaler(kept, each.spec)


def aim_of(target: Target, namespace: str) -> Aim:
    return namespace, _group(target.api_version), target.kind, target.name


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]


@dataclass
class Conflicts:
    """Knows every other autoscaler by its target; `run()` looks for ScaledObjects until it is cancelled."""

    client: Client
    hpas: Store[Any]
    _scaled_objects: dict[Aim, str] = field(default_factory=dict, init=False)
    _hpas: dict[Aim, str] = field(default_factory=dict, init=False)

    def look(self) -> None:
        """Reads the HPAs; call it before each round."""
        self._hpas = _by_aim(self.hpas, *_HPA)

    def other(self, aim: Aim) -> str | None:
        """Names the HPA or ScaledObject that scales this target. A ScaledObject has an HPA of its own: then
        the ScaledObject is named, which is what people wrote.
        """
        return self._scaled_objects.get(aim) or self._hpas.get(aim)

    async def run(self) -> None:
        while True:
            try:
                listed = await self.client.list(SCALED_OBJECTS, within=_WITHIN)
                self._scaled_objects = _by_aim(listed.items, *_SCALED_OBJECT)
            except NotFound:
                self._scaled_objects = {}
            except KubeError as error:
                log.debug("ScaledObjects not listed", error=error)
            await asyncio.sleep(LOOK)


def autoscalers_by_aim(hpas: Iterable[Autoscaler], scaled_objects: Iterable[Autoscaler]) -> dict[Aim, str]:
    """Names the HPA or ScaledObject of each target, as `Conflicts.other` does."""
    return {**_by_aim(hpas, *_HPA), **_by_aim(scaled_objects, *_SCALED_OBJECT)}


_HPA = ("HorizontalPodAutoscaler",)
_SCALED_OBJECT = ("ScaledObject", "Deployment", "apps/v1")
"""What a kind of autoscaler is called, and the kind and version of a target that does not say its own."""


def _by_aim(found: Iterable[Autoscaler], what: str, kind: str = "", api_version: str = "") -> dict[Aim, str]:
    by_aim = {}
    for each in found:
        meta, ref = each.metadata, each.spec.scale_target_ref
        aim = (meta.namespace, _group(ref.api_version or api_version), ref.kind or kind, ref.name)
        by_aim[aim] = f"{what} {meta.name}"
    return by_aim

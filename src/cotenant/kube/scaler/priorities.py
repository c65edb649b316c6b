"""Reads PriorityClasses: in which order workloads without a pod compete for GPUs."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from cotenant.kube.api import resources
from cotenant.kube.api.objects import Meta
from cotenant.kube.api.store import Store


class PriorityClass(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: Meta = Meta()
    value: int = 0
    global_default: bool = False


PRIORITY_CLASSES = resources.PRIORITY_CLASSES.read_as(PriorityClass)


@dataclass(frozen=True)
class PriorityClassFields:
    """Keeps the name and the value."""

    def __or__(self, other: PriorityClassFields, /) -> PriorityClassFields:
        return other

    def keep(self, each: PriorityClass, /) -> PriorityClass:
        meta = Meta(
            each.metadata.name, uid=each.metadata.uid, resource_version=each.metadata.resource_version
        )
        return PriorityClass(meta, each.value, each.global_default)


def priority_of(classes: Store[PriorityClass], name: str) -> int:
    """Returns the priority that a pod of this class would get; empty: of none."""
    if name:
        found = classes.named(name)
        return 0 if found is None else found.value
    return max((each.value for each in classes if each.global_default), default=0)

"""Lists all dialects. A new one is a file of its own and a line in the class below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import ClassVar

from cotenant.core.gpu import GPU
from cotenant.dialects import names
from cotenant.dialects.aliyun import Aliyun
from cotenant.dialects.dialect import Dialect
from cotenant.dialects.native import Native
from cotenant.dialects.nvidia import Nvidia
from cotenant.dialects.volcano import Volcano


@dataclass(frozen=True)
class Dialects:
    """The dialects with their settings; the class is the section `[dialects]` of the settings."""

    aliyun: Aliyun = field(default_factory=Aliyun)
    """Pods written for gpushare-scheduler-extender."""
    volcano: Volcano = field(default_factory=Volcano)
    """Pods written for Volcano's GPU sharing and GPU number."""
    nvidia: Nvidia = field(default_factory=Nvidia)
    """Pods written for NVIDIA's device plugin."""

    native: ClassVar[Native] = Native()

    @cached_property
    def others(self) -> tuple[Dialect, ...]:
        """The enabled dialects, without the native one."""
        known: tuple[Dialect, ...] = tuple(getattr(self, each.name) for each in fields(self))
        return tuple(dialect for dialect in known if dialect.enabled)

    @cached_property
    def on(self) -> tuple[Dialect, ...]:
        """The enabled dialects; the native one is first."""
        return (self.native, *self.others)

    @cached_property
    def by_name(self) -> dict[str, Dialect]:
        return {dialect.name: dialect for dialect in self.on}

    @cached_property
    def resources(self) -> frozenset[str]:
        """Every resource by which a container may ask; a pod without any of them is not a GPU pod."""
        return frozenset(name for dialect in self.on for name in dialect.resources)

    @cached_property
    def _written(self) -> frozenset[str]:
        return frozenset(name for dialect in self.on for name in dialect.pod_annotations)

    def only_server_writes(self, annotation: str) -> bool:
        """Whether the annotation is part of a grant, in any dialect."""
        return annotation in self._written or names.only_server_writes(annotation)

    def capacity(self, gpus: Sequence[GPU]) -> dict[str, int]:
        """Returns the capacity that a node with these GPUs reports, in all dialects."""
        return {name: amount for dialect in self.on for name, amount in dialect.capacity(gpus).items()}

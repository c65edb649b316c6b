"""Short ways to say what the dialect tests say often."""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.dialects.dialect import ContainerDemand, GrantedGpu
from cotenant.dialects.reading import read_container
from cotenant.dialects.registry import Dialects
from cotenant.dialects.wishes import read_wishes

MI = 2**20
GI = 2**30


def gpu(index: int, memory: int, parent: str | None = None) -> GPU:
    return GPU(f"GPU-{index}", index, "NVIDIA A100", memory, parent=parent)


def card(index: int, memory: int, granted: int) -> GrantedGpu:
    return GrantedGpu(gpu(index, memory), Share(f"GPU-{index}", granted))


def read(
    limits: Mapping[str, object],
    dialects: Dialects | None = None,
    *,
    requests: Mapping[str, object] | None = None,
    annotations: Mapping[str, str] | None = None,
    container: str = "main",
) -> ContainerDemand | None:
    resources = {"limits": limits, "requests": requests or {}}
    return read_container(container, 0, resources, read_wishes(annotations or {}), dialects or Dialects())

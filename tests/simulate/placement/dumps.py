"""Dumps of clusters as `cotenant status -o json` writes them, for tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.loss import Spare
from cotenant.kube.operating.status.snapshot import document
from cotenant.observe.view import GpuView, NodeView, PodView, ShareView

GI = 2**30
MODEL = "NVIDIA A100-SXM4-80GB"


def pod(name: str, *demands: Demand, cpu: int = 1000, memory: int = GI, **others: Any) -> PodView:
    asked = tuple((f"c{at}", demand) for at, demand in enumerate(demands))
    return PodView(f"uid-{name}", name, "team", cpu, memory, asked, **others)


def part(size: int, **others: Any) -> Demand:
    return Demand(Memory(bytes=size * GI), **others)


def node(
    name: str,
    sizes: Sequence[int] = (80, 80),
    pods: Sequence[tuple[PodView, Sequence[tuple[int, int]]]] = (),
    *,
    cpu: int = 64_000,
    model: str = MODEL,
    cordoned: bool = False,
    outside: int = 0,
    problem: str | None = None,
    places: int = 110,
) -> NodeView:
    """`sizes`: GiB of each card; `pods`: each with what it holds, as pairs of a card's index and GiB."""
    cards = []
    for at, size in enumerate(sizes):
        uuid = f"GPU-{name}-{at}"
        shares = tuple(
            ShareView(each.id, each.name, uuid, held * GI, whole=each.demands[0][1].memory is None)
            for each, on in pods
            for index, held in on
            if index == at
        )
        gpu = GPU(uuid, at, model, size * GI, healthy=problem is None)
        cards.append(GpuView(gpu, name, problem, outside=outside * GI, shares=shares))
    has = Spare(cpu, 256 * GI, places)
    return NodeView(name, tuple(cards), has=has, cordoned=cordoned, pods=tuple(each for each, _ in pods))


def write(path: Path, nodes: Sequence[NodeView], pending: Sequence[PodView] = ()) -> str:
    path.write_text(json.dumps(document(nodes, "GiB", pending), indent=2))
    return str(path)

"""Replaces what pods ask for by what `cotenant recommend -o json` advised for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Annotated

import msgspec
from msgspec import Meta

from cotenant.advice.text_lines import name_of
from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.core.units import LARGEST
from cotenant.simulate.placement.dump import decode
from cotenant.simulate.placement.workload import RecordedPod, SimulatedPod

OPTION = "advice"
MOST = 500_000


class _Advice(msgspec.Struct, frozen=True):
    workload: str
    advised: Annotated[int, Meta(ge=1, le=LARGEST)] | None
    version: str = ""
    container: str = ""
    gpus: Annotated[int, Meta(ge=0, le=1024)] | None = None
    instances: tuple[str, ...] = ()


class _Document(msgspec.Struct, frozen=True):
    advice: Annotated[tuple[_Advice, ...], Meta(max_length=MOST)]


Figure = tuple[int, int]
"""Advised bytes in all, and on how many GPUs."""
Figures = Mapping[tuple[str, str | None, str | None], Figure]
"""By workload, version and container. None stands for any: then the highest figure counts."""


def read_advice(path: str) -> Figures:
    document = decode(path, OPTION, _Document, "write it anew with `cotenant recommend -o json`")
    figures: dict[tuple[str, str | None, str | None], Figure] = {}
    for each in document.advice:
        if each.advised is None:
            continue
        figure = each.advised, each.gpus or 1
        for workload in (each.workload, *each.instances):
            for version, container in product((each.version, None), (each.container, None)):
                key = workload, version, container
                figures[key] = max(figure, figures.get(key, (0, 1)), key=_on_one)
    if not figures:
        raise BadInput(f"{OPTION}: {name_of(path)} advises nothing: more history is needed")
    return figures


def _on_one(figure: Figure) -> int:
    size, gpus = figure
    return -(-size // gpus)


def advised(pods: Sequence[RecordedPod], figures: Figures) -> tuple[list[SimulatedPod], int]:
    """Returns the pods with their advised sizes, and how many of them have one."""
    changed, count = list[SimulatedPod](), 0
    for each in pods:
        found = [_demand(each, at, figures) for at in range(len(each.pod.demands))]
        count += any(found)
        demands = (new or old for new, old in zip(found, each.pod.demands, strict=True))
        changed.append(replace(each.pod, demands=tuple(demands)))
    return changed, count


def _demand(pod: RecordedPod, at: int, figures: Figures) -> Demand | None:
    """Returns the demand with the figure of its container, of another version's if there is none; where the
    pod's containers are not known, with the highest of the workload.
    """
    demand, container = pod.pod.demands[at], pod.containers[at] if at < len(pod.containers) else ""
    for name in (container, "") if container else (None,):
        for version in (pod.version, None):
            found = figures.get((pod.workload, version, name))
            if found is not None:
                size = found[0] if found[1] == demand.count else _on_one(found) * demand.count
                return replace(demand, memory=Memory(bytes=size), whole=0)
    return None

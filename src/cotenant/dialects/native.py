"""Reads and writes our own resources (cotenant.dev): memory in bytes, compute in percent, whole GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import ClassVar

from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU
from cotenant.dialects import names
from cotenant.dialects.dialect import ShownByUuid
from cotenant.dialects.wishes import Wishes

_DEMANDED = (names.GPU_MEMORY, names.GPU_COMPUTE, names.GPU)
_LONGEST = 80
"""Characters that are shown of a name that is not known."""


@dataclass(frozen=True, slots=True)
class Native(ShownByUuid):
    """Our own dialect. It is always on: the others are translated into it."""

    name: ClassVar[str] = "native"
    resources: ClassVar[tuple[str, ...]] = (*_DEMANDED, names.GPU_SLOT)
    pod_annotations: ClassVar[tuple[str, ...]] = ()

    @property
    def enabled(self) -> bool:
        return True

    @property
    def unit_hint(self) -> str:
        return f"{names.GPU_MEMORY} is in bytes and takes units, such as 4Gi: ask for less"

    def read(self, container: str, asked: Mapping[str, int], wishes: Wishes) -> Demand | None:
        for resource in asked:
            if resource.startswith(f"{names.DOMAIN}/") and resource not in self.resources:
                raise _unknown(container, resource)
        memory, compute, cards = (asked.get(resource) for resource in _DEMANDED)
        if cards is not None:
            if memory is not None or compute is not None:
                raise BadInput(
                    f"container {container!r}: {names.GPU}: a whole GPU brings all its memory and compute: "
                    f"leave out {names.GPU_MEMORY} and {names.GPU_COMPUTE}, or {names.GPU} to share a GPU"
                )
            return wishes.whole_cards(container, names.GPU, cards)
        if memory is None:
            if compute is not None:
                raise BadInput(
                    f"container {container!r}: {names.GPU_COMPUTE}: compute comes with memory: say with "
                    f"{names.GPU_MEMORY} how much of the GPU's memory is meant"
                )
            return None
        if compute is not None and compute > 100:
            raise BadInput(
                f"container {container!r}: {names.GPU_COMPUTE}: {compute}: each GPU has 100 percent: "
                "ask for 1 to 100"
            )
        return replace(wishes.memory(container, names.GPU_MEMORY, memory), compute=compute)

    def for_each_gpu(self, container: str, asked: Mapping[str, int], wishes: Wishes) -> dict[str, int]:
        """Returns the figures of a container with a slot with its compute on each GPU: what `write` wrote is
        the sum over all, and the number of GPUs may have been changed since.
        """
        compute, gpus = asked.get(names.GPU_COMPUTE), wishes.counts.get(container, 1)
        if compute is None:
            return dict(asked)
        field = f"container {container!r}: {names.GPU_COMPUTE}"
        if compute < gpus:
            raise BadInput(f"{field}: {compute} percent cannot be spread over {gpus} GPUs: ask for more")
        if compute > 100 * gpus:
            raise BadInput(
                f"{field}: {compute} percent were admitted and need at least {-(-compute // 100)} GPUs, and "
                f"the annotation {names.gpu_count(container)} says {gpus}: raise it"
            )
        return {**asked, names.GPU_COMPUTE: compute // gpus}

    def write(self, demand: Demand) -> dict[str, int]:
        """Writes a demand as resources, each in all: compute is the sum over its GPUs, so that quotas count
        what is charged. The GPUs over which memory is spread are counted by an annotation.
        """
        if demand.memory is None:
            return {names.GPU: demand.whole}
        compute = {} if demand.compute is None else {names.GPU_COMPUTE: demand.compute * demand.gpus}
        return {names.GPU_MEMORY: demand.memory.bytes or 0, **compute}

    def capacity(self, gpus: Sequence[GPU]) -> dict[str, int]:
        return {
            names.GPU_MEMORY: sum(gpu.memory for gpu in gpus),
            names.GPU_COMPUTE: 100 * len(gpus),
            names.GPU: len(gpus),
        }


def _unknown(container: str, resource: str) -> BadInput:
    resource = ascii(resource[:_LONGEST])[1:-1]
    near = get_close_matches(resource.rpartition("/")[2], [name.rpartition("/")[2] for name in _DEMANDED], 1)
    return BadInput(
        f"container {container!r}: {resource} is not known: "
        + (f"did you mean {names.DOMAIN}/{near[0]}?" if near else f"take one of {', '.join(_DEMANDED)}")
    )

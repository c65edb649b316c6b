"""Counts the pods that were seen, by what they ask for: placements are judged by what is likely to come.

The counts are all that is kept. They are bounded: when there are too many pods, all counts are halved, so
that what was seen long ago counts less; when there are too many kinds, the rarest are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from zlib import crc32

from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput

MOST_KINDS = 1000
MOST_PODS = 20_000
MOST_MODELS = 8
"""Models that are kept of one demand."""
LONGEST_MODEL = 96
"""Characters. No driver reports a longer name, so a longer one is nobody's."""


@dataclass(frozen=True, slots=True)
class PodKind:
    """What a pod asks for, as far as its placement concerns others."""

    demand: Demand | None = None
    """None: it needs no GPU."""
    cpu: int = 0
    """Thousandths of a CPU."""
    memory: int = 0
    """Bytes of the host's memory."""

    def to_json(self) -> dict[str, Any]:
        demand = self.demand.to_json() if self.demand is not None else None
        return {"demand": demand, "cpu": self.cpu, "memory": self.memory}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PodKind:
        demand = data.get("demand")
        return cls(
            None if demand is None else Demand.from_json(demand),
            _whole_number(data.get("cpu", 0)),
            _whole_number(data.get("memory", 0)),
        )


@dataclass
class SeenPods:
    """How many pods of each kind were seen."""

    counts: dict[PodKind, int] = field(default_factory=dict)
    total: int = 0
    """The sum of the counts."""

    @classmethod
    def of(cls, demands: Iterable[Demand]) -> SeenPods:
        """Counts demands of which CPU and memory are not known."""
        seen = cls()
        for demand in demands:
            seen.add((demand,))
        return seen

    def add(self, demands: Sequence[Demand], cpu: int = 0, memory: int = 0) -> None:
        """Counts one pod. If it has several demands, each counts with its part of CPU and memory."""
        self.count(pod_kinds(tuple(demands), cpu, memory))

    def count(self, kinds: Iterable[PodKind]) -> None:
        """Counts kinds, each as often as it is listed."""
        for kind in kinds:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self.total += 1
        self._bound()

    def copy(self) -> SeenPods:
        return SeenPods(dict(self.counts), self.total)

    def _bound(self) -> None:
        while self.total > MOST_PODS:
            self._keep({kind: count // 2 for kind, count in self.counts.items() if count > 1})
        if len(self.counts) > MOST_KINDS:
            often = sorted(self.counts, key=self._weight, reverse=True)
            stay = set(often[: MOST_KINDS * 3 // 4])
            self._keep({kind: count for kind, count in self.counts.items() if kind in stay})

    def _weight(self, kind: PodKind) -> tuple[int, bool, int]:
        """Orders by how often it was seen; of equals those with GPUs first, then none in particular."""
        return self.counts[kind], kind.demand is not None, crc32(str(kind).encode())

    def _keep(self, counts: dict[PodKind, int]) -> None:
        self.counts, self.total = counts, sum(counts.values())

    def to_json(self) -> list[dict[str, Any]]:
        """Lists the kinds, the most frequent first."""
        kinds = sorted(self.counts.items(), key=lambda each: (-each[1], str(each[0])))
        return [{"count": count, **kind.to_json()} for kind, count in kinds]

    @classmethod
    def from_json(cls, data: Iterable[Mapping[str, Any]]) -> SeenPods:
        """Reads what `to_json` wrote; BadInput if anything in it is not valid."""
        counts = {PodKind.from_json(each): _whole_number(each.get("count", 0)) for each in data}
        seen = cls({kind: count for kind, count in counts.items() if count}, sum(counts.values()))
        seen._bound()
        return seen


@lru_cache(maxsize=4096)
def pod_kinds(demands: tuple[Demand, ...], cpu: int, memory: int) -> tuple[PodKind, ...]:
    """Returns the kinds as which a pod counts: one for each of its demands. Pods that are alike share them:
    there may be 100,000.
    """
    parts = len(demands) or 1
    return tuple(
        PodKind(demand and _anywhere(demand), cpu // parts, memory // parts) for demand in demands or (None,)
    )


def _anywhere(demand: Demand) -> Demand:
    """Drops what says nothing about those who come: single GPUs, compute, the policy."""
    named = {model for model in demand.models if len(model) <= LONGEST_MODEL}
    models = tuple(sorted(named))[:MOST_MODELS]
    return replace(demand, placement="frag", uuids=(), compute=None, models=models)


def _whole_number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadInput(f"pods seen: {value!r} is not a whole number of at least 0")
    return value

"""Describes what a demand was granted: GPUs, with bytes and percent of compute on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Share:
    """A grant's part of one GPU."""

    uuid: str
    memory: int
    compute: int | None = None
    """Percent of the GPU's compute; None if it was not asked for."""
    whole: bool = False
    """The GPU is not shared; memory is then all that the GPU had when it was granted."""

    def __post_init__(self) -> None:
        if self.memory < 0 or (self.memory == 0 and not self.whole):
            raise ValueError(f"a share of {self.memory} bytes of {self.uuid}")
        if self.compute is not None and not 1 <= self.compute <= 100:
            raise ValueError(f"a share of {self.compute}% of the compute of {self.uuid}")

    def to_json(self) -> dict[str, Any]:
        return {"uuid": self.uuid, "memory": self.memory, "compute": self.compute, "whole": self.whole}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Share:
        return cls(data["uuid"], data["memory"], data.get("compute"), data.get("whole", False))


@dataclass(frozen=True, slots=True)
class Grant:
    """The shares of one demand, charged and released together under one id."""

    id: str
    shares: tuple[Share, ...]

    def __post_init__(self) -> None:
        if not self.id or not self.shares:
            raise ValueError("a grant needs an id and at least one share")
        if len({share.uuid for share in self.shares}) != len(self.shares):
            raise ValueError(f"grant {self.id} names a GPU twice")

    @property
    def memory(self) -> int:
        """Bytes on all its GPUs."""
        return sum(share.memory for share in self.shares)

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "shares": [share.to_json() for share in self.shares]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Grant:
        return cls(data["id"], tuple(Share.from_json(share) for share in data["shares"]))

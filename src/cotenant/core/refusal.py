"""Explains why a demand is not served: values whose `str()` is a sentence for people.

A refusal is `never` if no released grant can help: that is bad input. Demands with other refusals wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.units import format_apart, format_bytes


class Refusal:
    """Base class of the reasons; `str()` is the sentence."""

    never: ClassVar[bool] = True


@dataclass(frozen=True)
class UnknownUUID(Refusal):
    uuid: str
    gpus: tuple[GPU, ...]

    def __str__(self) -> str:
        present = ", ".join(f"{gpu.uuid} ({gpu}, {gpu.model})" for gpu in self.gpus) or "none"
        return f"{self.uuid} asked, no such GPU is here: there is {present}"


@dataclass(frozen=True)
class UnknownModel(Refusal):
    models: tuple[str, ...]
    gpus: tuple[GPU, ...]

    def __str__(self) -> str:
        present = ", ".join(dict.fromkeys(gpu.model for gpu in self.gpus)) or "no GPU at all"
        return f"model {' or '.join(self.models)} asked, no such GPU is here: there is {present}"


@dataclass(frozen=True)
class TooFewCards(Refusal):
    demand: Demand
    cards: int
    """The number of GPUs that model and UUID allow."""

    def __str__(self) -> str:
        there = {0: "there is none", 1: "there is 1"}.get(self.cards, f"there are {self.cards}")
        match = " that match" if self.cards > 1 else " that matches"
        wished = match if self.demand.models or self.demand.uuids else ""
        ask = "" if self.cards == 0 else f": ask for {self.cards} or fewer"
        return f"{_cards(self.demand)} asked, {there}{wished}{ask}"


@dataclass(frozen=True)
class TooBig(Refusal):
    """It asks for more on one GPU than any GPU has."""

    demand: Demand
    largest: GPU
    over: int | None
    """The number of GPUs over which it would fit if it were spread."""

    def __str__(self) -> str:
        asked, has = format_apart(self.demand.per_card(self.largest.memory), self.largest.memory)
        remedy = f" or spread it over {self.over} GPUs with --gpus {self.over}" if self.over else ""
        wished = " that matches" if self.demand.models or self.demand.uuids else ""
        return (
            f"{_each(asked, self.demand)} asked, the largest GPU{wished} has {has} "
            f"({self.largest}, {self.largest.model}): ask for less{remedy}"
        )


@dataclass(frozen=True)
class TooFewBigCards(Refusal):
    """Some GPUs are large enough, but fewer than asked for."""

    demand: Demand
    large: tuple[GPU, ...]

    def __str__(self) -> str:
        asked = format_bytes(self.demand.per_card(self.large[0].memory))
        have = "1 GPU has" if len(self.large) == 1 else f"{len(self.large)} GPUs have"
        return (
            f"{_each(asked, self.demand)} asked, only {have} that much ({_names(self.large)}): ask for less"
        )


@dataclass(frozen=True)
class NoRoomNow(Refusal):
    """It would fit on these GPUs if others released what they hold."""

    never = False

    demand: Demand
    largest: GPU | None
    """The healthy GPU with the largest free room; None if all are unhealthy."""
    free: int
    enough: int
    """The number of GPUs that have room for it."""
    compute: tuple[int, GPU] | None = None
    """The most compute free on a GPU that has the memory, if only compute is missing."""
    held: tuple[tuple[GPU, str], ...] = ()
    """GPUs that have room, and the waiting demand that each is held for."""
    outside: tuple[tuple[GPU, int], ...] = ()
    """GPUs that cannot be granted whole only because processes outside Cotenant hold memory there."""
    sick: tuple[GPU, ...] = ()

    def __str__(self) -> str:
        return f"{self._asked()} asked, {self._found()}{self._sick()}"

    def _asked(self) -> str:
        if self.demand.memory is None:
            return _cards(self.demand)
        amount = _each(self._amounts()[0], self.demand)
        return f"{amount} and {self.demand.compute}% of the compute" if self.compute else amount

    def _found(self) -> str:
        if self.largest is None:
            return "no GPU that matches is healthy"
        if self.held:
            return ", ".join(f"{gpu} has room but is held for {id}" for gpu, id in self.held)
        if self.demand.memory is None:
            unused = {0: "none is", 1: "1 is"}.get(self.enough, f"{self.enough} are")
            return f"{unused} unused now{self._kept_outside()}"
        if self.compute:
            return f"at most {self.compute[0]}% is free beside that memory, on {self.compute[1]}"
        room = f"largest free room {self._amounts()[1]} on {self.largest}"
        if self.enough:
            return f"only {self.enough} GPU{'s have' if self.enough > 1 else ' has'} that much free, {room}"
        return room

    def _amounts(self) -> tuple[str, str]:
        """Formats what is asked and the largest room, in the terms of the demand."""
        if self.demand.memory is None or self.demand.memory.percent is None:
            return format_apart(self.demand.per_card(0), self.free)
        size = self.largest.memory if self.largest else 0
        return f"{self.demand.memory} of a GPU", f"{format_bytes(self.free)} of {format_bytes(size)}"

    def _kept_outside(self) -> str:
        each = ", ".join(f"{format_bytes(size)} of {gpu}" for gpu, size in self.outside)
        return f" (processes outside Cotenant hold {each}: ask for memory with --gpu-memory)" if each else ""

    def _sick(self) -> str:
        if not self.sick or self.largest is None:
            return ""
        return f" ({_names(self.sick)} {'is' if len(self.sick) == 1 else 'are'} sick)"


@dataclass(frozen=True)
class OverCap(Refusal):
    """There is room, but its owner has as much as one owner may have."""

    never = False

    text: str

    def __str__(self) -> str:
        return self.text


def waiting(refusal: Refusal, place: int) -> str:
    """Formats the message to a person who waits."""
    return f"{refusal}: waiting, {ordinal(place)} in line"


def ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number % 100 in (11, 12, 13) else endings.get(number % 10, 'th')}"


def _each(amount: str, demand: Demand) -> str:
    return amount if demand.count == 1 else f"{amount} on each of {demand.count} GPUs"


def _cards(demand: Demand) -> str:
    kind = "whole GPU" if demand.memory is None else "GPU"
    return f"{demand.count} {kind}{'s' if demand.count != 1 else ''}"


def _names(gpus: Sequence[GPU]) -> str:
    return f"GPU {', '.join(str(gpu.index) for gpu in gpus)}"

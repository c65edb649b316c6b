"""Why a demand is not served, as values that say so to a person.

A refusal is `never` when nothing that ends or is given back can help: that is bad input. The others wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.units import format_apart, format_bytes


class Refusal:
    """Base of the reasons; `str()` is the sentence."""

    never: ClassVar[bool] = True


@dataclass(frozen=True)
class UnknownUUID(Refusal):
    uuid: str
    gpus: tuple[GPU, ...]

    def __str__(self) -> str:
        present = ", ".join(f"{gpu.uuid} ({gpu}, {gpu.model})" for gpu in self.gpus) or "none"
        return f"{self.uuid} asked, no such card is here: there is {present}"


@dataclass(frozen=True)
class UnknownModel(Refusal):
    models: tuple[str, ...]
    gpus: tuple[GPU, ...]

    def __str__(self) -> str:
        present = ", ".join(dict.fromkeys(gpu.model for gpu in self.gpus)) or "no card at all"
        return f"model {' or '.join(self.models)} asked, no such card is here: there is {present}"


@dataclass(frozen=True)
class TooFewCards(Refusal):
    demand: Demand
    cards: int
    """How many cards its wishes allow."""

    def __str__(self) -> str:
        there = {0: "there is none", 1: "there is 1"}.get(self.cards, f"there are {self.cards}")
        wished = " that will do" if self.demand.models or self.demand.uuids else ""
        ask = "" if self.cards == 0 else f": ask for {self.cards} or fewer"
        return f"{_cards(self.demand)} asked, {there}{wished}{ask}"


@dataclass(frozen=True)
class TooBig(Refusal):
    """More on a card than any of the cards has in all."""

    demand: Demand
    largest: GPU
    over: int | None
    """Over how many cards it would fit if it were spread."""

    def __str__(self) -> str:
        asked, has = format_apart(self.demand.per_card(self.largest.memory), self.largest.memory)
        remedy = f" or spread it over {self.over} cards with --gpus {self.over}" if self.over else ""
        wished = " that will do" if self.demand.models or self.demand.uuids else ""
        return (
            f"{_each(asked, self.demand)} asked, the largest card{wished} has {has} "
            f"({self.largest}, {self.largest.model}): ask for less{remedy}"
        )


@dataclass(frozen=True)
class TooFewBigCards(Refusal):
    """Some cards are large enough, but fewer than asked for."""

    demand: Demand
    large: tuple[GPU, ...]

    def __str__(self) -> str:
        asked = format_bytes(self.demand.per_card(self.large[0].memory))
        have = "1 card has" if len(self.large) == 1 else f"{len(self.large)} cards have"
        return (
            f"{_each(asked, self.demand)} asked, only {have} that much ({_names(self.large)}): ask for less"
        )


@dataclass(frozen=True)
class NoRoomNow(Refusal):
    """It would fit on these cards if others gave back what they hold."""

    never = False

    demand: Demand
    largest: GPU | None
    """The card with the largest free room of those that take new grants; None if all of them are sick."""
    free: int
    enough: int
    """How many cards have room for it."""
    compute: tuple[int, GPU] | None = None
    """The most compute free on a card that has the memory, if it is compute that is missing."""
    held: tuple[tuple[GPU, str], ...] = ()
    """Cards that have the room, and the waiting demand that each is held for."""
    outside: tuple[tuple[GPU, int], ...] = ()
    """Cards that only processes outside Cotenant keep from being granted whole."""
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
            return "no card that will do is healthy"
        if self.held:
            return ", ".join(f"{gpu} has room but is held for {id}" for gpu, id in self.held)
        if self.demand.memory is None:
            unused = {0: "none is", 1: "1 is"}.get(self.enough, f"{self.enough} are")
            return f"{unused} unused now{self._kept_outside()}"
        if self.compute:
            return f"at most {self.compute[0]}% is free beside that memory, on {self.compute[1]}"
        room = f"largest free room {self._amounts()[1]} on {self.largest}"
        if self.enough:
            return f"only {self.enough} card{'s have' if self.enough > 1 else ' has'} that much free, {room}"
        return room

    def _amounts(self) -> tuple[str, str]:
        """What is asked and the largest room, in the terms of the demand."""
        if self.demand.memory is None or self.demand.memory.percent is None:
            return format_apart(self.demand.per_card(0), self.free)
        size = self.largest.memory if self.largest else 0
        return f"{self.demand.memory} of a card", f"{format_bytes(self.free)} of {format_bytes(size)}"

    def _kept_outside(self) -> str:
        each = ", ".join(f"{format_bytes(size)} of {gpu}" for gpu, size in self.outside)
        return f" (processes outside Cotenant hold {each}: ask for memory with --gpu-memory)" if each else ""

    def _sick(self) -> str:
        if not self.sick or self.largest is None:
            return ""
        return f" ({_names(self.sick)} {'is' if len(self.sick) == 1 else 'are'} sick)"


def waiting(refusal: Refusal, place: int) -> str:
    """What a person who waits is told."""
    return f"{refusal}: waiting, {ordinal(place)} in line"


def ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number % 100 in (11, 12, 13) else endings.get(number % 10, 'th')}"


def _each(amount: str, demand: Demand) -> str:
    return amount if demand.count == 1 else f"{amount} on each of {demand.count} cards"


def _cards(demand: Demand) -> str:
    kind = "whole card" if demand.memory is None else "card"
    return f"{demand.count} {kind}{'s' if demand.count != 1 else ''}"


def _names(gpus: Sequence[GPU]) -> str:
    return f"GPU {', '.join(str(gpu.index) for gpu in gpus)}"

"""Decides what one process of a grant may hold, and how that is told to a framework."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from .amounts import show
from .errors import BadValue, ShareError
from .grant import Card, Grant
from .settings import Settings

MOST_PROCESSES = 1024
"""As many as a slot has entries for."""
_STEPS = 10000
"""A fraction has four decimals, rounded down: the parts never make more than the whole."""


@dataclass(frozen=True)
class Share:
    """The part of a grant that one of several equal processes may use, on each of the grant's cards."""

    grant: Grant
    processes: int = 1
    factor: float = 1.0
    """The part of it that is used; the rest is for what the framework's allocator does not know of."""

    def __post_init__(self) -> None:
        if not isinstance(self.processes, int) or not 1 <= self.processes <= MOST_PROCESSES:
            raise BadValue(f"processes: {self.processes!r} is not a number from 1 to {MOST_PROCESSES}")
        if not 0 < self.factor <= 1:
            raise BadValue(f"factor: {self.factor!r} is not above 0 and at most 1")
        if self.needed and any(self._is_too_small(card) for card in self.grant.cards):
            raise ShareError(self._too_small())

    @property
    def needed(self) -> bool:
        """Whether a framework has to be told. Not if one process has the card for itself, or sees the grant
        as the card's size: a fraction of that would be too little.
        """
        alone = self.grant.enforced or all(card.whole for card in self.grant.cards)
        return self.processes > 1 or not alone

    @property
    def limit(self) -> int:
        """Bytes that all processes of the grant may hold on a card, contexts included. The smallest, if its
        cards differ.
        """
        if not all(card.limit for card in self.grant.cards):
            raise ShareError(f"{self.grant.source}: nothing here says how large a card is")
        return min(card.limit for card in self.grant.cards)

    @property
    def usable(self) -> int:
        """Bytes for the framework's allocator: the limit divided by the processes, less a CUDA context."""
        return min(self._usable(card) for card in self.grant.cards) if self.limit else 0

    @property
    def fraction(self) -> float:
        """`usable` as a part of the card that this process sees; 1.0 if nothing has to be set."""
        if not self.needed:
            return 1.0
        return min(self._fraction(card) for card in self.grant.cards)

    @property
    def reason(self) -> str:
        """Why something has to be set or not, for people."""
        grant = self.grant
        if not self.needed and grant.enforced:
            return (
                f"the shim holds this process to its grant and shows {show(self.limit)} as the card's size: "
                "a fraction on top would shrink it twice"
            )
        if not self.needed:
            return "it has the whole card"
        if grant.enforced:
            return f"{self.processes} processes share the {show(self.limit)} that the shim shows as the card"
        if not grant.mode:
            return "nothing holds programs to their share here: they have to keep it themselves"
        if not grant.shim:
            return "the shim is not loaded into this process, so nothing holds it to its grant"
        return f"mode {grant.mode}: the shim refuses nothing, and programs see the card's true size"

    def settings(self, framework: str, environ: Mapping[str, str] | None = None) -> Settings:
        """Returns the settings of a framework, such as `pytorch`. `environ` is what they are added to."""
        from .registry import settings_of

        return settings_of(framework, self, os.environ if environ is None else environ)

    def environment(self, framework: str, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Returns the variables to set before the program starts: empty if none is needed, or if none
        suffices and `settings` has arguments or a line of code instead.
        """
        return self.settings(framework, environ).environment

    def _usable(self, card: Card) -> int:
        return max(0, int((card.limit // self.processes - card.context) * self.factor))

    def _seen(self, card: Card) -> int | None:
        return card.limit if self.grant.enforced else card.size

    def _fraction(self, card: Card) -> float:
        seen = self._seen(card)
        if not seen:
            why = self.grant.unread or "nothing here says it"
            raise ShareError(
                f"the size of the card is not known ({why}), so no fraction of it can be computed: take a "
                f"setting in bytes, {show(self.usable)} are usable"
            )
        return min(_STEPS, self._usable(card) * _STEPS // seen) / _STEPS

    def _is_too_small(self, card: Card) -> bool:
        """Whether a fraction or a size would be 0, which some frameworks take for no limit at all."""
        seen = self._seen(card)
        return bool(card.limit) and self._usable(card) < (seen or _STEPS) / _STEPS

    def _too_small(self) -> str:
        context = show(max(card.context for card in self.grant.cards))
        each = f"each of {self.processes} processes" if self.processes > 1 else "the process"
        return (
            f"{show(self.limit)} are granted: with a CUDA context of {context} nothing is left for {each}: "
            "ask for more, or start fewer processes"
        )

"""Describes a grant as a process finds it: how many bytes on which cards, and what holds it to them."""

from __future__ import annotations

from typing import NamedTuple


class Card(NamedTuple):
    """A card of the grant."""

    limit: int
    """Bytes that all processes of the grant may hold on it together, contexts included. 0 for a whole card
    whose size is not known.
    """
    size: int | None
    """Bytes of the card itself, or a little more; None if it cannot be read here."""
    context: int
    """Bytes that one CUDA context takes, or is counted with."""
    uuid: str = ""
    """Empty if the grant does not name the card."""
    whole: bool = False
    """The card is shared with nobody."""


class Grant(NamedTuple):
    """What a process was granted."""

    source: str
    """Where it was found, for people."""
    cards: tuple[Card, ...]
    mode: str = ""
    """`observe`, `warn` or `enforce`; empty where another system made the grant and nothing holds it."""
    shim: bool = False
    """Whether the shim is loaded into this process."""
    unread: str = ""
    """Why the size of a card cannot be read."""

    @property
    def enforced(self) -> bool:
        """Whether programs see cards as large as the grant. The shim shows them so in mode `enforce` only
        (csrc/shim/info.c); in the others it counts, and they see the true size.
        """
        return self.shim and self.mode == "enforce"

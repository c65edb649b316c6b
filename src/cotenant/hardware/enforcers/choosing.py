"""Chooses the strongest enforcer of memory that a node offers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from cotenant.hardware.enforcers.enforcer import Enforcer
from cotenant.hardware.enforcers.null import Null

STRENGTH = ("driver", "shim", "watch", "none")
"""Enforcers of memory by name, the strongest first: the driver cannot be bypassed, the shim can be by a
program that does not load it, `watch` reports what it sees a moment later.
"""


Wanted = Literal["auto", "driver", "shim", "watch", "none"]


class Choice(NamedTuple):
    enforcer: Enforcer
    reason: str
    """Why it can be used."""
    passed_over: dict[str, str]
    """Stronger ones by name, and why they cannot be used."""
    problem: str | None = None
    """Why the one that was asked for cannot be used. It is kept all the same: what it cannot do is said, and
    nothing weaker takes its place unnoticed.
    """


def choose(wanted: Wanted, offered: Sequence[Enforcer]) -> Choice:
    """Takes the one that is wanted, or the strongest for `auto`."""
    if wanted == "auto":
        return strongest(offered)
    enforcer = next((each for each in (*offered, Null()) if each.name == wanted), None)
    if enforcer is None:
        raise ValueError(f"{wanted}: this node is not built with that enforcer")
    found = enforcer.availability()
    problem = None if found.available else f"{wanted} is asked for and cannot be used: {found.reason}"
    return Choice(enforcer, found.reason, {}, problem)


def strongest(offered: Iterable[Enforcer]) -> Choice:
    """Picks the strongest available of the enforcers that are built for this node; the null one if none
    is.
    """
    passed_over: dict[str, str] = {}
    for enforcer in sorted(offered, key=lambda each: STRENGTH.index(each.name)):
        found = enforcer.availability()
        if found.available:
            return Choice(enforcer, found.reason, passed_over)
        passed_over[enforcer.name] = found.reason
    null = Null()
    return Choice(null, null.availability().reason, passed_over)

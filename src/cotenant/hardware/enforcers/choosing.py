"""Chooses the strongest enforcer of memory that a node offers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cotenant.hardware.enforcers.enforcer import Enforcer
from cotenant.hardware.enforcers.null import Null

STRENGTH = ("driver", "shim", "watch", "none")
"""Enforcers of memory by name, the strongest first: the driver cannot be bypassed, the shim can be by a
program that does not load it, `watch` reports what it sees a moment later.
"""


class Choice(NamedTuple):
    enforcer: Enforcer
    reason: str
    """Why it can be used."""
    passed_over: dict[str, str]
    """Stronger ones by name, and why they cannot be used."""


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

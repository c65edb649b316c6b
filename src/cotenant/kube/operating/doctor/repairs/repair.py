"""What a repair is, and what repairs have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from cotenant.core.errors import CotenantError
from cotenant.kube.api.client import Client
from cotenant.kube.api.patches import Guard
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import Finding

Repair = Callable[[Client, Facts, Finding], Awaitable[str]]
"""Says what it did."""


class NotRepaired(CotenantError):
    """It could not be done, or there is nothing left to do it to."""


def guard_of(found: Mapping[str, Any]) -> Guard:
    """Exactly this object in exactly this state."""
    return Guard(found["metadata"]["uid"], found["metadata"]["resourceVersion"])

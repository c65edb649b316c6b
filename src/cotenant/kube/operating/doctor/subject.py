"""Defines what a subject of the cluster's doctor consists of.

A repair neither terminates nor changes a pod of a user. It reads its object once more and writes guarded by
what it read. The next look shows whether it helped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from cotenant.core.checkup import Subject
from cotenant.core.finding import Finding
from cotenant.kube.api.client import Client
from cotenant.kube.api.patches import Guard
from cotenant.kube.operating.doctor.facts import Facts

Repair = Callable[[Client, Facts, Finding], Awaitable[str]]
"""Returns what it did."""
ClusterSubject = Subject[Facts, Repair]


def guard_of(found: Mapping[str, Any]) -> Guard:
    """Exactly this object in exactly this state."""
    return Guard(found["metadata"]["uid"], found["metadata"]["resourceVersion"])

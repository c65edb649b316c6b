"""Defines what a subject of the machine's doctor consists of."""

from __future__ import annotations

from collections.abc import Callable

from cotenant.core.checkup import Subject
from cotenant.local.doctor.facts import MachineFacts
from cotenant.local.machine import Machine

FIX = "run `cotenant doctor --fix`"

Repair = Callable[[Machine, str], str]
"""Takes the target of a finding. Returns what it did."""
MachineSubject = Subject[MachineFacts, Repair]

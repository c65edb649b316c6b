"""Rebuilds a damaged ledger from what is running."""

from __future__ import annotations

from pathlib import Path

from cotenant.local import line
from cotenant.local.machine import Machine


def rebuild(machine: Machine) -> Path | None:
    """Moves the damaged file aside, charges slots in use again, and returns the old file's new path. Waiting
    jobs rejoin the line themselves.
    """
    with machine.store.locked():
        aside = machine.store.set_aside()
    line.release_ended(machine)
    return aside

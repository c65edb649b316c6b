"""A new ledger in place of a damaged one, from what is running."""

from __future__ import annotations

from pathlib import Path

from cotenant.local import line
from cotenant.local.machine import Machine


def rebuild(machine: Machine) -> Path | None:
    """Where the old file lies now. Slots that live are charged again; those who wait come back to the line
    themselves.
    """
    with machine.store.locked():
        aside = machine.store.set_aside()
    line.settle(machine)
    return aside

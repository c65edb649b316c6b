"""Checks that no MPS control daemon of ours runs for nobody."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.core.checkup import NotRepaired
from cotenant.core.finding import WARNING, Finding, Kind
from cotenant.local import mps
from cotenant.local.doctor.facts import MachineFacts
from cotenant.local.doctor.subject import FIX, MachineSubject
from cotenant.local.machine import Machine

UNUSED = Kind("mps-unused", WARNING, "its server may hold GPU memory until the next `cotenant run` ends it")


def unused(facts: MachineFacts) -> Iterator[Finding]:
    if facts.unused_mps is not None:
        found = "the MPS control daemon of a `cotenant run --mps` that was killed still runs"
        yield UNUSED.at(str(facts.unused_mps), found, f"{FIX}: it ends the daemon", "stop-mps")


def stop(machine: Machine, _pipe: str) -> str:
    if not mps.stop_unused(machine.home, machine.store.jobs()):
        raise NotRepaired("a command uses it again")
    return "ended it"


SUBJECT = MachineSubject(checks=(unused,), repairs={"stop-mps": stop})

"""Lists the subjects of the machine's doctor and runs the checkup."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from cotenant.core.checkup import Checkup, NotRepaired, run_synchronously
from cotenant.core.finding import Finding, Outcome
from cotenant.local.doctor import access, gpus, ledger, mps, slots, system
from cotenant.local.doctor.facts import MachineFacts
from cotenant.local.doctor.gather import gather
from cotenant.local.doctor.libraries import System
from cotenant.local.doctor.subject import MachineSubject, Repair
from cotenant.local.machine import Machine

SUBJECTS: Sequence[MachineSubject] = (
    access.SUBJECT,
    ledger.SUBJECT,
    slots.SUBJECT,
    gpus.SUBJECT,
    mps.SUBJECT,
    system.SUBJECT,
)
"""In the order in which their findings are best repaired."""

SECOND_LOOK = 0.5
"""Seconds after which a finding must still be there: a job that is just starting has no slot yet."""


def check(
    machine: Machine, system: System, *, fix: bool, wait: Callable[[float], None] = time.sleep
) -> tuple[Outcome, ...]:
    async def look() -> MachineFacts:
        return gather(machine, system)

    async def repair(function: Repair, facts: MachineFacts, finding: Finding) -> str:
        if facts.locked_by is not None:  # a repair would wait for the lock without end
            raise NotRepaired(f"the ledger is locked by {facts.locked_by}")
        return function(machine, finding.target)

    async def sleep(seconds: float) -> None:
        wait(seconds)

    return run_synchronously(Checkup(SUBJECTS, look, repair, sleep, SECOND_LOOK).run(fix=fix))

"""Checks the ledger's file, and that the jobs in it still live."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.core.finding import ERROR, WARNING, Finding, Kind
from cotenant.core.units import format_bytes
from cotenant.local import line
from cotenant.local.doctor.facts import MachineFacts
from cotenant.local.doctor.subject import FIX, MachineSubject
from cotenant.local.machine import Machine
from cotenant.local.rebuild import rebuild

DAMAGED = Kind("ledger-damaged", ERROR, "nothing can start; what runs continues, with its limits")
UNUSABLE = Kind("ledger-unusable", ERROR, DAMAGED.means)
DEAD_OWNER = Kind(
    "dead-owner", WARNING, "its memory looks taken until the next command of Cotenant releases it"
)
DEAD_WAITER = Kind(
    "dead-waiter", WARNING, "GPUs may be kept free for it until the next command of Cotenant removes it"
)


def readable(facts: MachineFacts) -> Iterator[Finding]:
    if facts.ledger is None:
        return
    target, text = str(facts.home.ledger), facts.ledger.text
    if facts.ledger.damaged:
        do = f"{FIX}: it rebuilds the ledger from what is running, and keeps the old file"
        yield DAMAGED.at(target, text, do, "rebuild")
    else:
        yield UNUSABLE.at(target, text, "resolve the reason that is named here, then run doctor again")


def ended(facts: MachineFacts) -> Iterator[Finding]:
    for job in (row.job for row in facts.rows if not row.alive):
        if job.shares:
            size = format_bytes(job.grant.memory)
            found = f"{job.name} is charged with {size}, but none of its processes lives"
            yield DEAD_OWNER.at(job.id, found, f"{FIX}: it releases the grant", "release")
        else:
            found = f"{job.name} waits in line, but its process has ended"
            yield DEAD_WAITER.at(job.id, found, f"{FIX}: it removes the job from the line", "release")


def rebuild_ledger(machine: Machine, _ledger: str) -> str:
    aside = rebuild(machine)
    count = len(machine.store.jobs())
    kept = f"; the old one is {aside}" if aside else ""
    return f"rebuilt it with {count} running grant{'' if count == 1 else 's'}{kept}"


def release(machine: Machine, _id: str) -> str:
    line.release_ended(machine)
    return "removed it from the ledger"


SUBJECT = MachineSubject(checks=(readable, ended), repairs={"rebuild": rebuild_ledger, "release": release})

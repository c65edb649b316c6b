"""Checks the files and folders of local mode: permissions, the ledger's lock, and where the slots are."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from cotenant.core.finding import ERROR, WARNING, Finding, Kind
from cotenant.local.doctor.facts import MachineFacts
from cotenant.local.doctor.places import wanted_mode
from cotenant.local.doctor.subject import FIX, MachineSubject
from cotenant.local.machine import Machine

NOT_WRITABLE = Kind("not-writable", ERROR, "no grant can be charged or given back from here")
WRONG_MODE = Kind("wrong-mode", WARNING, "other users can change your grants")
LOCK_HELD = Kind(
    "lock-held", ERROR, "nothing can start, and nothing is given back, until it releases the lock"
)
SLOTS_ON_DISK = Kind(
    "slots-on-disk",
    WARNING,
    "each allocation may cause writes to a disk, and slots outlive a restart of the machine",
)


def permissions(facts: MachineFacts) -> Iterator[Finding]:
    for each in facts.access:
        if not each.writable:
            yield NOT_WRITABLE.at(
                str(each.path),
                f"you cannot write {each.path} (mode {each.mode:03o}, owner {each.owner})",
                "give it to the owner of the folder with chown (a past sudo may have made it), "
                "or name another folder in COTENANT_HOME",
            )
        elif each.mode != each.wanted:
            yield WRONG_MODE.at(
                str(each.path),
                f"{each.path} has mode {each.mode:03o} instead of {each.wanted:03o}",
                f"{FIX}: it sets the mode",
                "mode",
                means="not every user of this machine can write it" if facts.home.shared else None,
                severity=ERROR if facts.home.shared else None,
            )


def lock(facts: MachineFacts) -> Iterator[Finding]:
    if facts.locked_by is not None:
        yield LOCK_HELD.at(
            str(facts.home.lock),
            f"{facts.locked_by} does not release the ledger's lock",
            "look at that process: if it is stopped, run `kill -CONT` on it; if it hangs, terminate it (no "
            "grant is lost)",
        )


def filesystem(facts: MachineFacts) -> Iterator[Finding]:
    if facts.filesystem not in ("tmpfs", "ramfs"):
        slots = facts.home.slots
        do = "make /dev/shm a tmpfs that you can write; where users share a home, run `sudo cotenant setup`"
        yield SLOTS_ON_DISK.at(str(slots), f"{slots} is on {facts.filesystem}, not on tmpfs", do)


def set_mode(machine: Machine, target: str) -> str:
    path = Path(target)
    mode = wanted_mode(machine.home, path, stat.S_IMODE(path.stat().st_mode))
    path.chmod(mode)
    return f"set mode {mode:03o}"


SUBJECT = MachineSubject(checks=(permissions, lock, filesystem), repairs={"mode": set_mode})

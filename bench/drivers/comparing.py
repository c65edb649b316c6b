"""Compares two runs of a probe, without and with the shim.

Every answer must be the same. For lookups of functions, "the same" is: with the shim the answer is the shim's
function of the name that the driver has at the address of the other answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

OURS = frozenset({"COTENANT_SLOT", "LD_PRELOAD"})
"""Variables by which the two runs differ on purpose."""
FORM = re.compile(r"(_v\d+)?(_ptsz|_ptds)?$")


@dataclass(frozen=True)
class Run:
    """What one run of a probe gave."""

    outcome: str
    """`ended`, `hang`, `signal 11`, or the last line of its errors."""
    headline: str = ""
    answers: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        return self.outcome == "ended"

    @property
    def brief(self) -> str:
        return self.headline if self.sound else self.outcome

    @staticmethod
    def of(found: dict[str, Any]) -> Run:
        return Run("ended", found["headline"], found["answers"], found["environment"])


def exports(library: Path) -> dict[str, int]:
    """Returns the functions that a library exports, and their addresses in it."""
    with library.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        return {
            symbol.name: symbol["st_value"]
            for symbol in table.iter_symbols()
            if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["type"] == "STT_FUNC"
        }


def base(name: str) -> str:
    """Returns the name as cuGetProcAddress takes it: without the form's version and stream."""
    return FORM.sub("", name)


def differences(plain: Run, shimmed: Run) -> list[str]:
    """Returns what differs; empty if nothing does."""
    if plain.outcome != shimmed.outcome:
        return [f"{plain.outcome} without, {shimmed.outcome} with"]
    found = [
        f"{what}: {before} without, {after} with"
        for what in sorted({*plain.answers, *shimmed.answers})
        if (before := plain.answers.get(what, "")) != (after := shimmed.answers.get(what, ""))
        if not (before.startswith("signal") and after.isdigit())  # a crash that the shim has made an error
    ]
    return found + list(_environment(plain, shimmed))


def _environment(plain: Run, shimmed: Run) -> Iterator[str]:
    for name in sorted({*plain.environment, *shimmed.environment} - OURS):
        before, after = plain.environment.get(name), shimmed.environment.get(name)
        if before != after:
            yield f"environment {name}: {before!r} without, {after!r} with"


def lookup_differences(
    plain: Run, shimmed: Run, driver: Mapping[str, int], shim: Mapping[str, int]
) -> list[str]:
    """Compares lookups by the function that they lead to. `driver` and `shim` are what each exports."""
    if not (plain.sound and shimmed.sound):
        return differences(plain, shimmed)
    names = {address: name for name, address in shim.items()}
    hooked = {(base(name), f"driver+{driver[name]:#x}"): name for name in shim if name in driver}
    found = []
    for what, before in plain.answers.items():
        after = shimmed.answers.get(what, "not asked")
        *codes, there = before.split(" ")
        *codes_after, here = after.split(" ")
        if codes != codes_after:
            found.append(f"{what}: {before} without, {after} with")
        elif here.startswith("shim+"):
            name = names.get(int(here[5:], 16), "a function of the shim without a name")
            if f"driver+{driver.get(name, -1):#x}" != there:
                found.append(f"{what}: {_named(there, driver)} without, the shim's {name} with")
        elif here != there:
            found.append(f"{what}: {_named(there, driver)} without, {_named(here, driver)} with")
        elif missed := hooked.get((base(what.split(" ")[1]), there)):
            found.append(f"{what}: {missed} passes the shim")
    return found + list(_environment(plain, shimmed))


def _named(place: str, driver: Mapping[str, int]) -> str:
    for name, address in driver.items():
        if place == f"driver+{address:#x}":
            return name
    return place

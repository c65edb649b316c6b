"""Adds the workloads of a file to those that are up, and takes them away again."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from cotenant.core.errors import BadInput, CotenantError
from cotenant.core.placement import impossible
from cotenant.local import line, nested, program
from cotenant.local.job import Job
from cotenant.local.machine import Machine
from cotenant.local.scalers.file import Declared
from cotenant.local.scalers.folder import ScalerFolder


def check(machine: Machine, workloads: Sequence[Declared], environ: Mapping[str, str]) -> None:
    """Raises BadInput for what could never run here: a program that is not there, more than the GPUs have."""
    outer = nested.enclosing(machine, environ)
    if outer is not None:
        raise BadInput(
            f"cotenant up: it is called in the grant of {outer.name}, and its replicas would share that one: "
            "call it outside of it"
        )
    jobs = machine.store.jobs()
    sight = line.read_gpus(machine, jobs, machine.store.cards())
    ledger, problems = sight.ledger(jobs), list[str]()
    for each in workloads:
        where, spec = f"{each.file}: workloads.{each.name}", each.spec
        folder = each.file.parent / (spec.working_directory or ".")
        if not folder.is_dir():
            problems.append(f"{where}.workingDirectory: {folder} is no folder: create it, or name another")
        demand = spec.demand.with_uuids_of(reading.gpu for reading in sight.readings)
        never = impossible(ledger, demand)
        if never is not None:
            problems.append(f"{where}.{'whole' if spec.gpu_memory is None else 'gpuMemory'}: {never}")
        commands = {"command": spec.command}
        if spec.ready is not None and spec.ready.command is not None:
            commands["ready.command"] = spec.ready.command
        for field, words in commands.items():
            try:
                program.find(_program(words[0], folder), {**environ, **spec.environment})
            except CotenantError as error:
                problems.append(f"{where}.{field}: {error}")
    if problems:
        raise BadInput("\n".join(problems))


def bring_up(folder: ScalerFolder, file: Path, workloads: Sequence[Declared]) -> list[str]:
    """Declares the workloads of a file in place of those that it declared before; returns the names of those
    that it no longer has.
    """
    names, gone = {each.name for each in workloads}, list[str]()
    own = Path(os.path.abspath(file))

    def change(former: list[Declared]) -> list[Declared]:
        for each in former:
            if each.name in names and each.file != own:
                raise BadInput(
                    f"{file}: workloads.{each.name}: a workload of this name is up already, from "
                    f"{each.file}: take another name, or `cotenant down {each.name}` first"
                )
        gone[:] = [each.name for each in former if each.file == own and each.name not in names]
        return [*(each for each in former if each.file != own), *workloads]

    folder.change_declared(change)
    return gone


def take_down(folder: ScalerFolder, words: Collection[str], jobs: Iterable[Job]) -> list[str]:
    """Takes workloads away, by name or by their file; all without words. Returns the names."""
    gone, left = list[str](), folder.up(jobs)

    def change(former: list[Declared]) -> list[Declared]:
        known = left | {each.name for each in former}
        chosen = set() if words else known
        for word in words:
            of_file = {each.name for each in former if str(each.file) == os.path.abspath(word)}
            if word not in known and not of_file:
                there = ", ".join(sorted(known)) or "nothing"
                raise BadInput(f"no workload {word!a} is up: there is {there}")
            chosen |= of_file or {word}
        gone[:] = sorted(chosen)
        return [each for each in former if each.name not in chosen]

    folder.change_declared(change)
    return gone


def _program(word: str, folder: Path) -> str:
    """A path with a slash is relative to the folder in which the command runs."""
    return str(folder / word) if "/" in word else word

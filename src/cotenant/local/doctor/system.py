"""Checks what the machine must have: the driver, the shim, a suitable libc, and no conflicting preloads."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.core.finding import ERROR, WARNING, Finding, Kind
from cotenant.hardware.enforcers.shim import LIBRARY
from cotenant.local.doctor.facts import MachineFacts
from cotenant.local.doctor.libraries import CUDA, NVML
from cotenant.local.doctor.subject import MachineSubject

NO_NVML = Kind("no-nvml", ERROR, "the GPUs cannot be read, so nothing can be granted")
NO_DRIVER = Kind("no-driver", ERROR, "there is nothing to grant")
NO_CUDA = Kind("no-cuda", ERROR, "programs cannot use the GPUs")
SHIM_UNUSABLE = Kind("shim-unusable", ERROR, "no limit holds")
MUSL = Kind(
    "musl", ERROR, "the shim cannot be loaded into such programs: their limits are watched, not enforced"
)
PRELOAD_CONFLICT = Kind(
    "preload-conflict", WARNING, "programs may be counted twice, exceed their limit, or not start at all"
)


def driver(facts: MachineFacts) -> Iterator[Finding]:
    libraries = {library.name: library for library in facts.system.libraries}
    cuda, nvml = libraries.get(CUDA), libraries.get(NVML)
    has_driver = facts.system.driver_loaded or (cuda is not None and cuda.problem is None)
    if nvml is not None and nvml.problem and has_driver:
        yield NO_NVML.at(
            NVML,
            f"there is a driver, but {NVML}: {nvml.problem}",
            "install the part of the driver that has NVML (libnvidia-ml1, nvidia-utils); Jetson has none",
        )
    elif facts.driver is not None:
        do = "install or load NVIDIA's driver; after an update of the driver, restart the machine"
        yield NO_DRIVER.at(NVML, facts.driver, do)
    if cuda is not None and cuda.problem and (has_driver or facts.driver is None):
        do = "install the part of the driver that has it (libcuda1), or run ldconfig"
        yield NO_CUDA.at(CUDA, f"{CUDA}: {cuda.problem}", do)


def shim(facts: MachineFacts) -> Iterator[Finding]:
    for library in facts.system.libraries:
        if library.name == LIBRARY and library.problem:
            do = "install Cotenant again for this machine: in the source tree, pipx install --force ."
            yield SHIM_UNUSABLE.at(LIBRARY, library.problem, do)


def musl(facts: MachineFacts) -> Iterator[Finding]:
    if facts.system.musl is not None:
        do = "use a system or an image with glibc (Debian, Ubuntu, Fedora, ...; not Alpine)"
        yield MUSL.at("libc", facts.system.musl, do)


def preloads(facts: MachineFacts) -> Iterator[Finding]:
    for each in facts.system.preloads:
        found = f"{each.path}, named in {each.named_in}, {each.problem}"
        yield PRELOAD_CONFLICT.at(each.path, found, f"remove it from {each.named_in}")


SUBJECT = MachineSubject(checks=(driver, shim, musl, preloads))

"""What is missing on the machine, or in the way: pure."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.hardware.enforcers.shim import LIBRARY
from cotenant.local.doctor.examination import Facts
from cotenant.local.doctor.finding import ERROR, WARNING, Finding
from cotenant.local.doctor.system import CUDA, NVML


def filesystem(facts: Facts) -> Iterator[Finding]:
    if facts.filesystem not in ("tmpfs", "ramfs"):
        yield Finding(
            "slots-on-disk",
            str(facts.home.slots),
            WARNING,
            f"{facts.home.slots} is on {facts.filesystem}, not on tmpfs",
            "each allocation may cause writes to a disk, and slots outlive a restart of the machine",
            "let /dev/shm be a tmpfs that you may write; for a folder of all users run `sudo cotenant setup`",
        )


def driver(facts: Facts) -> Iterator[Finding]:
    libraries = {library.name: library for library in facts.system.libraries}
    cuda, nvml = libraries.get(CUDA), libraries.get(NVML)
    has_driver = facts.system.driver_loaded or (cuda is not None and cuda.problem is None)
    if nvml is not None and nvml.problem and has_driver:
        yield Finding(
            "no-nvml",
            NVML,
            ERROR,
            f"there is a driver, but {NVML}: {nvml.problem}",
            "the cards cannot be seen, so nothing can be granted",
            "install the part of the driver that has NVML (libnvidia-ml1, nvidia-utils); Jetson has none",
        )
    elif facts.driver is not None:
        yield Finding(
            "no-driver",
            NVML,
            ERROR,
            facts.driver,
            "there is nothing to grant",
            "install or load NVIDIA's driver; after an update of it, restart the machine",
        )
    if cuda is not None and cuda.problem and (has_driver or facts.driver is None):
        yield Finding(
            "no-cuda",
            CUDA,
            ERROR,
            f"{CUDA}: {cuda.problem}",
            "programs cannot use the cards",
            "install the part of the driver that has it (libcuda1), or run ldconfig",
        )


def shim(facts: Facts) -> Iterator[Finding]:
    for library in facts.system.libraries:
        if library.name == LIBRARY and library.problem:
            yield Finding(
                "shim-unusable",
                LIBRARY,
                ERROR,
                library.problem,
                "no limit holds",
                "install Cotenant anew for this machine (pip install --force-reinstall cotenant)",
            )


def musl(facts: Facts) -> Iterator[Finding]:
    if facts.system.musl is not None:
        yield Finding(
            "musl",
            "libc",
            ERROR,
            facts.system.musl,
            "the shim cannot be loaded into such programs: their limits are watched, not enforced",
            "use a system or an image with glibc (Debian, Ubuntu, Fedora, ...; not Alpine)",
        )


def preloads(facts: Facts) -> Iterator[Finding]:
    for each in facts.system.preloads:
        yield Finding(
            "preload-conflict",
            each.path,
            WARNING,
            f"{each.path}, named in {each.named_in}, {each.problem}",
            "programs may be counted twice, past the limit, or not start at all",
            f"take it out of {each.named_in}",
        )

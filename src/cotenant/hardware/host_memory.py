"""Reads the host's memory, which is also the GPU's where both share one (GB10, DGX Spark, Jetson)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

MEMINFO = Path("/proc/meminfo")


class HostMemory(NamedTuple):
    """Bytes, as the kernel counts them."""

    total: int
    available: int
    """What programs can still get without swapping."""


def read_host_memory(file: Path = MEMINFO) -> HostMemory:
    figures = {}
    for line in file.read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(":")
        figures[name] = int(rest.split()[0]) * 1024 if rest.endswith(" kB") else 0
    total = figures["MemTotal"]
    return HostMemory(total, min(total, figures.get("MemAvailable", figures.get("MemFree", total))))

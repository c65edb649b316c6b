"""What a container finds of its slot: mounts and environment, the same for every container of a device.

The kubelet writes this down and uses it again whenever the container restarts, for years: nothing in it may
depend on a version, a pod or a card.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cotenant.hardware.standin import driver as standin
from cotenant.kube.agent.slots.installing import PRELOAD, SHIM

IN_CONTAINER = Path("/run/cotenant")
SHIM_IN_CONTAINER = IN_CONTAINER / SHIM


class Mount(NamedTuple):
    container: Path
    host: Path
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Simulation:
    """Simulated cards: the stand-in driver takes the place of what NVIDIA's container runtime brings."""

    state: Path
    """The stand-in's shared file, on the host."""
    libraries: Path
    """The folder of its libcuda and libnvidia-ml, on the host."""


@dataclass(frozen=True, slots=True)
class Allocation:
    mounts: tuple[Mount, ...]
    environment: dict[str, str]


def allocation(root: Path, folder: Path, simulation: Simulation | None) -> Allocation:
    """`folder` is the slot's, `root` has the shim. `usage` is mounted writable over the read-only folder."""
    mounts = (
        Mount(IN_CONTAINER / "slot", folder),
        Mount(IN_CONTAINER / "slot" / "usage", folder / "usage", read_only=False),
        Mount(SHIM_IN_CONTAINER, root / SHIM),
        Mount(Path("/etc") / PRELOAD, root / PRELOAD),
    )
    if simulation is None:
        return Allocation(mounts, {})
    libraries, state = IN_CONTAINER / "standin" / "lib", IN_CONTAINER / "standin" / "state"
    return Allocation(
        (*mounts, Mount(libraries, simulation.libraries), Mount(state, simulation.state, read_only=False)),
        {"LD_LIBRARY_PATH": str(libraries), standin.VARIABLE: str(state), standin.RUNTIME: "1"},
    )

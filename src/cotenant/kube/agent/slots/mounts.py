"""Composes what a container is started with: the mounts of the enforcers, and the stand-in driver's if it is
simulated.

The kubelet stores this and uses it again at every restart of the container, for years: nothing in it may
depend on a version, a pod or a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cotenant.hardware.enforcers.enforcer import Attachment, Enforcer, Mount
from cotenant.hardware.enforcers.shim import IN_CONTAINER
from cotenant.hardware.standin import driver as standin


@dataclass(frozen=True, slots=True)
class Simulation:
    """Simulated GPUs: the stand-in driver takes the place of what NVIDIA's container runtime mounts."""

    state: Path
    """The stand-in's shared file, on the host."""
    libraries: Path
    """The folder of its libcuda and libnvidia-ml, on the host."""


def allocation(
    enforcer: Enforcer, folder: Path, simulation: Simulation | None, compute: Attachment | None = None
) -> Attachment:
    """`folder` is the slot's; `compute` is what an enforcer of compute needs."""
    held = enforcer.container_attachment(folder)
    if compute is not None:
        held = Attachment((*held.mounts, *compute.mounts), {**held.environment, **compute.environment})
    if simulation is None:
        return held
    libraries, state = IN_CONTAINER / "standin" / "lib", IN_CONTAINER / "standin" / "state"
    return Attachment(
        (
            *held.mounts,
            Mount(libraries, simulation.libraries),
            Mount(state, simulation.state, read_only=False),
        ),
        {
            **held.environment,
            "LD_LIBRARY_PATH": str(libraries),
            standin.VARIABLE: str(state),
            standin.RUNTIME: "1",
        },
    )

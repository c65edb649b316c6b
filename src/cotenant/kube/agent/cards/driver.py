"""Chooses the GPUs that an agent works with: the node's own, or simulated ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cotenant.core.errors import CotenantError
from cotenant.hardware import libraries
from cotenant.hardware.nvml import Nvml
from cotenant.hardware.standin import driver as standin
from cotenant.kube.agent.settings import AgentSettings
from cotenant.kube.agent.slots.mounts import Simulation


@dataclass(frozen=True, slots=True)
class NodeCards:
    nvml: Callable[[], Nvml]
    """Opens NVML; each thread opens its own."""
    context_bytes: int
    """Size of one process's CUDA context on any of them."""
    simulation: Simulation | None = None


def cards_of(settings: AgentSettings) -> NodeCards:
    """Keeps simulated GPUs beside the slots: the same ones are there again after a restart."""
    if not settings.simulate:
        return NodeCards(Nvml, settings.context_memory)
    root = Path(settings.slots)
    state = root / "standin" / "state"
    try:
        state.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        described = standin.parse_description(settings.simulate)
        standin.create(state, described.cards, driver=described.driver)
    except CotenantError as error:
        raise CotenantError(f"agent.simulate: {error}") from None
    return NodeCards(
        lambda: Nvml(libraries.standin_nvml(), {standin.VARIABLE: str(state)}),
        standin.context_bytes(state),
        Simulation(state, _install_standin(root)),
    )


def _install_standin(root: Path) -> Path:
    """Places the stand-in driver's libraries where containers mount them, and returns their folder."""
    folder = root / "standin" / "lib"
    for library in libraries.standin_libraries():
        libraries.place(folder / library.name, library.read_bytes())
    return folder

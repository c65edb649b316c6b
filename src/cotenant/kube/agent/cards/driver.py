"""The cards that an agent works with: the node's own, or simulated ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cotenant.core.errors import CotenantError
from cotenant.hardware import libraries
from cotenant.hardware.nvml import Nvml
from cotenant.hardware.standin import driver as standin
from cotenant.kube.agent.settings import AgentSettings
from cotenant.kube.agent.slots.installing import install_standin
from cotenant.kube.agent.slots.mounts import Simulation


@dataclass(frozen=True, slots=True)
class NodeCards:
    nvml: Callable[[], Nvml]
    """A way to the driver of one's own; each thread takes one."""
    context_bytes: int
    """What one process's context takes on any of them."""
    simulation: Simulation | None = None


def cards_of(settings: AgentSettings) -> NodeCards:
    """Simulated cards are kept beside the slots: the same ones are there again after a restart."""
    if not settings.simulate:
        return NodeCards(Nvml, settings.context_memory)
    root = Path(settings.slots)
    state = root / "standin" / "state"
    try:
        state.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        standin.create(state, standin.parse_spec(settings.simulate))
    except CotenantError as error:
        raise CotenantError(f"agent.simulate: {error}") from None
    return NodeCards(
        lambda: Nvml(libraries.standin_nvml(), {standin.VARIABLE: str(state)}),
        standin.context_bytes(state),
        Simulation(state, install_standin(root)),
    )

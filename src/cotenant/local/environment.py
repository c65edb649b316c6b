"""Builds the environment in which a command finds its grant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cotenant.hardware.enforcers.shim import without_slot
from cotenant.local.job import Job

if TYPE_CHECKING:
    from cotenant.hardware.enforcers.enforcer import Enforcer

VISIBLE = "CUDA_VISIBLE_DEVICES"


def for_command(
    environ: Mapping[str, str], job: Job, enforcers: Sequence[Enforcer], cards: Mapping[str, str]
) -> dict[str, str]:
    """Adds slot, shim and visible GPUs. `cards` is what the command needs to find simulated GPUs."""
    own = without_slot(environ)
    own.update(cards)
    own[VISIBLE] = ",".join(share.uuid for share in job.shares)
    for enforcer in enforcers:
        own = enforcer.process_environment(job.slot, own)
    return own

"""The environment through which a command meets its grant."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cotenant.hardware.enforcers import mps
from cotenant.local.job import Job

SHIM = "libcotenant.so"


def without_grant(environ: Mapping[str, str]) -> dict[str, str]:
    """As it would be outside any grant: for a `cotenant` inside one."""
    kept = {name: value for name, value in environ.items() if name != "COTENANT_SLOT"}
    preloads = [entry for entry in _preloads(environ) if os.path.basename(entry) != SHIM]
    kept.pop("LD_PRELOAD", None)
    if preloads:
        kept["LD_PRELOAD"] = ":".join(preloads)
    return kept


def for_command(
    environ: Mapping[str, str], job: Job, shim: Path, cards: Mapping[str, str], *, preload: bool
) -> dict[str, str]:
    """The shim comes before what the user preloads, so that nothing allocates past it."""
    own = without_grant(environ)
    own.update(cards)
    own["CUDA_VISIBLE_DEVICES"] = ",".join(share.uuid for share in job.shares)
    own["COTENANT_SLOT"] = str(job.slot)
    if preload:
        own["LD_PRELOAD"] = ":".join([str(shim), *_preloads(own)])
    if job.compute == "mps" and job.demand.compute is not None:
        own.update(mps.environment(job.demand.compute))
    return own


def _preloads(environ: Mapping[str, str]) -> list[str]:
    """The loader takes blanks as well as colons between them."""
    return environ.get("LD_PRELOAD", "").replace(":", " ").split()

"""Limits what JAX allocates at the first operation: 75 % of the card unless it is told otherwise."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .errors import ShareError
from .settings import Settings
from .versions import installed

if TYPE_CHECKING:
    from .sharing import Share

VARIABLE = "XLA_CLIENT_MEM_FRACTION"
OLD_VARIABLE = "XLA_PYTHON_CLIENT_MEM_FRACTION"
"""Still read by later versions, which refuse to start with both."""
SINCE = (0, 4, 33)


def settings(share: Share, environ: Mapping[str, str], version: tuple[int, ...] | None = None) -> Settings:
    """Returns the variable under the name that this version reads."""
    if not share.needed:
        return Settings()
    version = version or installed("jaxlib")
    old = environ.get(OLD_VARIABLE) or (version is not None and version < SINCE)
    return Settings({OLD_VARIABLE if old else VARIABLE: str(share.fraction)})


def limit(processes: int = 1, *, factor: float = 1.0) -> Share:
    """Limits JAX in this process; called before `import jax`. Does nothing where nothing is needed."""
    from . import share

    found = share(processes, factor=factor)
    if found.needed:
        if "jax" in sys.modules:
            raise ShareError("JAX is imported already and may have read its variables: call this before")
        os.environ.update(settings(found, os.environ).environment)
    return found

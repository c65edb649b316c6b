"""Limits CuPy's default memory pool, in bytes: by a variable on every card, by a line on the current."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .settings import Settings

if TYPE_CHECKING:
    from .sharing import Share

VARIABLE = "CUPY_GPU_MEMORY_LIMIT"


def settings(share: Share, environ: Mapping[str, str]) -> Settings:
    """Returns the variable; CuPy reads it when it is imported."""
    del environ
    return Settings({VARIABLE: str(share.usable)}) if share.needed else Settings()


def limit(processes: int = 1, *, factor: float = 1.0) -> Share:
    """Limits CuPy's default pool in this process on the current card. Does nothing where nothing is needed.
    To select another card would create a context, which takes memory there.
    """
    from . import share

    found = share(processes, factor=factor)
    if found.needed:
        cupy: Any = importlib.import_module("cupy")
        cupy.get_default_memory_pool().set_limit(size=found.usable)
    return found

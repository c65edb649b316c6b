"""Limits PyTorch's caching allocator.

Since 2.10 it reads `per_process_memory_fraction` from its variable, for every card. Earlier versions fail at
the name, or ignore it: they need a line of code, which limits the current card. Libraries beside the
allocator (NCCL, cuBLAS) are not limited by either.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .settings import Settings
from .versions import installed

if TYPE_CHECKING:
    from .sharing import Share

VARIABLE = "PYTORCH_ALLOC_CONF"
CUDA_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
"""The older name. If it is set, even empty, PyTorch reads its CUDA options from it alone."""
KEY = "per_process_memory_fraction"
SINCE = (2, 10)

_EARLIER = re.compile(rf"(^|,)\s*{KEY}\s*:[^,]*")


def settings(share: Share, environ: Mapping[str, str], version: tuple[int, ...] | None = None) -> Settings:
    """Returns the variable, added to the options that it has, and the line of code for earlier versions."""
    if not share.needed:
        return Settings()
    code = f"torch.cuda.set_per_process_memory_fraction({share.fraction})"
    version = version or installed("torch")
    if version is not None and version < SINCE:
        return Settings(code=code, notes=("before PyTorch 2.10 there is no variable for it",))
    name = CUDA_VARIABLE if CUDA_VARIABLE in environ else VARIABLE
    present = _EARLIER.sub("", environ.get(name, "")).strip(",")
    value = f"{present},{KEY}:{share.fraction}".lstrip(",")
    notes = () if version else ("the variable is for PyTorch 2.10 and later, the line for earlier versions",)
    return Settings({name: value}, code=code, notes=notes)


def limit(processes: int = 1, *, factor: float = 1.0) -> Share:
    """Limits PyTorch in this process on the current card, so after `torch.cuda.set_device`. Does nothing
    where nothing is needed. On another card it would create a context, which takes memory there.
    """
    from . import share

    found = share(processes, factor=factor)
    if found.needed:
        torch: Any = importlib.import_module("torch")
        device = torch.cuda.current_device()
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, found.usable / total), device)
    return found

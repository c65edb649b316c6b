"""Limits the arena of ONNX Runtime's CUDA provider, which each session has for itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .errors import BadValue
from .settings import Settings

if TYPE_CHECKING:
    from .sharing import Share

PROVIDER = "CUDAExecutionProvider"
MOST_SESSIONS = 1024


def settings(share: Share, environ: Mapping[str, str]) -> Settings:
    """Returns the line that opens a session; there is no variable."""
    del environ
    if not share.needed:
        return Settings()
    return Settings(
        code=f"onnxruntime.InferenceSession(model, providers=[({PROVIDER!r}, {_options(share.usable)})])",
        notes=("each session has an arena of its own: divide by their number",),
    )


def provider(processes: int = 1, *, sessions: int = 1, factor: float = 1.0) -> tuple[str, dict[str, object]]:
    """Returns the CUDA provider with its options, for the list `providers` of a session. `sessions`: how many
    of this process are open at once. Without options where nothing is needed.
    """
    from . import share

    if not isinstance(sessions, int) or not 1 <= sessions <= MOST_SESSIONS:
        raise BadValue(f"sessions: {sessions!r} is not a number from 1 to {MOST_SESSIONS}")
    found = share(processes, factor=factor)
    if not found.needed:
        return PROVIDER, {}
    return PROVIDER, _options(found.usable // sessions)


def _options(size: int) -> dict[str, object]:
    """An arena that doubles would reserve nearly twice what it needs, up to the limit."""
    return {"gpu_mem_limit": size, "arena_extend_strategy": "kSameAsRequested"}

"""Limits a vLLM server, or each of several on one card.

`--gpu-memory-utilization` is a fraction of the card. It covers weights, activations and KV cache, and not the
CUDA context that exists before. At its start vLLM refuses to run if that fraction is not free.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .amounts import show
from .settings import Settings

if TYPE_CHECKING:
    from .sharing import Share

OPTION = "--gpu-memory-utilization"
DEFAULT = 0.92
"""Of vLLM 0.32; it was 0.9 in earlier versions."""
_HUNDREDTHS = 100


def settings(share: Share, environ: Mapping[str, str]) -> Settings:
    """Returns the argument. A single process under the shim needs it where the grant is small: the context is
    counted, so that less than vLLM's default is free at its start.
    """
    del environ
    if share.needed:
        return Settings(arguments=(OPTION, _rounded(share.fraction)))
    if not share.grant.enforced or share.usable >= DEFAULT * share.limit:
        return Settings()
    if not share.usable:
        return Settings(notes=(f"{show(share.limit)} do not hold a CUDA context",))
    note = f"vLLM's default of {DEFAULT} leaves no room for a CUDA context in {show(share.limit)}"
    return Settings(arguments=(OPTION, _rounded(share.usable / share.limit)), notes=(note,))


def arguments(processes: int = 1, *, factor: float = 1.0) -> tuple[str, ...]:
    """Returns what to add to `vllm serve`; empty where its default is right."""
    from . import share

    return share(processes, factor=factor).settings("vllm").arguments


def _rounded(fraction: float) -> str:
    """Rounds down to hundredths, which leaves a little for what CUDA libraries take before the check."""
    return str(int(fraction * _HUNDREDTHS) / _HUNDREDTHS or fraction)

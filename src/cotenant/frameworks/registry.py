"""Lists the frameworks. A new one is a file with a function `settings`, and a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import cupy, jax, onnxruntime, pytorch, tensorflow, triton, vllm
from .errors import BadValue
from .settings import Settings
from .sharing import Share

FRAMEWORKS: dict[str, Callable[[Share, Mapping[str, str]], Settings]] = {
    "pytorch": pytorch.settings,
    "tensorflow": tensorflow.settings,
    "jax": jax.settings,
    "cupy": cupy.settings,
    "onnxruntime": onnxruntime.settings,
    "vllm": vllm.settings,
    "triton": triton.settings,
}


def settings_of(framework: str, share: Share, environ: Mapping[str, str]) -> Settings:
    """Returns the settings of a framework; BadValue if there is none of that name."""
    if framework not in FRAMEWORKS:
        raise BadValue(f"framework: {framework[:40]!a} is not one of {', '.join(FRAMEWORKS)}")
    return FRAMEWORKS[framework](share, environ)

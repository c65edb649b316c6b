"""Limits the backends of Triton Inference Server, of which each has an option of its own.

No option holds the server as a whole: `--cuda-memory-pool-byte-size` is the pool for inputs and outputs only,
and `--model-load-gpu-limit` looks at the card's use, whoever it is by, and only when a model is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .settings import Settings

if TYPE_CHECKING:
    from .sharing import Share

_NOTE = (
    "the argument is for the TensorFlow backend, the line for config.pbtxt of a model of the ONNX Runtime "
    "backend; divide by the number of models and instances. For the PyTorch backend (2.10 and later) see "
    "`pytorch`; TensorRT takes what its engines need"
)


def settings(share: Share, environ: Mapping[str, str]) -> Settings:
    """Returns the TensorFlow backend's argument, and what a model of the ONNX Runtime backend needs."""
    del environ
    if not share.needed:
        return Settings()
    return Settings(
        arguments=(f"--backend-config=tensorflow,gpu-memory-fraction={share.fraction}",),
        code=f'parameters {{ key: "gpu_mem_limit" value: {{ string_value: "{share.usable}" }} }}',
        notes=(_NOTE,),
    )


def arguments(processes: int = 1, *, factor: float = 1.0) -> tuple[str, ...]:
    """Returns what to add to `tritonserver`; empty where nothing is needed."""
    from . import share

    return share(processes, factor=factor).settings("triton").arguments

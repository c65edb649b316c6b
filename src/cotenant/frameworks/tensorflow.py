"""Limits TensorFlow's allocator.

No variable sets an amount. `TF_FORCE_GPU_ALLOW_GROWTH` makes TensorFlow take memory as it needs it, instead
of nearly all at the start; a logical device holds it to an amount.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .settings import Settings

if TYPE_CHECKING:
    from .sharing import Share

GROWTH = "TF_FORCE_GPU_ALLOW_GROWTH"
_MIB = 1 << 20


def settings(share: Share, environ: Mapping[str, str]) -> Settings:
    """Returns the variable for growth, and the line that sets the amount."""
    del environ
    if not share.needed:
        return Settings()
    code = (
        'for gpu in tf.config.list_physical_devices("GPU"): tf.config.set_logical_device_configuration('
        f"gpu, [tf.config.LogicalDeviceConfiguration(memory_limit={share.usable // _MIB})])"
    )
    return Settings(
        {GROWTH: "true"},
        code=code,
        notes=("the variable alone sets no limit: the line does, before the first use of a GPU",),
    )


def limit(processes: int = 1, *, factor: float = 1.0) -> Share:
    """Limits TensorFlow in this process, before it uses a GPU. Does nothing where nothing is needed."""
    from . import share

    found = share(processes, factor=factor)
    if found.needed:
        tf: Any = importlib.import_module("tensorflow")
        device = tf.config.LogicalDeviceConfiguration(memory_limit=found.usable // _MIB)
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.set_logical_device_configuration(gpu, [device])
    return found

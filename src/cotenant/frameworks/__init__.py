"""Translates a grant into memory settings of PyTorch, TensorFlow, JAX, CuPy, ONNX Runtime, vLLM and Triton.

    from cotenant.frameworks import share

    share().usable                      bytes for the framework's own allocator in this process
    share().fraction                    the same as a part of the card that the process sees
    share().environment("jax")          {"XLA_CLIENT_MEM_FRACTION": "0.2187"}

    from cotenant.frameworks import pytorch
    pytorch.limit()                     one line at the top of a program

These settings are hints: each holds one allocator of one process. Where the shim enforces the grant nothing
is set, because the program sees a card as large as its grant, and a fraction of that would be too little.

The package needs nothing but Python 3.9 and its standard library. Its folder can be copied into an image
under any name. `python -m cotenant.frameworks` prints what it finds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from .errors import BadValue, NoGrant, ShareError
from .finding import find_grant
from .grant import Card, Grant
from .settings import Settings
from .sharing import Share

__all__ = ["BadValue", "Card", "Grant", "NoGrant", "Settings", "Share", "ShareError", "share"]


def share(processes: int = 1, *, factor: float = 1.0, environ: Mapping[str, str] | None = None) -> Share:
    """Computes what one of `processes` equal processes of this grant may hold on a card.

    `factor` leaves a part unused, for frameworks that hold more than their allocator knows of. NoGrant if
    this process has no grant; ShareError if there is not enough for so many processes.
    """
    return Share(find_grant(os.environ if environ is None else environ), processes, factor)

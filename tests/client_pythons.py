"""The Pythons of CUDA clients that cannot share one environment (scripts/clients.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = ("cuda-bindings", "pycuda")
"""Those in the environment of the tests."""


def python_of(client: str) -> str:
    """Returns the Python that has the client; skips the test if there is none for this machine."""
    if client in HERE:
        return sys.executable
    python = Path(sys.prefix) / "clients" / client / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{client} is not installed: python scripts/clients.py says why")
    return str(python)

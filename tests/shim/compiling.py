"""Compiles the small C programs and libraries that tests run with the shim."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def compiled(folder: Path, source: str, *flags: str, name: str = "program") -> Path:
    """Compiles C source for this machine's glibc; returns the path of what was made."""
    path = folder / f"{name}.c"
    path.write_text(source)
    out = folder / name
    subprocess.run([sys.executable, "-m", "ziglang", "cc", "-o", out, path, *flags, "-ldl"], check=True)
    return out


def library(folder: Path, source: str, *flags: str, name: str) -> Path:
    return compiled(folder, source, "-shared", "-fPIC", *flags, name=name)

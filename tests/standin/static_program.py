"""Builds the static program that takes memory of a simulated card."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("state.c", "shared.c", "groups.c", "runtime.c")


def build(folder: Path) -> Path:
    """A few seconds."""
    program = folder / "static_holder"
    standin = ROOT / "csrc" / "standin"
    files = [Path(__file__).parent / "programs" / "static_holder.c", *(standin / name for name in SOURCES)]
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        f"{platform.machine()}-linux-musl",
        "-static",
    ]
    command += ["-O1", "-s", f"-I{standin}", "-o", str(program), *map(str, files)]
    subprocess.run(command, check=True)
    return program

"""Compiles the C libraries into the package before hatchling builds the wheel.

The wheel runs on every Python 3 but only on one architecture, so its tag names the
platform (and glibc 2.17, the compiler's target) but no interpreter.
"""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeHook(BuildHookInterface):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        if self.target_name == "sdist":
            return
        root = Path(self.root)
        machine = platform.machine()
        out = root / "src" / "cotenant" / "native"
        subprocess.run(
            [sys.executable, root / "csrc" / "build.py", "--machine", machine, "--out", out], check=True
        )
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_2_17_{machine}"

"""Installs frameworks whose reading of our settings is tested, each into an environment of its own.

    python scripts/frameworks.py [FOLDER]

About 1.5 GB are fetched. The environments are in the folder `frameworks` of this one, or in FOLDER, which
COTENANT_FRAMEWORKS then names to the tests. Nothing else needs them: without them their tests are skipped.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from install import install as packages

FRAMEWORKS = {
    "cupy": "cupy-cuda12x",
    "jax": "jax",
    "onnxruntime": "onnxruntime-gpu",
    "tensorflow": "tensorflow",
}


def main(folder: Path) -> int:
    """Installs what is missing; returns how many could not be."""
    failed = 0
    for name, package in FRAMEWORKS.items():
        home = folder / name
        done = home / ".complete"
        if done.exists():
            continue
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", home], check=True)
        got = packages([package], str(home / "bin" / "python"))
        if got.returncode:
            failed += 1
            print(f"{name}: {got.stderr.strip()}", file=sys.stderr)
        else:
            done.touch()
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else Path(sys.prefix) / "frameworks"))

"""Installs CUDA clients that cannot share one environment, each into a virtual environment of its own.

    python scripts/clients.py

They are of different ages and find the driver in different ways, so that the stand-in and the shim are tried
by what people really run. The environments are in the folder `clients` of this one. A client without a wheel
for this Python is left out, and its tests are skipped with that reason.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from install import install as packages

CLIENTS = {
    # Its .pth file has each Python of its environment import much of the standard library: 40 ms a start.
    "numba-cuda": ("numba-cuda[cu13]==0.30.4",),
    "cuda4py": ("cuda4py==1.4.4",),  # 2016, cffi, opens libcuda.so
    "numba-0.60": ("numba==0.60.0",),  # the ctypes driver of numba, before numba-cuda
    "cuda-python-11.8": ("cuda-python==11.8.7",),
    "cuda-python-12.2": ("cuda-python==12.2.1",),
    "taichi": ("taichi==1.7.4",),  # C++, cuMemAllocAsync
    "drjit": ("drjit==1.5.0",),  # C++, caches what it has freed
    "tinygrad": ("tinygrad==0.14.0",),  # ctypes, finds the file itself
}
SOURCES = frozenset({"cuda4py"})
"""Clients that are Python only and have no wheel."""


def home(name: str) -> Path:
    return Path(sys.prefix) / "clients" / name


def install(name: str) -> str | None:
    """Installs a client; returns why not, where it has nothing for this Python."""
    done, wanted = home(name) / ".complete", "\n".join(CLIENTS[name])
    if done.exists() and done.read_text() == wanted:
        return None
    shutil.rmtree(home(name), ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home(name)], check=True)
    kind = [] if name in SOURCES else ["--only-binary", ":all:"]
    got = packages([*kind, *CLIENTS[name]], str(home(name) / "bin" / "python"))
    if got.returncode == 0:
        done.write_text(wanted)
        return None
    shutil.rmtree(home(name), ignore_errors=True)
    if "No matching distribution" in got.stderr or "no matching distributions" in got.stderr:
        return f"{name} has no wheel for this Python"
    raise SystemExit(f"{name} cannot be installed:\n{got.stderr}")


def main() -> None:
    for name in CLIENTS:
        if missing := install(name):
            print(missing)


if __name__ == "__main__":
    main()

"""Fetches libcudart and the frameworks with pip, each into a virtual environment of its own.

Indexes and proxies are those that pip is configured with on this machine.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.drivers.storage import GIB, CannotGet, check_room, folder

MIB = 1 << 20


@dataclass(frozen=True)
class Client:
    """A program that uses the driver, and the packages that it is made of."""

    name: str
    probe: str
    """The file in bench/drivers/probes that is run."""
    packages: tuple[str, ...] = ()
    size: int = 0
    """Bytes on disk, about."""
    seconds: int = 120
    """A run that takes longer hangs."""


CLIENTS = (
    Client("calls", "calls"),
    Client("lookups", "lookups"),
    Client("nvml", "nvml"),
    Client("cudart-11.8", "cudart", ("nvidia-cuda-runtime-cu11==11.8.*",), 16 * MIB),
    Client("cudart-12.9", "cudart", ("nvidia-cuda-runtime-cu12==12.9.*",), 16 * MIB),
    Client("cudart-13.4", "cudart", ("nvidia-cuda-runtime==13.4.*",), 16 * MIB),
    Client(
        "cupy",
        "use_cupy",
        ("cupy-cuda12x", "nvidia-cuda-runtime-cu12", "nvidia-cuda-nvrtc-cu12"),
        1 * GIB,
        300,
    ),
    Client("jax", "use_jax", ("jax[cuda12]",), 6 * GIB, 300),
    Client("tensorflow", "use_tensorflow", ("tensorflow[and-cuda]",), 6 * GIB, 300),
    Client("torch", "use_torch", ("torch",), 6 * GIB, 300),
)


def environment(client: Client) -> Path:
    """Returns the virtual environment of a client, and makes it where it is not there yet."""
    home = folder() / "clients" / client.name
    done = home / ".complete"
    wanted = "\n".join(client.packages)
    if done.exists() and done.read_text() == wanted:
        return home
    check_room(client.size)
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python(home))]
    got = subprocess.run(
        [*pip, "install", "--quiet", *client.packages], capture_output=True, text=True, check=False
    )
    if got.returncode:
        errors = [line for line in got.stderr.splitlines() if line.startswith("ERROR")]
        shutil.rmtree(home, ignore_errors=True)
        raise CannotGet((errors or got.stderr.strip().splitlines() or ["pip failed"])[0])
    done.write_text(wanted)
    return home


def python(home: Path) -> Path:
    return home / "bin" / "python"


def version(home: Path, client: Client) -> str:
    """Returns the version of the client's first package as pip installed it."""
    name = client.packages[0].split("[")[0].split("=")[0].replace("-", "_").lower()
    for found in home.glob("lib/python*/site-packages/*.dist-info"):
        package, _, number = found.name.removesuffix(".dist-info").rpartition("-")
        if package.lower() == name:
            return number
    return "?"

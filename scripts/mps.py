"""Fetches NVIDIA's MPS control daemon, which tests of MPS use: it starts on a machine without a GPU.

    python scripts/mps.py

What is on PATH is taken. Else it is Debian's package nvidia-cuda-mps of the component non-free, downloaded by
apt from this machine's mirrors and unpacked into ${XDG_CACHE_HOME:-~/.cache}/cotenant/mps, once. Its licence
forbids to pass it on: it is never committed. Where a machine cannot have it, a line says why, and the tests
are skipped with that reason.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.drivers.debian import Apt  # noqa: E402 -- from the source tree
from bench.drivers.storage import CannotGet  # noqa: E402

PACKAGE = "nvidia-cuda-mps"
PROGRAM = "nvidia-cuda-mps-control"


def folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "cotenant" / "mps"


def find() -> Path:
    """Returns the control daemon's program; CannotGet says why there is none."""
    unpacked = folder() / "usr" / "bin" / PROGRAM
    if unpacked.exists():
        return unpacked
    if path := shutil.which(PROGRAM):
        return Path(path)
    if (missing := folder() / ".missing").exists():
        raise CannotGet(missing.read_text())
    raise CannotGet(f"{PROGRAM} is not here: python scripts/mps.py fetches it")


def fetch() -> None:
    """Downloads and unpacks it, unless it is here; a machine that cannot have it keeps the reason."""
    here = folder()
    here.parent.mkdir(parents=True, exist_ok=True)
    with open(here.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not (here / "usr" / "bin" / PROGRAM).exists() and not shutil.which(PROGRAM):
            _fetch(here)


def _fetch(here: Path) -> None:
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    try:
        _download(here)
    except (CannotGet, OSError, subprocess.CalledProcessError) as error:
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir(parents=True)
        (here / ".missing").write_text(f"{PROGRAM} cannot be had on this machine: {error}")
        raise CannotGet((here / ".missing").read_text()) from None


def _download(here: Path) -> None:
    scratch = here / "scratch"
    scratch.mkdir()
    apt = Apt(scratch / "apt")
    apt.update()
    versions = [
        line.split("|")[1].strip()
        for line in apt.run("apt-cache", "madison", PACKAGE).stdout.splitlines()
        if line.count("|") == 2
    ]
    why = f"no suite of this machine's mirrors has {PACKAGE}"
    for version in versions:  # the newest first; one may need a newer C library than this machine's
        for old in scratch.glob("*.deb"):
            old.unlink()
        got = apt.run("apt-get", "download", f"{PACKAGE}={version}", cwd=scratch)
        archives = list(scratch.glob("*.deb"))
        if got.returncode or not archives:
            why = (got.stderr.strip().splitlines() or ["apt-get download failed"])[-1]
            continue
        root = scratch / "root"
        shutil.rmtree(root, ignore_errors=True)
        subprocess.run(["dpkg-deb", "--extract", archives[0], root], check=True)
        if _runs(root / "usr" / "bin" / PROGRAM):
            (root / "usr").rename(here / "usr")
            shutil.rmtree(scratch)
            return
        why = f"{PACKAGE} {version} does not run here"
    raise CannotGet(why)


def _runs(program: Path) -> bool:
    """Asks a daemon that is not there: the program must say so."""
    asked = subprocess.run(
        [program],
        input=b"get_server_list\n",
        capture_output=True,
        check=False,
        timeout=30,
        env={"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent"},
    )
    return asked.returncode == 1 and b"Cannot" in asked.stdout + asked.stderr


def main() -> None:
    try:
        fetch()
    except CannotGet as missing:
        print(missing)


if __name__ == "__main__":
    main()

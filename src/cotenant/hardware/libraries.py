"""Finds the compiled libraries inside the package, and places them where containers can mount them."""

from __future__ import annotations

import os
from pathlib import Path

from cotenant.core.errors import CotenantError

NATIVE = Path(__file__).resolve().parent.parent / "native"


def present(path: Path) -> Path:
    """Returns the path, or raises with what to do if the file is missing."""
    if not path.exists():
        raise CotenantError(
            f"{path} is missing: this installation has no compiled libraries. Install Cotenant from a wheel, "
            "or in a source tree run `python csrc/build.py` (it needs the `ziglang` package)"
        )
    return path


def shim() -> Path:
    """The library that is preloaded into every program that gets a share of a GPU."""
    return present(NATIVE / "libcotenant.so")


def standin_cuda() -> Path:
    return present(NATIVE / "standin" / "libcuda.so.1")


def standin_nvml() -> Path:
    return present(NATIVE / "standin" / "libnvidia-ml.so.1")


def standin_libraries() -> tuple[Path, ...]:
    """All libraries of the stand-in driver: those two, and each under its second name without `.1`."""
    both = (standin_cuda(), standin_nvml())
    return (*both, *(present(library.with_suffix("")) for library in both))


def standin_folder() -> Path:
    """What LD_LIBRARY_PATH has to name for programs to find the stand-in driver."""
    return standin_cuda().parent


def place(path: Path, content: bytes) -> None:
    """Writes a file that containers mount, if it is not there with this content already. Running containers
    keep the file that they were started with: it is never overwritten, a new one takes its name.
    """
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        path.rmdir()  # created by a container runtime that found nothing to mount
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.chmod(0o755)
    draft.replace(path)

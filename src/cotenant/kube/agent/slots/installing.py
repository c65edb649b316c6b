"""The libraries that containers mount, put where the host finds them.

Containers that run keep the file that they were started with, so one is never written over: a new one takes
its name. A missing file must not be: the container runtime would make a folder of that name, the loader would
pass over it, and the program would run without a limit.
"""

from __future__ import annotations

import os
from pathlib import Path

from cotenant.hardware import libraries

SHIM = "lib/libcotenant.so"
PRELOAD = "ld.so.preload"
_STANDIN = "standin/lib"


def install_shim(root: Path, preloaded_as: Path) -> None:
    """`preloaded_as` is the shim's path in containers. Does nothing where all is as it should be."""
    _put(root / SHIM, libraries.shim().read_bytes())
    _put(root / PRELOAD, f"{preloaded_as}\n".encode())


def ensure_shim(root: Path, preloaded_as: Path) -> None:
    """As `install_shim`, where somebody has removed something: a look at two names."""
    if not (root / SHIM).is_file() or not (root / PRELOAD).is_file():
        install_shim(root, preloaded_as)


def install_standin(root: Path) -> Path:
    """The folder with the stand-in driver's libraries."""
    for library in (libraries.standin_cuda(), libraries.standin_nvml()):
        _put(root / _STANDIN / library.name, library.read_bytes())
    return root / _STANDIN


def _put(path: Path, content: bytes) -> None:
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        path.rmdir()  # made by a container runtime that found nothing
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.chmod(0o755)
    draft.replace(path)

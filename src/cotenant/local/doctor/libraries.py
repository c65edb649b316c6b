"""Tries the libraries that Cotenant needs: the driver's, the shim, the libc, and what else is preloaded.

Libraries are loaded in processes of their own: one that crashes or hangs does no other harm.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cotenant.core.errors import CotenantError
from cotenant.hardware.enforcers.shim import (
    LIBRARY,
    PRELOAD_FILE,
    PRELOAD_VARIABLE,
    preloads,
    without_slot,
)
from cotenant.local import program

CUDA = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"
DRIVER = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""One of these can be opened when the kernel module of the driver is loaded (the last one in WSL). That it
exists is not enough: libcuda makes the device file before it asks for the module.
"""
_NO_DEVICE = frozenset({errno.ENXIO, errno.ENODEV, errno.ENOENT})

NEEDED: Mapping[str, Sequence[str]] = {
    CUDA: ("cuInit", "cuDeviceGetCount", "cuDevicePrimaryCtxRetain", "cuMemAlloc_v2", "cuMemGetInfo_v2"),
    NVML: (
        "nvmlInit_v2",
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetComputeRunningProcesses",
    ),
    LIBRARY: (
        "cuGetProcAddress_v2",
        "cuCtxCreate_v4",
        "cuDevicePrimaryCtxRetain",
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuMemAllocAsync",
        "cuMemCreate",
        "cuMemGetInfo_v2",
        "cuLaunchKernel",
        "nvmlDeviceGetMemoryInfo",
    ),
}
"""Functions without which a library cannot be used."""

_HOOKED = (b"\0cuMemAlloc_v2\0", b"\0cuGetProcAddress\0", b"\0cuGetProcAddress_v2\0")
_MACHINES = {"x86_64": 62, "aarch64": 183}
_PATIENCE = 20.0
"""Seconds to wait for one process."""
_LOAD = """
import ctypes, json, sys
name, needed = sys.argv[1], sys.argv[2:]
try:
    library = ctypes.CDLL(name)
    print(json.dumps({"missing": [each for each in needed if not hasattr(library, each)]}))
except OSError as error:
    print(json.dumps({"error": str(error)}))
"""
_PRELOADED = """
import json, sys
with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
    print(json.dumps({"loaded": any(line.rstrip("\\n").endswith(sys.argv[1]) for line in maps)}))
"""


class Library(NamedTuple):
    name: str
    problem: str | None
    """Why it cannot be used; None if it can."""
    missing: bool = False
    """The file does not exist."""


class Preload(NamedTuple):
    """A library that something else loads into every program."""

    path: str
    named_in: str
    problem: str


class System(NamedTuple):
    libraries: tuple[Library, ...]
    driver_loaded: bool
    musl: str | None
    """Why the shim cannot be loaded into programs of this system; None if it can."""
    preloads: tuple[Preload, ...]


def look(
    shim: Path,
    environ: Mapping[str, str],
    cards: Mapping[str, str],
    *,
    shell: str = "/bin/sh",
    system_preloads: Path = PRELOAD_FILE,
    driver: Sequence[Path] = DRIVER,
) -> System:
    """`cards` is what simulated GPUs need in the environment."""
    own = {**without_slot(environ), **cards}
    own.pop(PRELOAD_VARIABLE, None)
    return System(
        libraries=(_driver(CUDA, own), _driver(NVML, own), _shim(shim, own)),
        driver_loaded=bool(cards) or any(map(_is_there, driver)),
        musl=_musl(shell, environ),
        preloads=tuple(_preloads(environ, system_preloads)),
    )


def _is_there(path: Path) -> bool:
    """Whether there is something behind a file of the driver; one that may not be opened counts."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in _NO_DEVICE
    return True


def _driver(name: str, environ: Mapping[str, str]) -> Library:
    told = _try(_LOAD, [name, *NEEDED[name]], environ)
    if error := told.get("error"):
        absent = "cannot open shared object file" in str(error)
        return Library(
            name, "the loader does not find it" if absent else f"cannot be loaded: {error}", absent
        )
    return Library(name, _lacks(told))


def _shim(path: Path, environ: Mapping[str, str]) -> Library:
    if not path.is_file():
        return Library(LIBRARY, f"{path} does not exist", missing=True)
    problem = _architecture(path)
    if problem is None:
        told = _try(_LOAD, [str(path), *NEEDED[LIBRARY]], environ)
        problem = f"cannot be loaded: {told['error']}" if "error" in told else _lacks(told)
    if problem is None:
        told = _try(_PRELOADED, [str(path.resolve())], {**environ, PRELOAD_VARIABLE: str(path)})
        if not told.get("loaded"):
            problem = f"is not preloaded: {told.get('error') or 'the loader ignores it'}"
    return Library(LIBRARY, problem and f"{path} {problem}")


def _lacks(told: Mapping[str, object]) -> str | None:
    missing = told.get("missing")
    return f"lacks {', '.join(missing)}" if isinstance(missing, list) and missing else None


def _architecture(path: Path) -> str | None:
    with open(path, "rb") as file:
        head = file.read(20)
    if len(head) < 20 or head[:4] != b"\x7fELF":
        return "is not a library"
    (machine,) = struct.unpack_from("<H", head, 18)
    here = platform.machine()
    return None if machine == _MACHINES.get(here, machine) else f"is not made for {here}"


def _try(script: str, arguments: Sequence[str], environ: Mapping[str, str]) -> dict[str, object]:
    """What a new interpreter prints as JSON; `error` is set if it fails."""
    command = [sys.executable, "-I", "-S", "-c", script, *arguments]
    try:
        done = subprocess.run(
            command, env=dict(environ), capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"error": str(error)}
    try:
        told = json.loads(done.stdout)
    except ValueError:
        return {"error": done.stderr.strip() or f"exit code {done.returncode}"}
    return told if isinstance(told, dict) else {"error": "no answer"}


def _musl(shell: str, environ: Mapping[str, str]) -> str | None:
    """Musl's loader aborts on a library made for glibc, so the shim must not be preloaded there at all."""
    for name in (shell, sys.executable):
        try:
            found = program.find(name, environ)
        except CotenantError:
            continue
        if found.obstacle is not None and not found.preload and "musl" in found.obstacle:
            return found.obstacle
    return None


def _preloads(environ: Mapping[str, str], system: Path) -> list[Preload]:
    named = [(path, PRELOAD_VARIABLE) for path in preloads(environ)]
    try:
        text = system.read_text(errors="surrogateescape")
    except OSError:
        text = ""
    for line in text.splitlines():
        named += [(path, str(system)) for path in line.split("#", 1)[0].replace(":", " ").split()]
    found = []
    for path, where in named:
        problem = _conflict(path)
        if problem:
            found.append(Preload(path, where, problem))
    return found


def _conflict(path: str) -> str | None:
    """Judged by the content of the file alone: loading an unknown library would run its code."""
    if os.path.basename(path) == LIBRARY:
        return None
    if "/" not in path:
        return None  # the loader searches for it in many folders
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if any(name in data for name in _HOOKED):
        return "also intercepts CUDA's allocation calls"
    return None

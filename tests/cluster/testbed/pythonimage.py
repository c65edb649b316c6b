"""An image with the Python that runs the tests, and installed packages with all they need.

It is put together from files that are already on the machine: the interpreter, its standard library, the
shared libraries that they load, and the packages as pip installed them. So it needs no registry, no package
mirror and no network, fits any distribution, and what runs in a pod is what the tests were installed with.
"""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement

from . import images

SITE = "/opt/site-packages"
UNNEEDED = {
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "lib2to3",
    "site-packages",
}
FOUND_AT_RUN_TIME = ("libgcc_s.so.1",)
"""glibc loads it when a thread is cancelled; no binary names it."""


def write(archive: Path, name: str, packages: Iterable[str]) -> Path:
    interpreter = Path(sys.executable).resolve()
    shell = Path(shutil.which("sh") or "/bin/sh").resolve()
    files: dict[str, Path | str | bytes] = {
        str(interpreter): interpreter,
        "/usr/bin/python3": str(interpreter),
        "/usr/bin/python": str(interpreter),
        "/usr/bin/sh": shell,
        "/bin": "usr/bin",
        "/usr/bin/cotenant": b"#!/usr/bin/python3\nfrom cotenant.cli.main import main\n\nmain()\n",
        "/etc/passwd": b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
        **_standard_library(),
        **_installed(packages),
    }
    sources = [shell, *(source for source in files.values() if isinstance(source, Path))]
    files.update(_shared_libraries(sources))
    return images.write(
        archive, name, files, environment={"PATH": "/usr/bin", "PYTHONPATH": SITE, "PYTHONUNBUFFERED": "1"}
    )


def _standard_library() -> dict[str, Path]:
    """At the paths that the interpreter has on this machine, so that it finds itself without being told."""
    found = {}
    for kind in ("stdlib", "platstdlib"):
        folder = Path(
            sysconfig.get_path(kind, vars={"base": sys.base_prefix, "platbase": sys.base_exec_prefix})
        )
        for each in folder.iterdir():
            if each.name not in UNNEEDED and not each.name.startswith(("config-", "dist-packages")):
                found[str(each)] = each
    return found


def _installed(packages: Iterable[str]) -> dict[str, Path]:
    """Files of these packages and of what they require, without extras."""
    found: dict[str, Path] = {}
    wanted, seen = list(packages), set[str]()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            if file.parts[0] != ".." and file.suffix != ".pth":
                found |= {
                    f"{SITE}/{each}": source
                    for each in (file, *_compiled(file))
                    if (source := Path(each.locate())).is_file()
                }
        required = [Requirement(text) for text in distribution.requires or ()]
        wanted += [each.name for each in required if not each.marker or each.marker.evaluate({"extra": ""})]
        found.update(_editable(name))
    return found


def _compiled(file: importlib.metadata.PackagePath) -> Iterable[importlib.metadata.PackagePath]:
    """Not every installer lists it among a package's files; without it each container compiles what it imports."""
    if file.suffix == ".py":
        compiled = importlib.metadata.PackagePath(importlib.util.cache_from_source(str(file)))
        compiled.dist = file.dist
        yield compiled


def _editable(name: str) -> dict[str, Path]:
    """A package that is developed here has only a pointer to its folder among its files."""
    found = importlib.util.find_spec(name) if name.isidentifier() else None
    folders = list(found.submodule_search_locations or ()) if found else []
    if not folders or Path(folders[0]).parent.name in ("site-packages", "dist-packages"):
        return {}
    return {f"{SITE}/{name}": Path(folders[0])}


def _is_elf(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(4) == b"\x7fELF"


def _shared_libraries(sources: Iterable[Path]) -> dict[str, Path]:
    """What `ldd` says that the binaries among the sources load, the loader included.

    Each file once: `numpy/linalg/../../numpy.libs/x` is `numpy.libs/x`, and an installer that links files instead
    of copying them would make the second a hard link to itself, which containerd refuses.
    """
    binaries = [
        file
        for source in sources
        for file in (source.rglob("*.so*") if source.is_dir() else [source])
        if file.is_file() and _is_elf(file)
    ]
    said = subprocess.run(["ldd", *map(str, binaries)], check=False, capture_output=True, text=True).stdout
    paths = {os.path.normpath(path) for path in re.findall(r"(?:=> |^\t)(/\S+) \(0x", said, re.MULTILINE)}
    beside = {Path(path).parent for path in paths}
    paths |= {
        str(folder / name) for folder in beside for name in FOUND_AT_RUN_TIME if (folder / name).exists()
    }
    return {path: Path(path).resolve() for path in sorted(paths)}

"""Compiles the shim and the stand-in driver with zig, so that no compiler must be installed.

    python csrc/build.py [--machine aarch64] [--out DIR]

Everything is linked against glibc 2.17, so that the shim loads into old images too.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
FLAGS = (
    *("-std=gnu11", "-O2", "-g0", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-strict-aliasing"),
    *("-Wall", "-Wextra", "-Werror", "-Wl,-z,relro,-z,now", "-Wl,--build-id=none"),
    "-Wl,--as-needed",
)


@dataclass(frozen=True)
class Library:
    """One shared library: its file, the folder of its sources and its soname."""

    output: str
    sources: str
    soname: str
    symbolic: bool = True
    """Whether it calls its own functions directly. Not so with NVML's: where a program interposes one, the
    library calls that too, and the stand-in's does the same.
    """


LIBRARIES = (
    Library("libcotenant.so", "shim", "libcotenant.so"),
    Library("standin/libcuda.so.1", "standin/cuda", "libcuda.so.1"),
    Library("standin/libnvidia-ml.so.1", "standin/nvml", "libnvidia-ml.so.1", symbolic=False),
)

NAMES = (
    ("standin/libcuda.so", "standin/libcuda.so.1", "cuInit"),
    ("standin/libnvidia-ml.so", "standin/libnvidia-ml.so.1", "nvmlInit_v2"),
)
"""Names that some programs open (Taichi, Dr.Jit, numba): libraries that only need the real one. NVIDIA's
packages have symbolic links; a wheel cannot, and a second copy would be a second driver in one process.
"""


def sources(library: Library, machine: str) -> list[Path]:
    """Lists the C files of the library's folder, those it shares with others, and this machine's assembly."""
    folder = HERE / library.sources
    files = sorted(folder.glob("*.c")) + sorted(folder.glob(f"*_{machine}.S"))
    if folder.parent != HERE:
        files += sorted(folder.parent.glob("*.c"))
    return files


def build(out: Path, machine: str) -> list[Path]:
    """Compiles every library in `out` that is not up to date; returns the paths of all."""
    headers = [*(file for kind in ("h", "def", "map") for file in HERE.glob(f"**/*.{kind}")), Path(__file__)]
    built = []
    for library in LIBRARIES:
        files = sources(library, machine)
        target = out / library.output
        built.append(target)
        newest = max(f.stat().st_mtime for f in [*files, *headers])
        if target.exists() and target.stat().st_mtime >= newest:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        exports = HERE / library.sources / "exports.map"
        fresh = target.with_name(f".{target.name}.{os.getpid()}")
        command = [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.2.17", *FLAGS]
        command += ["-Wl,-Bsymbolic" if library.symbolic else "-fsemantic-interposition"]
        command += [f"-Wl,--version-script={exports}", f"-Wl,-soname,{library.soname}"]
        command += [
            f"-I{HERE / 'include'}",
            f"-I{HERE / library.sources}",
            f"-I{(HERE / library.sources).parent}",
        ]
        command += ["-o", str(fresh), *map(str, files)]
        print(f"compiling {library.output} for {machine}", file=sys.stderr)
        subprocess.run(command, check=True)
        fresh.replace(target)  # by rename: a running program keeps the library that it mapped
    return built + [name_library(out, machine, *names) for names in NAMES]


def name_library(out: Path, machine: str, name: str, real: str, function: str) -> Path:
    """Makes a library that has nothing but a reference to a function of the real one, beside it."""
    target, source = out / name, HERE / "standin" / "names" / "name.c"
    if target.exists() and target.stat().st_mtime >= max(f.stat().st_mtime for f in (source, Path(__file__))):
        return target
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.2.17", *FLAGS]
    command += [f"-DREFERENCE={function}", f"-Wl,-soname,{target.name}", "-Wl,-rpath,$ORIGIN"]
    command += ["-o", str(fresh), str(source), str(out / real)]
    subprocess.run(command, check=True)
    fresh.replace(target)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--machine", default=platform.machine(), help="x86_64 or aarch64")
    parser.add_argument("--out", type=Path, default=HERE.parent / "src" / "cotenant" / "native")
    args = parser.parse_args()
    for path in build(args.out, args.machine):
        print(path)


if __name__ == "__main__":
    main()

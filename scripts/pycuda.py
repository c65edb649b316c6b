"""Builds and installs pycuda, which has no wheel, without an installed compiler.

    python scripts/pycuda.py

zig compiles it against the CUDA headers from PyPI and the stand-in libcuda. The wheel is kept in
${XDG_CACHE_HOME:-~/.cache}/cotenant/wheels for the next environment.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "2026.1"
HEADERS = ("nvidia-cuda-runtime==13.*", "nvidia-cuda-profiler-api==13.*")
STANDIN = Path(__file__).resolve().parent.parent / "src" / "cotenant" / "native" / "standin" / "libcuda.so.1"


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "cotenant" / "wheels"


def pip(*arguments: str | Path, env: dict[str, str] | None = None) -> None:
    subprocess.run([sys.executable, "-m", "pip", *map(str, arguments)], check=True, env=env)


def kept_wheel() -> Path | None:
    """Finds a cached wheel of this version for this Python and machine."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return next(iter(cache().glob(f"pycuda-{VERSION}-{tag}-{tag}-*_{platform.machine()}.whl")), None)


def cuda_headers(scratch: Path) -> Path:
    """Returns the folder of cuda.h and cudaProfiler.h."""
    pip("install", "--quiet", "--no-deps", "--target", scratch / "headers", *HEADERS)
    return next((scratch / "headers").rglob("cuda.h")).parent


def source(scratch: Path) -> Path:
    pip("download", "--quiet", "--no-deps", "--no-binary", "pycuda", "--dest", scratch, f"pycuda=={VERSION}")
    with tarfile.open(next(scratch.glob("pycuda-*.tar.gz"))) as archive:
        archive.extractall(scratch, filter="data")
    return next(path for path in scratch.glob("pycuda-*") if path.is_dir())


def mend(folder: Path) -> None:
    """Patches pycuda's Boost: widens enums, since today's compilers refuse values outside of them.

    It also joins Boost.Python's thirty files into one: they are nearly all headers, which are then read once.
    """
    boost = folder / "bpl-subset" / "bpl_subset"
    for header in boost.glob("boost/numeric/conversion/*_enum.hpp"):
        header.write_text(re.sub(r"(enum \w+_enum)\b(?!\s*:)", r"\1 : int", header.read_text()))
    home = boost / "libs" / "python" / "src"
    parts = [part.rename(part.with_suffix(".part")) for part in sorted(home.rglob("*.cpp"))]
    (home / "whole.cpp").write_text("".join(f'#include "{part.relative_to(home)}"\n' for part in parts))


def compilers() -> dict[str, str]:
    """Returns the variables that make setuptools use zig; pip's build environment has no ziglang."""
    package = importlib.util.find_spec("ziglang")
    if package is None or package.origin is None:
        raise SystemExit("the ziglang package is missing: pip install ziglang")
    zig = Path(package.origin).parent / "zig"
    target = f"-target {platform.machine()}-linux-gnu.2.17"
    quiet = "-w -fno-sanitize=undefined"
    c, cxx = (f"{zig} {name} {target} {quiet}" for name in ("cc", "c++"))
    return {"CC": c, "CXX": cxx, "LDSHARED": f"{cxx} -shared", "LDCXXSHARED": f"{cxx} -shared"}


def build(scratch: Path) -> None:
    folder = source(scratch)
    mend(folder)
    stub = scratch / "stub"
    stub.mkdir()
    (stub / "libcuda.so").symlink_to(STANDIN)
    # C++14 still has std::auto_ptr, which its Boost uses
    (folder / "siteconf.py").write_text(
        f"CUDA_INC_DIR = [{str(cuda_headers(scratch))!r}]\n"
        f"CUDADRV_LIB_DIR = [{str(stub)!r}]\n"
        "CUDA_ENABLE_CURAND = False\n"
        "CXXFLAGS = ['-std=c++14', '-O0', '-g0', '-w']\n"
    )
    cache().mkdir(parents=True, exist_ok=True)
    pip("wheel", "--no-deps", "--wheel-dir", cache(), folder, env={**os.environ, **compilers()})


def installed() -> bool:
    try:
        return bool(importlib.metadata.version("pycuda"))
    except importlib.metadata.PackageNotFoundError:
        return False


def main() -> None:
    if installed():
        return
    if kept_wheel() is None:
        if not STANDIN.exists():
            raise SystemExit(f"{STANDIN} is missing: run `python csrc/build.py` first")
        with tempfile.TemporaryDirectory(prefix="pycuda-") as scratch:
            build(Path(scratch))
    wheel = kept_wheel()
    assert wheel is not None, f"pip has put no wheel of pycuda {VERSION} into {cache()}"
    pip("install", "--quiet", wheel)


if __name__ == "__main__":
    main()

"""Where the compiled libraries lie inside the package."""

from __future__ import annotations

from pathlib import Path

from cotenant.core.errors import CotenantError

NATIVE = Path(__file__).resolve().parent.parent / "native"


def _present(path: Path) -> Path:
    if not path.exists():
        raise CotenantError(
            f"{path} is missing: this installation has no compiled libraries. Install Cotenant from a wheel, "
            "or in a source tree run `python csrc/build.py` (it needs the `ziglang` package)"
        )
    return path


def shim() -> Path:
    """The library that is preloaded into every program that gets a share of a card."""
    return _present(NATIVE / "libcotenant.so")


def standin_cuda() -> Path:
    return _present(NATIVE / "standin" / "libcuda.so.1")


def standin_nvml() -> Path:
    return _present(NATIVE / "standin" / "libnvidia-ml.so.1")


def standin_folder() -> Path:
    """What LD_LIBRARY_PATH has to name for programs to find the stand-in driver."""
    return standin_cuda().parent

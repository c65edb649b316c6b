"""Clients of another age: by the name that development packages install, and by names of forms that they do not know."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cotenant.hardware.standin import driver as standin


def run(state: Path, code: str, **more: str) -> str:
    env = standin.environment(state, dict(os.environ)) | more
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def state(tmp_path: Path) -> Path:
    standin.create(tmp_path / "cards", standin.parse_spec("2x16GiB"))
    return tmp_path / "cards"


@pytest.mark.parametrize("order", [("", ".1"), (".1", "")])
@pytest.mark.parametrize(
    ("library", "function"),
    [("libcuda.so", "cuInit"), ("libcuda.so", "cuMemAlloc_v2"), ("libnvidia-ml.so", "nvmlInit_v2")],
)
def test_both_names_are_one_library(state: Path, order: tuple[str, str], library: str, function: str):
    """Whichever is opened first: two drivers in one process would count apart."""
    run(
        state,
        f"""
import ctypes
def address(name): return ctypes.cast(getattr(ctypes.CDLL(name), {function!r}), ctypes.c_void_p).value
assert address({library + order[0]!r}) == address({library + order[1]!r})
""",
    )


def test_a_form_with_a_context_called_without_one_means_the_current(state: Path):
    """As numba before numba-cuda calls it: by the name with _v2, with whatever the second register holds."""
    run(
        state,
        """
import ctypes
from ctypes import byref, c_int, c_void_p
cuda = ctypes.CDLL("libcuda.so")
assert cuda.cuInit(0) == 0
first, second, device = c_void_p(), c_void_p(), c_int(-1)
assert cuda.cuDevicePrimaryCtxRetain(byref(first), 0) == 0
assert cuda.cuCtxCreate_v2(byref(second), 0, 1) == 0
for garbage in (0x10, 0xdead0000, 2**64 - 8, ctypes.addressof(device)):
    assert cuda.cuCtxGetDevice_v2(byref(device), c_void_p(garbage)) == 0 and device.value == 1
    assert cuda.cuCtxSynchronize_v2(c_void_p(garbage)) == 0
assert cuda.cuCtxGetDevice_v2(byref(device), first) == 0 and device.value == 0
assert cuda.cuCtxGetDevice_v2(byref(device), None) == 0 and device.value == 1
green, context = c_void_p(), c_void_p()
assert cuda.cuGreenCtxCreate(byref(green), None, 0, 1) == 0
assert cuda.cuCtxFromGreenCtx(byref(context), green) == 0
assert cuda.cuCtxGetDevice_v2(byref(device), context) == 0 and device.value == 0
assert cuda.cuCtxDestroy_v2(second) == 0
assert cuda.cuCtxGetDevice_v2(byref(device), second) == 709
assert cuda.cuCtxGetDevice_v2(byref(device), c_void_p(0x10)) == 201
""",
    )

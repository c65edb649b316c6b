"""The libraries as files: what they export and need, and whether they speak NVIDIA's binary interface."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from cotenant.hardware import libraries

SOURCES = Path(__file__).resolve().parents[2] / "csrc" / "standin"


def symbols(library, defined):
    with library.open("rb") as file:
        for symbol in ELFFile(file).get_section_by_name(".dynsym").iter_symbols():
            if (symbol["st_shndx"] != "SHN_UNDEF") == defined and symbol.name:
                yield symbol.name


@pytest.mark.parametrize(("library", "prefix"), [("standin_cuda", "cu"), ("standin_nvml", "nvml")])
def test_only_the_drivers_functions_are_exported(library, prefix):
    exported = set(symbols(getattr(libraries, library)(), True)) - {"standin_layout"}
    assert len(exported) > 60
    assert all(re.match(rf"{prefix}[A-Z]", name) for name in exported)


@pytest.mark.parametrize("library", ["standin_cuda", "standin_nvml"])
def test_it_loads_on_old_systems_and_looks_up_nothing_itself(library):
    path = getattr(libraries, library)()
    assert not {"dlsym", "dlopen", "dlvsym"} & set(symbols(path, False))
    with path.open("rb") as file:
        needs = ELFFile(file).get_section_by_name(".gnu.version_r")
        versions = [v.name for _, group in needs.iter_versions() for v in group]
    numbers = [
        tuple(map(int, v.removeprefix("GLIBC_").split("."))) for v in versions if v.startswith("GLIBC_")
    ]
    assert numbers
    assert max(numbers) <= (2, 17)


def test_the_sources_agree_with_nvidias_header(tmp_path):
    """Every function is compiled against the prototype and the structs that cuda.h declares for it."""
    files = importlib.metadata.files("nvidia-cuda-runtime") or []
    [header] = [Path(str(file.locate())) for file in files if file.name == "cuda.h"]
    sources = [*SOURCES.glob("cuda/*.c"), *SOURCES.glob("*.c")]
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-std=gnu11",
        "-fPIC",
        "-shared",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]
    command += ["-DSTANDIN_REAL_CUDA_H", f"-I{header.parent}", f"-I{SOURCES / 'cuda'}", f"-I{SOURCES}"]
    done = subprocess.run(
        [*command, "-o", tmp_path / "check.so", *sources], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_function_is_found_by_name_and_version(standin):
    out = standin().run("""
import ctypes
library = ctypes.CDLL("libcuda.so.1")
def find(name, version, flags=0):
    function, status = ctypes.c_void_p(), ctypes.c_int(-1)
    result = library.cuGetProcAddress_v2(name, ctypes.byref(function), version, ctypes.c_uint64(flags), ctypes.byref(status))
    assert result == 0
    return function.value, status.value
def address(name): return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
assert find(b"cuMemAlloc", 13000) == (address("cuMemAlloc_v2"), 0)
assert find(b"cuCtxCreate", 3020) == (address("cuCtxCreate_v2"), 0)
assert find(b"cuCtxCreate", 11040) == (address("cuCtxCreate_v3"), 0)
assert find(b"cuCtxCreate", 13000) == (address("cuCtxCreate_v4"), 0)
assert find(b"cuLaunchKernel", 13000) == (address("cuLaunchKernel"), 0)
assert find(b"cuLaunchKernel", 13000, 2) == (address("cuLaunchKernel_ptsz"), 0)
assert find(b"cuMemAllocAsync", 13000, 2) == (address("cuMemAllocAsync_ptsz"), 0)
assert find(b"cuMemcpyHtoD", 13000, 2) == (address("cuMemcpyHtoD_v2_ptds"), 0)
assert address("cuMemAllocAsync_ptsz") != address("cuMemAllocAsync")
assert find(b"cuMemAllocAsync", 11000) == (None, 2)
assert find(b"cuNothing", 13000) == (None, 1)
print("found")
""")
    assert out == "found\n"

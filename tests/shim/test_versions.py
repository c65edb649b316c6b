"""Which form of a function a version of CUDA means is the driver's to say: the shim replaces what it knows by address,
and lets pass what it does not know.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from shim.compiling import compiled, library
from shim.slotted import Bench

FUTURE_DRIVER = r"""
#include <stddef.h>
#include <string.h>
typedef unsigned long long u64;
int cuInit(unsigned flags) { return 0; }
int cuCtxGetCurrent(void **context) { *context = NULL; return 201; }
int cuMemAlloc_v2(u64 *address, size_t size) { return 22; }
int cuMemAlloc_v3(u64 *address, size_t size, int more) { return 33; }
static int hidden(u64 *address, size_t size, int more, int yet) { return 44; }
int cuGetProcAddress_v2(const char *name, void **function, int version, u64 flags, int *status) {
    *function = NULL;
    if (!strcmp(name, "cuMemAlloc"))
        *function = version >= 15000 ? (void *)hidden : version >= 14000 ? (void *)cuMemAlloc_v3 : (void *)cuMemAlloc_v2;
    if (!strcmp(name, "cuMemBestow"))
        *function = (void *)hidden;
    return 0;
}
"""

FUTURE_PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *address; int status;
    int (*ask)(const char *, void **, int, unsigned long long, int *) = dlsym(driver, "cuGetProcAddress_v2");
    for (int version = 12000; version <= 15000; version += 1000) {
        int (*get)(void *, unsigned long, int, int) = NULL;
        if (ask("cuMemAlloc", (void **)&get, version, 0, &status) || get == NULL) return 1;
        printf("%d ", get(&address, 1, 2, 3));
    }
    int (*bestow)(void *, unsigned long, int, int) = NULL;
    if (ask("cuMemBestow", (void **)&bestow, 15000, 0, &status)) return 2;
    int (*named)(void *, unsigned long, int) = dlsym(driver, "cuMemAlloc_v3");
    printf("%d %d", bestow(&address, 1, 2, 3), named(&address, 1, 2));
    return 0;
}
"""


def test_the_form_that_synchronises_a_given_context_does_so(bench: Bench):
    """As drivers from 580 on answer a program for CUDA 13, and libcudart 13 asks."""
    bench.run("""
        ok(context())
        ask, given, plain, status = cuda.cuGetProcAddress_v2, c_void_p(), c_void_p(), ctypes.c_int()
        ok(ask(b"cuCtxSynchronize", byref(given), 13000, c_ulonglong(0), byref(status)))
        ok(ask(b"cuCtxSynchronize", byref(plain), 12090, c_ulonglong(0), byref(status)))
        assert given.value != plain.value
        synchronize = ctypes.CFUNCTYPE(ctypes.c_int, c_void_p)(given.value)
        handle, none = c_void_p(), c_void_p()
        ok(cuda.cuCtxGetCurrent(byref(handle)))
        ok(cuda.cuCtxSetCurrent(none))
        assert cuda.cuCtxSynchronize() == 201
        ok(synchronize(handle))
    """)


def test_the_pool_is_looked_at_when_a_given_context_is_synchronised(bench: Bench):
    bench.run("""
        ok(context())
        handle, base, address = c_void_p(), card(), c_ulonglong()
        ok(cuda.cuCtxGetCurrent(byref(handle)))
        ok(cuda.cuMemAllocAsync(byref(address), c_size_t(100 * MIB), None)); agree(); assert shim() > base
        ok(cuda.cuMemFreeAsync(address, None))
        ok(cuda.cuCtxSynchronize_v2(handle)); agree(base)
    """)


@pytest.mark.parametrize("flags", [0, 1, 2])
def test_every_version_means_what_the_driver_says(bench: Bench, flags: int):
    """Whatever the shim hands out under a name is the hook of exactly the form that the driver hands out."""
    code = """
        import re, sys
        ask, status, answers = cuda.cuGetProcAddress_v2, ctypes.c_int(), {}
        ok(cuda.cuInit(0))
        where = {}
        for name in NAMES:
            for version in range(2000, 14000, 10):
                found = c_void_p()
                ok(ask(name.encode(), byref(found), version, c_ulonglong(FLAGS), byref(status)))
                answers[name, version] = found.value
        forms = {}
        library = ctypes.CDLL("libcuda.so.1")
        for name in NAMES:
            for form in [name, *(f"{name}_v{n}" for n in range(2, 6))]:
                for full in (form, form + "_ptsz"):
                    if hasattr(library, full):
                        forms.setdefault(ctypes.cast(getattr(library, full), c_void_p).value, full)
        for (name, version), value in sorted(answers.items()):
            print(name, version, forms.get(value, "-") if value else "")
    """
    table = (Path(__file__).resolve().parents[2] / "csrc" / "shim" / "hooks.h").read_text()
    names = sorted(
        {line.split(", ")[1].split(")")[0] for line in table.splitlines() if line.startswith("    HOOK(cu")}
    )
    code = code.replace("NAMES", repr(names)).replace("FLAGS", str(flags))
    assert bench.run(code).stdout == bench.run(code, shim=False).stdout


def test_a_form_that_nobody_knows_yet_passes_and_is_named_once(bench: Bench, tmp_path: Path):
    library(tmp_path, FUTURE_DRIVER, "-Wl,-soname,libcuda.so.1", name="libcuda.so.1")
    program = compiled(tmp_path, FUTURE_PROGRAM)
    done = subprocess.run(
        [program], env=bench.env(LD_LIBRARY_PATH=str(tmp_path)), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "22 22 33 44 44 33")
    assert done.stderr.count("cotenant:") == 1
    assert "cuMemAlloc in a form" in done.stderr
    assert "CUDA 14.0" in done.stderr

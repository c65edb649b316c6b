"""Every way to a driver function leads through the shim: linked, dlsym, RTLD_DEEPBIND, cuGetProcAddress, other preloads."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from shim.compiling import compiled, library
from shim.slotted import Bench

from cotenant.hardware import libraries

ALLOCATE = r"""
typedef unsigned long long u64;
#define CHECK(want, call) do { int r = (call); if (r != (want)) { \
    fprintf(stderr, "%s: %d, expected %d\n", #call, r, want); return 1; } } while (0)
static int work(int (*init)(unsigned), int (*retain)(void **, int), int (*current)(void *), int (*alloc)(u64 *, size_t)) {
    void *context; u64 address;
    CHECK(0, init(0)); CHECK(0, retain(&context, 0)); CHECK(0, current(context));
    CHECK(0, alloc(&address, 1024u << 20)); CHECK(2, alloc(&address, 1024u << 20));
    return 0;
}
"""

LINKED = (
    ALLOCATE.replace("#define", "#include <stdio.h>\n#define", 1)
    + r"""
int cuInit(unsigned); int cuDevicePrimaryCtxRetain(void **, int); int cuCtxSetCurrent(void *); int cuMemAlloc_v2(u64 *, size_t);
int main(void) { return work(cuInit, cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuMemAlloc_v2); }
"""
)

BY_DLSYM = (
    "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n"
    + ALLOCATE
    + r"""
int main(void) {
    void *h = dlopen("libcuda.so.1", RTLD_NOW | FLAGS);
    return work(dlsym(h, "cuInit"), dlsym(h, "cuDevicePrimaryCtxRetain"), dlsym(h, "cuCtxSetCurrent"), dlsym(h, "cuMemAlloc_v2"));
}
"""
)

BY_DRIVER = (
    "#include <dlfcn.h>\n#include <stdio.h>\n"
    + ALLOCATE
    + r"""
static int (*ask)(const char *, void **, int, u64, int *);
static void *get(const char *name) { void *f = 0; int s; ask(name, &f, VERSION, FLAGS, &s); return f; }
int main(void) {
    ask = dlsym(dlopen("libcuda.so.1", RTLD_NOW), ENTRY);
    return work(get("cuInit"), get("cuDevicePrimaryCtxRetain"), get("cuCtxSetCurrent"), get("cuMemAlloc"));
}
"""
)

OTHER_PRELOAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
void *dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    if (!real) real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return real(handle, name);
}
int puts(const char *text) {
    int (*real)(const char *) = dlsym(RTLD_NEXT, "puts");
    return real ? real(text) : -1;
}
"""


def passes(bench: Bench, program: Path, **env: str) -> None:
    done = subprocess.run(
        [program], env=bench.env(**env), capture_output=True, text=True, check=False, timeout=20
    )
    assert done.returncode == 0, done.stderr
    assert bench.usage().denied == 1


def test_a_program_that_is_linked_with_the_driver(bench: Bench, tmp_path: Path):
    folder = libraries.standin_folder()
    program = compiled(tmp_path, LINKED, str(folder / "libcuda.so.1"))
    passes(bench, program)


@pytest.mark.parametrize("flags", ["0", "RTLD_DEEPBIND", "RTLD_GLOBAL"])
def test_a_program_that_asks_the_dynamic_linker(bench: Bench, tmp_path: Path, flags: str):
    passes(bench, compiled(tmp_path, BY_DLSYM, f"-DFLAGS={flags}"))


@pytest.mark.parametrize(
    ("entry", "version", "flags"),
    [("cuGetProcAddress", 11030, 0), ("cuGetProcAddress_v2", 12000, 0), ("cuGetProcAddress_v2", 13000, 2)],
)
def test_a_program_that_asks_the_driver(bench: Bench, tmp_path: Path, entry: str, version: int, flags: int):
    passes(
        bench,
        compiled(tmp_path, BY_DRIVER, f'-DENTRY="{entry}"', f"-DVERSION={version}", f"-DFLAGS={flags}"),
    )


def test_another_preload_that_hooks_dlsym_goes_on_working(bench: Bench, tmp_path: Path):
    """In either order; a hook that lost its caller would send RTLD_NEXT in a circle."""
    other = library(tmp_path, OTHER_PRELOAD, name="other.so")
    program = compiled(tmp_path, BY_DLSYM.replace("return work(", 'puts("hello"); return work('), "-DFLAGS=0")
    for preload in (f"{libraries.shim()}:{other}", f"{other}:{libraries.shim()}"):
        before = bench.usage().denied
        done = subprocess.run(
            [program],
            env=bench.env(LD_PRELOAD=preload),
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
        assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
        assert bench.usage().denied == before + 1


def test_a_program_without_a_slot_notices_nothing(bench: Bench, tmp_path: Path):
    bench.run(
        """
        ok(context())
        assert info()[1] == 16 * GIB
        assert alloc(15 * GIB)[0] == 0
        real = ctypes.CDLL("libcuda.so.1")
        with open("/proc/self/maps") as maps:
            owners = {line.split()[5].rsplit("/", 1)[1]: [int(x, 16) for x in line.split()[0].split("-")]
                      for line in maps if "r-xp" in line and "libcuda" in line}
        low, high = owners["libcuda.so.1"]
        assert low <= ctypes.cast(real.cuMemAlloc_v2, c_void_p).value < high
        """,
        shim=False,
        LD_PRELOAD=str(libraries.shim()),
    )


def test_a_program_without_cuda_runs_as_ever_in_a_slot(bench: Bench):
    done = subprocess.run(
        ["sh", "-c", "ls / | wc -l"], env=bench.env(), capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 3
    assert done.stderr == ""


def test_a_program_that_opens_the_driver_by_its_second_name(bench: Bench, tmp_path: Path):
    source = BY_DLSYM.replace('"libcuda.so.1"', '"libcuda.so"')
    passes(bench, compiled(tmp_path, source, "-DFLAGS=0"))

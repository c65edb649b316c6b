"""Frameworks that bring lazy stubs of the driver, as TensorFlow does: their library exports cuInit and the rest, and
loads the real one at the first call. The hooks come before such stubs, so they must load it too.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from shim.compiling import compiled, library
from shim.slotted import GIB, MIB, Bench

from cotenant.hardware import libraries

STUBS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
typedef unsigned long long u64;
static void *cuda(void) { static void *h; return h ? h : (h = dlopen(CUDA, RTLD_NOW)); }
static void *nvml(void) { static void *h; return h ? h : (h = dlopen(NVML, RTLD_NOW)); }
#define STUB(library, missing, name, parameters, arguments) \
    int name parameters { \
        static int (*real) parameters; \
        if (real == NULL && library() != NULL) real = (int (*) parameters)dlsym(library(), #name); \
        return real ? real arguments : missing; }
STUB(cuda, 302, cuInit, (unsigned flags), (flags))
STUB(cuda, 302, cuDeviceGetCount, (int *count), (count))
STUB(cuda, 302, cuDevicePrimaryCtxRetain, (void **context, int device), (context, device))
STUB(cuda, 302, cuCtxSetCurrent, (void *context), (context))
STUB(cuda, 302, cuMemGetInfo_v2, (size_t *available, size_t *total), (available, total))
STUB(cuda, 302, cuMemAlloc_v2, (u64 *address, size_t size), (address, size))
STUB(nvml, 12, nvmlInit_v2, (void), ())
STUB(nvml, 12, nvmlDeviceGetHandleByIndex_v2, (unsigned index, void **device), (index, device))
STUB(nvml, 12, nvmlDeviceGetMemoryInfo, (void *device, u64 *memory), (device, memory))

#define CHECK(want, call) do { int r = (call); if (r != (want)) { \
    fprintf(stderr, "%s: %d, expected %d\n", #call, r, want); return 1; } } while (0)
int compute(void) {
    void *context; u64 address; int count;
    CHECK(0, cuInit(0)); CHECK(0, cuDeviceGetCount(&count)); CHECK(1, count);
    CHECK(0, cuDevicePrimaryCtxRetain(&context, 0)); CHECK(0, cuCtxSetCurrent(context));
    CHECK(0, cuMemAlloc_v2(&address, 1024u << 20)); CHECK(2, cuMemAlloc_v2(&address, 1024u << 20));
    return 0;
}
int watch(void) {
    void *device; u64 memory[3];
    CHECK(0, nvmlInit_v2()); CHECK(0, nvmlDeviceGetHandleByIndex_v2(0, &device));
    CHECK(0, nvmlDeviceGetMemoryInfo(device, memory));
    CHECK(2048, (int)(memory[0] >> 20));
    return 0;
}
int hasten(void) {  /* what no program does before cuInit */
    size_t available, total; u64 address; void *device = NULL; u64 memory[3];
    CHECK(NONE_YET, cuMemGetInfo_v2(&available, &total)); CHECK(NONE_YET, cuMemAlloc_v2(&address, 1));
    CHECK(NOT_STARTED, nvmlDeviceGetMemoryInfo(device, memory));
    return 0;
}
"""

OPENED = r"""
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **arguments) {
    void *framework = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    for (int i = 2; i < count; i++)
        if (((int (*)(void))dlsym(framework, arguments[i]))()) return 1;
    return 0;
}
"""

LINKED = r"""
int compute(void); int watch(void);
int main(void) { return watch() || compute(); }
"""

BY_NAME = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
int main(int count, char **arguments) {  /* asks the framework's library itself for the driver's functions */
    void *framework = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL), *context; unsigned long long address;
    int (*init)(unsigned) = dlsym(framework, "cuInit");
    int (*retain)(void **, int) = dlsym(framework, "cuDevicePrimaryCtxRetain");
    int (*current)(void *) = dlsym(framework, "cuCtxSetCurrent");
    int (*alloc)(unsigned long long *, size_t) = dlsym(framework, "cuMemAlloc_v2");
    if (dlerror() != NULL) return 2;
    if (init(0) || retain(&context, 0) || current(context) || alloc(&address, 1024u << 20)) return 3;
    return alloc(&address, 1024u << 20) == 2 ? 0 : 4;
}
"""


def stubs(
    folder: Path, cuda: str = "libcuda.so.1", nvml: str = "libnvidia-ml.so.1", missing: bool = False
) -> Path:
    codes = ("-DNONE_YET=302", "-DNOT_STARTED=13") if missing else ("-DNONE_YET=3", "-DNOT_STARTED=1")
    return library(folder, STUBS, f'-DCUDA="{cuda}"', f'-DNVML="{nvml}"', *codes, name="libframework.so")


def run(bench: Bench, program: Path, *arguments: object, **env: str) -> None:
    done = subprocess.run(
        [program, *map(str, arguments)],
        env=bench.env(**env),
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("work", ["compute", "watch", "hasten"])
def test_a_framework_that_is_opened_finds_the_driver(bench: Bench, tmp_path: Path, work: str):
    run(bench, compiled(tmp_path, OPENED), stubs(tmp_path), work)


def test_both_libraries_in_one_process_are_limited(bench: Bench, tmp_path: Path):
    run(bench, compiled(tmp_path, OPENED), stubs(tmp_path), "hasten", "watch", "compute", "watch")
    assert bench.usage().denied == 1
    assert bench.usage().peak[0] == 256 * MIB + GIB


def test_a_program_that_is_linked_with_a_framework(bench: Bench, tmp_path: Path):
    framework = stubs(tmp_path)
    run(bench, compiled(tmp_path, LINKED, str(framework), f"-Wl,-rpath,{tmp_path}"))
    assert bench.usage().denied == 1


def test_a_program_that_asks_a_framework_for_the_drivers_functions(bench: Bench, tmp_path: Path):
    run(bench, compiled(tmp_path, BY_NAME), stubs(tmp_path))
    assert bench.usage().denied == 1


def test_a_framework_that_alone_knows_where_the_driver_is(bench: Bench, tmp_path: Path):
    framework = stubs(tmp_path, str(libraries.standin_cuda()), str(libraries.standin_nvml()))
    run(bench, compiled(tmp_path, OPENED), framework, "watch", "compute", LD_LIBRARY_PATH="")
    assert bench.usage().denied == 1


def test_without_a_slot_a_framework_finds_the_driver_too(bench: Bench, tmp_path: Path):
    program = compiled(tmp_path, OPENED)
    env = bench.env(shim=False, LD_PRELOAD=str(libraries.shim()))
    done = subprocess.run(
        [program, stubs(tmp_path), "compute"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert "cuMemAlloc_v2(&address, 1024u << 20): 0, expected 2" in done.stderr  # nothing limits it


def test_without_a_driver_it_is_missing_as_ever(bench: Bench, tmp_path: Path):
    framework = stubs(tmp_path, "libcuda.so.none", "libnvidia-ml.so.none", missing=True)
    run(bench, compiled(tmp_path, OPENED), framework, "hasten", LD_LIBRARY_PATH="")

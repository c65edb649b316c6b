"""What the driver would refuse by itself is refused with its own error, not with one of the shim's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from shim.compiling import compiled, library
from shim.slotted import Bench

CALLS = """
import struct
def location(device): return struct.pack("=iiii", 1, 0, 1, device)
made, size, pool, handle, address = c_void_p(), c_size_t(), c_void_p(), c_ulonglong(), c_ulonglong()
flags, active = ctypes.c_uint(), ctypes.c_int()
def answers(device):
    props = ctypes.create_string_buffer(location(device) + bytes(80))
    return {
        "cuCtxCreate_v2": cuda.cuCtxCreate_v2(byref(made), 0, device),
        "cuCtxCreate_v3": cuda.cuCtxCreate_v3(byref(made), None, 0, 0, device),
        "cuCtxCreate_v4": cuda.cuCtxCreate_v4(byref(made), None, 0, device),
        "retain": cuda.cuDevicePrimaryCtxRetain(byref(made), device),
        "release": cuda.cuDevicePrimaryCtxRelease_v2(device),
        "reset": cuda.cuDevicePrimaryCtxReset_v2(device),
        "total": cuda.cuDeviceTotalMem_v2(byref(size), device),
        "pool": cuda.cuMemPoolCreate(byref(pool), props),
        "create": cuda.cuMemCreate(byref(handle), c_size_t(2 << 20), props, c_ulonglong(0)),
        "alloc": cuda.cuMemAlloc_v2(byref(address), c_size_t(1)),
        "free": cuda.cuMemFree_v2(c_ulonglong(0)),
        "managed": cuda.cuMemAllocManaged(byref(address), c_size_t(1), 1),
        "info": cuda.cuMemGetInfo_v2(byref(size), byref(size)),
        "synchronize": cuda.cuCtxSynchronize(),
        "trim": cuda.cuDeviceGraphMemTrim(device),
    }
"""
ORDINALS = (0, -1, 1, 63, 64, 65, 2**31 - 1, -(2**31))


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_before_the_driver_has_started(make_bench, mode: str):
    bench = make_bench()
    bench.grant(2 << 30, mode)
    code = CALLS + f"for device in {ORDINALS}: print(device, answers(device))"
    with_shim = bench.run(code)
    assert with_shim.stdout == bench.run(code, shim=False).stdout
    assert "'retain': 3," in with_shim.stdout
    assert bench.usage().used(0) == 0


def test_before_the_driver_has_started_no_parameter_is_looked_at(bench: Bench):
    """A driver says that it has not started before it reads what a pointer leads to."""
    code = (
        CALLS
        + """
nowhere = c_void_p(4096)
print(cuda.cuMemCreate(byref(handle), c_size_t(2 << 20), nowhere, c_ulonglong(0)),
      cuda.cuMemAllocFromPoolAsync(byref(address), c_size_t(4096), nowhere, None))
"""
    )
    assert bench.run(code).stdout == bench.run(code, shim=False).stdout == "3 3\n"


def test_devices_that_there_are_not(bench: Bench):
    code = CALLS + f"ok(context())\nfor device in {ORDINALS[1:]}: print(device, answers(device))"
    with_shim = bench.run(code)
    assert with_shim.stdout == bench.run(code, shim=False).stdout
    assert "'retain': 101," in with_shim.stdout


def test_a_card_outside_of_the_grant_is_not_permitted(make_bench):
    """Unlike a device that there is not."""
    bench = make_bench("2x16GiB")
    bench.grant(2 << 30)
    bench.run("ok(context(0)); assert context(1) == NOT_PERMITTED; assert context(2) == 101")


def test_a_process_without_free_descriptors_is_refused_until_it_has_some(bench: Bench):
    done = bench.run("""
        import resource
        ok(cuda.cuInit(0))
        held = []
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.open("/dev/null", os.O_RDONLY); os.close(lowest)
        for _ in range(3):
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
            refused = context()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert refused == NOT_PERMITTED, refused
        assert card() == 0
        ok(context())
        assert alloc(2 * GIB)[0] == OUT_OF_MEMORY
        agree(256 * MIB)
    """)
    assert done.stderr.count("cotenant:") == 1
    assert "Too many open files" in done.stderr
    assert "until that is over" in done.stderr


def test_an_entry_that_becomes_free_is_taken(bench: Bench):
    """All entries are held when a process first asks, one is free when it asks again."""
    bench.run("""
        import fcntl, struct
        ok(cuda.cuInit(0))
        usage = os.open(slot / "usage", os.O_RDWR)
        def hold(kind, count): fcntl.fcntl(usage, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, 0, 1 << 40, count, 0))
        hold(fcntl.F_WRLCK, slots.PROCESSES)
        assert context() == NOT_PERMITTED
        hold(fcntl.F_UNLCK, 1)
        ok(context()); agree(256 * MIB)
    """)


OLD_DRIVER = r"""
static int started;
int cuInit(unsigned flags) { started = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { return !started ? 3 : ordinal == 0 ? 0 : 101; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) { return !started ? 3 : device == 0 ? 0 : 101; }
"""

OLD_PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    int (*init)(unsigned) = dlsym(driver, "cuInit");
    int (*create)(void **, unsigned, int) = dlsym(driver, "cuCtxCreate_v2");
    int before = create(&context, 0, 0), start = init(0);
    printf("%d %d %d %d", before, start, create(&context, 0, 1), create(&context, 0, 0));
    return 0;
}
"""


def test_a_driver_that_names_no_cards(bench: Bench, tmp_path: Path):
    """As before CUDA 9.2: which card a device is cannot be known, so none may be used; other errors are its own."""
    library(tmp_path, OLD_DRIVER, "-Wl,-soname,libcuda.so.1", name="libcuda.so.1")
    program = compiled(tmp_path, OLD_PROGRAM)
    env = bench.env(LD_LIBRARY_PATH=str(tmp_path))
    done = subprocess.run([program], env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "3 0 101 800"

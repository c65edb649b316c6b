"""Real CUDA and NVML clients, each as its users run it, under `cotenant run` and without it.

What they held is judged by the stand-in driver's own account over all their processes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from client_pythons import python_of

from cotenant.hardware.standin import driver as standin

GIB, MIB = 1 << 30, 1 << 20
COTENANT = str(Path(sys.executable).with_name("cotenant"))

CUDA_BINDINGS = """
from cuda.bindings import driver as d
def ok(result):
    assert result[0] == d.CUresult.CUDA_SUCCESS, result
    return result[1:]
ok(d.cuInit(0)); (device,) = ok(d.cuDeviceGet(0)); (context,) = ok(d.cuDevicePrimaryCtxRetain(device))
ok(d.cuCtxSetCurrent(context))
def room(): return ok(d.cuMemGetInfo())
def alloc(size):
    result, address = d.cuMemAlloc(size)
    assert result in (d.CUresult.CUDA_SUCCESS, d.CUresult.CUDA_ERROR_OUT_OF_MEMORY), result
    return address if result == d.CUresult.CUDA_SUCCESS else None
"""

CLASSIC_NUMBA = """
import warnings; warnings.simplefilter("ignore")
import numpy as np
from numba import cuda
def room(): return cuda.current_context().get_memory_info()
def alloc(size):
    try:
        return cuda.device_array(size, np.uint8)
    except Exception as error:
        assert "OUT_OF_MEMORY" in repr(error), repr(error)
"""

NUMBA = (
    CLASSIC_NUMBA
    + """
@cuda.jit
def add_one(values):
    i = cuda.grid(1)
    if i < values.size:
        values[i] += 1
values = cuda.to_device(np.zeros(128, np.float32))  # kept: numba frees lazily, when memory runs out
add_one[4, 32](values)
cuda.synchronize()
"""
)

PYCUDA = """
import pycuda.driver as drv
drv.init(); context = drv.Device(0).make_context()
import atexit; atexit.register(context.pop)
def room(): return drv.mem_get_info()
def alloc(size):
    try:
        return drv.mem_alloc(size)
    except drv.MemoryError:
        return None
"""

CUDA_PYTHON = CUDA_BINDINGS.replace("from cuda.bindings import driver as d", "from cuda import cuda as d")

CUDA4PY = """
import cuda4py as cu
context = cu.Devices().create_some_context()
def room(): return None, context.device.total_mem
def alloc(size):
    try:
        return cu.MemAlloc(context, size)
    except cu.CUDARuntimeError as error:
        assert "OUT_OF_MEMORY" in repr(error), repr(error)
"""

TINYGRAD = """
import ctypes
from tinygrad import Device
from tinygrad.device import BufferSpec
from tinygrad.runtime.autogen import cuda
allocator = Device["CUDA"].allocator
def room():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value
def alloc(size):
    try:
        return allocator.alloc(size, BufferSpec())
    except MemoryError:
        return None
"""

TAICHI = """
import taichi as ti
ti.init(arch=ti.cuda, offline_cache=False, device_memory_GB=0.25)
assert ti.cfg.arch == ti.cuda, "it would fall back to the processor"
def room(): return None, None
def alloc(size):
    try:
        return ti.ndarray(ti.u8, shape=(size,))
    except RuntimeError as error:
        assert "OUT_OF_MEMORY" in repr(error), repr(error)
"""

DRJIT = """
import drjit as dr
from drjit.cuda import UInt32
def room(): return None, None
def alloc(size):
    try:
        values = dr.arange(UInt32, size // 4); dr.eval(values); dr.sync_thread()
        return values
    except RuntimeError as error:
        assert "out of memory" in repr(error), repr(error)
"""

FILL = """
import json
_, total = room()
held, refused = [], 0
for mib in (512, 128, 32, 8, 2):  # to within the smallest size of the limit, wherever that is
    for _ in range(64):
        one = alloc(mib << 20)
        if one is None:
            refused += 1
            break
        held.append(one)
print(json.dumps({"total": total and int(total), "refused": refused}))
"""
MEET = """
import os, sys, time
folder, name = sys.argv[1:]
name += "+" * os.path.exists(os.path.join(folder, name))  # the second time
open(os.path.join(folder, name), "w").close()
while sum(each.endswith("+") == name.endswith("+") for each in os.listdir(folder)) < 2: time.sleep(0.05)
"""

CLIENTS = {
    "cuda-bindings": CUDA_BINDINGS,
    "numba-cuda": NUMBA,
    "pycuda": PYCUDA,
    "cuda-python-11.8": CUDA_PYTHON,
    "cuda-python-12.2": CUDA_PYTHON,
    "numba-0.60": CLASSIC_NUMBA,
    "cuda4py": CUDA4PY,
    "tinygrad": TINYGRAD,
    "taichi": TAICHI,
    "drjit": DRJIT,
}


GRAIN = {"taichi": 32 * MIB}
"""What it asks of the driver at a time, where that is more than a granule: pools grow by 32 MiB."""


def most(state: Path) -> int:
    """The most that was ever held on the card at one time, by the driver's own count."""
    (card,) = standin.StandIn(state).cards()
    return card.peak


@pytest.fixture
def machine(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """The environment for a simulated card of 3 GiB, and the stand-in's state."""
    env = {**os.environ, "COTENANT_HOME": str(tmp_path), "COTENANT_SIMULATE": "1x3GiB"}
    exports = subprocess.run(
        [COTENANT, "standin"], env=env, check=True, capture_output=True, text=True
    ).stdout
    (line,) = [line for line in exports.splitlines() if "COTENANT_STANDIN=" in line]
    return env, Path(line.split("COTENANT_STANDIN=", 1)[1].strip("'\"; "))


def run(env: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        [COTENANT, *words], env=env, capture_output=True, text=True, check=False, timeout=90
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_is_stopped_at_its_limit(client: str, machine: tuple[dict[str, str], Path]):
    env, state = machine
    program = [python_of(client), "-c", CLIENTS[client] + FILL]
    told = json.loads(run(env, "run", "--gpu-memory", "1Gi", "--", *program).splitlines()[-1])
    assert told["total"] in (GIB, None)
    assert told["refused"] == 5
    assert GIB - GRAIN.get(client, 4 * MIB) <= most(state) <= GIB


@pytest.mark.parametrize("client", CLIENTS)
def test_without_a_grant_the_same_client_gets_the_card(client: str, machine: tuple[dict[str, str], Path]):
    env, state = machine
    program = [python_of(client), "-c", CLIENTS[client] + FILL]
    told = json.loads(run(env, "standin", "--", *program).splitlines()[-1])
    assert told["total"] in (3 * GIB, None)
    assert 2 * GIB < most(state) <= 3 * GIB


def test_two_clients_of_one_grant_share_its_limit(machine: tuple[dict[str, str], Path], tmp_path: Path):
    """While both live: what a process held may be free in the slot a moment before the driver has it."""
    env, state = machine
    met = tmp_path / "met"
    met.mkdir()
    both = "& ".join(
        f"{sys.executable} -c '{CLIENTS[name]}{MEET}{FILL}{MEET}' {met} {name} > /dev/null 2>&1 "
        for name in ("cuda-bindings", "pycuda")
    )
    run(env, "run", "--gpu-memory", "2Gi", "--", "sh", "-c", f"{both}& wait")
    assert GIB < most(state) <= 2 * GIB


READERS = {
    "nvidia-ml-py": [
        sys.executable,
        "-c",
        "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(0)).total >> 20)",
    ],
    "gpustat": [str(Path(sys.executable).with_name("gpustat")), "--no-header", "--json"],
    "nvitop": [str(Path(sys.executable).with_name("nvitop")), "--once", "--no-unicode"],
}
SEEN = {"nvidia-ml-py": "2048", "gpustat": '"memory.total": 2048', "nvitop": "2048MiB"}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_sees_a_card_of_the_granted_size(reader: str, machine: tuple[dict[str, str], Path]):
    env, _ = machine
    env = {**env, "TERM": "xterm", "COLUMNS": "120"}
    shown = run(env, "run", "--gpu-memory", "2Gi", "--", *READERS[reader])
    assert SEEN[reader] in shown or SEEN[reader].replace("MiB", " MiB") in shown or "2.00GiB" in shown, shown
    outside = run(env, "standin", "--", *READERS[reader])
    assert SEEN[reader] not in outside

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

NUMBA = """
import warnings; warnings.simplefilter("ignore")
import numpy as np
from numba import cuda
@cuda.jit
def add_one(values):
    i = cuda.grid(1)
    if i < values.size:
        values[i] += 1
values = cuda.to_device(np.zeros(128, np.float32))  # kept: numba frees lazily, when memory runs out
add_one[4, 32](values)
cuda.synchronize()
def room(): return cuda.current_context().get_memory_info()
def alloc(size):
    try:
        return cuda.device_array(size, np.uint8)
    except Exception as error:
        assert "OUT_OF_MEMORY" in repr(error), repr(error)
"""

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

FILL = """
import json, sys
GRANULE = 2 << 20
free, total = room()
big = alloc(free - GRANULE)
assert big is not None, "one granule under the rest"
over = alloc(2 * GRANULE)
print(json.dumps({"total": int(total), "free": int(free), "over": over is not None}))
"""

CLIENTS = {"cuda-bindings": CUDA_BINDINGS, "numba-cuda": NUMBA, "pycuda": PYCUDA}


def most(state: Path) -> int:
    """The most that was ever held on the card at one time, by the driver's own count."""
    (card,) = standin.StandIn(state).cards()
    return card.peak


@pytest.fixture
def machine(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """The environment for a simulated card of 16 GiB, and the stand-in's state."""
    env = {**os.environ, "COTENANT_HOME": str(tmp_path), "COTENANT_SIMULATE": "1x16GiB"}
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
    told = json.loads(
        run(
            env, "run", "--gpu-memory", "2Gi", "--", sys.executable, "-c", CLIENTS[client] + FILL
        ).splitlines()[-1]
    )
    assert told["total"] == 2 * GIB
    assert not told["over"]
    assert 2 * GIB - 8 * MIB <= most(state) <= 2 * GIB


@pytest.mark.parametrize("client", CLIENTS)
def test_without_a_grant_the_same_client_gets_the_card(client: str, machine: tuple[dict[str, str], Path]):
    env, state = machine
    told = json.loads(
        run(env, "standin", "--", sys.executable, "-c", CLIENTS[client] + FILL).splitlines()[-1]
    )
    assert told["total"] == 16 * GIB
    assert 15 * GIB < most(state) <= 16 * GIB


def test_two_clients_of_one_grant_share_its_limit(machine: tuple[dict[str, str], Path]):
    env, state = machine
    both = "& ".join(
        f"{sys.executable} -c '{CLIENTS[name]}{FILL}' > /dev/null 2>&1 "
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

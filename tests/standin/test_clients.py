"""Real client libraries, each found and loaded as its users have it."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest
from client_pythons import python_of

MIB = 2**20
GIB = 2**30

HOLD = "begin(); ok(cuda.cuMemAlloc(GIB)); hold()"

NUMBA = """
import numpy, warnings
from numba import cuda
warnings.simplefilter("ignore")

@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]

x = cuda.to_device(numpy.arange(1000, dtype=numpy.float32))
out = cuda.device_array(1000, dtype=numpy.float32)
add[8, 128](x, x, out)
cuda.synchronize()
assert (x.copy_to_host() == numpy.arange(1000)).all()
info = cuda.current_context().get_memory_info()
big = cuda.device_array(info.free, dtype=numpy.uint8)
try:
    cuda.device_array(4 * 2**20, dtype=numpy.uint8)
except Exception as error:
    print(info.total, info.free, "OUT_OF_MEMORY" in str(error))
"""

PYCUDA = """
import numpy
import pycuda.driver as cuda

cuda.init()
context = cuda.Device(0).make_context()
data = numpy.arange(1000, dtype=numpy.float32)
pointer = cuda.to_device(data)
assert (cuda.from_device_like(pointer, data) == data).all()
module = cuda.module_from_buffer(b".version 7.0 .target sm_80 .visible .entry kernel() { ret; }")
module.get_function("kernel")(block=(32, 1, 1), grid=(4, 1))
context.synchronize()
free, total = cuda.mem_get_info()
big = cuda.mem_alloc(free)
try:
    cuda.mem_alloc(4 * 2**20)
except cuda.MemoryError:
    print(total, free, True)
context.pop()
"""


@pytest.mark.parametrize("client", ["numba-cuda", "pycuda"])
def test_a_client_gets_the_card_less_its_context_and_then_no_more(standin, client):
    if client == "pycuda" and importlib.util.find_spec("pycuda") is None:
        pytest.fail("pycuda is not installed: python scripts/pycuda.py builds it")
    machine = standin("1x16GiB")
    code = NUMBA if client == "numba-cuda" else PYCUDA
    total, free, refused = machine.call(python_of(client), "-c", code).split()
    assert int(total) == 16 * GIB
    assert int(free) == 16 * GIB - 256 * MIB - 2 * MIB, "a context and a granule of small arrays"
    assert refused == "True"
    assert machine.cards.cards()[0].launches == 1
    assert machine.used() == 0


def test_nvidia_ml_py_reads_every_figure(standin):
    machine = standin("1xA100-80GB")
    program = machine.start(HOLD)
    figures = json.loads(
        machine.run("""
import json, pynvml as n
n.nvmlInit()
card = n.nvmlDeviceGetHandleByIndex(0)
uuid = n.nvmlDeviceGetUUID(card)
memory, old = n.nvmlDeviceGetMemoryInfo(card, version=n.nvmlMemory_v2), n.nvmlDeviceGetMemoryInfo(card)
assert n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByUUID(uuid)) == uuid
pci = n.nvmlDeviceGetPciInfo(card)
assert n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByPciBusId(pci.busId)) == uuid
assert n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByPciBusId(pci.busIdLegacy)) == uuid
print(json.dumps({
    "name": n.nvmlDeviceGetName(card), "uuid": uuid, "driver": n.nvmlSystemGetDriverVersion(),
    "cuda": n.nvmlSystemGetCudaDriverVersion(), "capability": n.nvmlDeviceGetCudaComputeCapability(card),
    "memory": [memory.total, memory.reserved, memory.used, memory.free], "old": [old.total, old.used, old.free],
    "processes": [(p.pid, p.usedGpuMemory) for p in n.nvmlDeviceGetComputeRunningProcesses(card)],
    "graphics": n.nvmlDeviceGetGraphicsRunningProcesses(card), "mps": n.nvmlDeviceGetMPSComputeRunningProcesses(card),
    "mig": n.nvmlDeviceGetMigMode(card), "minor": n.nvmlDeviceGetMinorNumber(card),
    "rows": list(n.nvmlDeviceGetRemappedRows(card)), "ecc": n.nvmlDeviceGetEccMode(card),
    "limit": n.nvmlDeviceGetEnforcedPowerLimit(card), "clock": n.nvmlDeviceGetClockInfo(card, 0),
}))
""")
    )
    held, total, reserved = GIB + 256 * MIB, 81920 * MIB, 768 * MIB
    assert figures["memory"] == [total, reserved, held, total - reserved - held]
    assert figures["old"] == [total, reserved + held, total - reserved - held]
    assert figures["processes"] == [[program.pid, held]]
    assert figures["graphics"] == figures["mps"] == []
    assert figures["name"] == "NVIDIA A100-SXM4-80GB"
    assert figures["uuid"] == machine.uuids[0]
    assert (figures["cuda"], figures["capability"], figures["mig"]) == (13000, [8, 0], [0, 0])


def test_the_old_process_list_is_there_too(standin):
    machine = standin("1xT4")
    program = machine.start(HOLD)
    out = machine.run("""
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
class Process(ctypes.Structure): _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong)]
card, room = ctypes.c_void_p(), ctypes.c_uint(0)
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(card)) == 0
assert nvml.nvmlDeviceGetComputeRunningProcesses(card, ctypes.byref(room), None) == 7 and room.value == 1
found = (Process * 1)()
assert nvml.nvmlDeviceGetComputeRunningProcesses(card, ctypes.byref(room), found) == 0
print(found[0].pid, found[0].used)
""")
    assert out.split() == [str(program.pid), str(GIB + 256 * MIB)]


def test_gpustat_prints_the_card_and_its_process(standin):
    machine = standin("1x16GiB")
    program = machine.start(HOLD)
    out = machine.call(sys.executable, "-m", "gpustat", "--no-color", "-p")
    assert "NVIDIA Stand-in 16GiB" in out
    assert "1280 / 16384 MB" in out
    assert f"/{program.pid}(1280M)" in out


def test_nvitop_prints_the_card_and_its_process(standin):
    machine = standin("1x16GiB")
    program = machine.start(HOLD)
    out = machine.call(sys.executable, "-m", "nvitop", "-1", "--ascii", TERM="xterm", COLUMNS="120")
    assert "1280MiB / 16384MiB" in out
    assert str(program.pid) in out
    assert "Stand-in 16GiB" in out

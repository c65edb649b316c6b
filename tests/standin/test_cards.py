"""Cards as programs meet them: which they see, how busy they are, and what happens when one fails."""

from __future__ import annotations

import sys
import threading
import time

import pytest
from standin.conftest import BINDINGS

MIB = 2**20
GIB = 2**30

NVML = """
import pynvml as nvml
nvml.nvmlInit()
"""
SEEN = "ok(cuda.cuInit(0)); print(*[ok(cuda.cuDeviceTotalMem(i)) // GIB for i in range(ok(cuda.cuDeviceGetCount()))])"
KERNEL = """
begin()
module = ok(cuda.cuModuleLoadData(b".version 7.0 .target sm_80 .visible .entry kernel() { ret; }"))
kernel = ok(cuda.cuModuleGetFunction(module, b"kernel"))
def launch(stream=0): ok(cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, 0, 0))
"""


def test_cuda_visible_devices_chooses_and_orders(standin):
    machine = standin("1x1GiB,1x2GiB,1x3GiB")
    uuid = machine.uuids
    for value, seen in [
        ("2,0", "3 1"),
        ("1", "2"),
        (uuid[2], "3"),
        (f"{uuid[1]},{uuid[0]}", "2 1"),
        (uuid[2][:12], "3"),
        ("0,7,1", "1"),
        ("2,-1,1", "3"),
    ]:
        assert machine.run(SEEN, CUDA_VISIBLE_DEVICES=value).strip() == seen, value
    assert machine.run(SEEN).strip() == "1 2 3"
    for value in ["", "-1", "GPU-ffffffff", "1,1", "GPU-"]:
        assert (
            machine.run("print(cuda.cuInit(0)[0].name)", CUDA_VISIBLE_DEVICES=value)
            == "CUDA_ERROR_NO_DEVICE\n"
        ), value


def test_nvml_sees_every_card_whatever_cuda_may_see(standin):
    machine = standin("3xT4")
    assert machine.run(NVML + "print(nvml.nvmlDeviceGetCount())", CUDA_VISIBLE_DEVICES="1") == "3\n"


@pytest.mark.parametrize("value", ["", "/nowhere", "/dev/null", "/etc/passwd"])
def test_without_the_file_there_is_no_driver(standin, value):
    code = """
import pynvml
try: pynvml.nvmlInit()
except pynvml.NVMLError_DriverNotLoaded: print(cuda.cuInit(0)[0].name)
"""
    program = [sys.executable, "-c", BINDINGS + code]
    assert standin().call("env", f"COTENANT_STANDIN={value}", *program) == "CUDA_ERROR_NO_DEVICE\n"


def test_a_process_sees_one_mig_instance_and_no_more_than_its_memory(standin):
    machine = standin("1xA100-80GB/3g.40gb+2g.20gb")
    _, first, second = machine.uuids
    assert machine.run(SEEN).strip() == "39"
    assert machine.run(SEEN, CUDA_VISIBLE_DEVICES=second).strip() == "19"
    assert machine.run(SEEN, CUDA_VISIBLE_DEVICES=f"{second},{first}").strip() == "19"
    program = machine.start("begin(); ok(cuda.cuMemAlloc(GIB)); hold()", CUDA_VISIBLE_DEVICES=second)
    held = GIB + 256 * MIB
    assert [machine.used(i) for i in range(3)] == [0, 0, held]
    out = machine.run(
        NVML
        + """
card = nvml.nvmlDeviceGetHandleByIndex(0)
assert nvml.nvmlDeviceGetCount() == 1 and nvml.nvmlDeviceGetMigMode(card) == [1, 1]
assert nvml.nvmlDeviceGetMaxMigDeviceCount(card) == 7
first, second = (nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, i) for i in range(2))
try: nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 2)
except nvml.NVMLError_NotFound: print(nvml.nvmlDeviceGetUUID(second))
assert nvml.nvmlDeviceIsMigDeviceHandle(first) and not nvml.nvmlDeviceIsMigDeviceHandle(card)
assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(first)) == nvml.nvmlDeviceGetUUID(card)
assert nvml.nvmlDeviceGetAttributes_v2(first).gpuInstanceSliceCount == 3
assert nvml.nvmlDeviceGetMemoryInfo(first).used == 0
print(nvml.nvmlDeviceGetMemoryInfo(second).used)
print([(p.pid, p.gpuInstanceId) for p in nvml.nvmlDeviceGetComputeRunningProcesses(card)])
"""
    )
    assert out.splitlines() == [second, str(held), str([(program.pid, 2)])]


def test_launches_make_the_card_busy(standin):
    machine = standin("2xT4", launch_seconds=0.001)
    program = machine.start(
        KERNEL
        + """
print("ready", flush=True)
while True: launch()
"""
    )
    time.sleep(1.2)
    out = machine.run(
        NVML
        + """
busy, idle = (nvml.nvmlDeviceGetHandleByIndex(i) for i in range(2))
print(nvml.nvmlDeviceGetUtilizationRates(busy).gpu, nvml.nvmlDeviceGetUtilizationRates(idle).gpu)
print([(s.pid, s.smUtil) for s in nvml.nvmlDeviceGetProcessUtilization(busy, 0)])
assert nvml.nvmlDeviceGetTemperature(busy, 0) > nvml.nvmlDeviceGetTemperature(idle, 0)
assert nvml.nvmlDeviceGetPowerUsage(busy) > nvml.nvmlDeviceGetPowerUsage(idle)
"""
    )
    figures, samples = out.splitlines()
    busy, idle = map(int, figures.split())
    assert busy > 80
    assert idle == 0
    [(pid, share)] = eval(samples)
    assert pid == program.pid
    assert share > 80
    program.kill()
    program.wait()
    time.sleep(1.3)
    assert (
        machine.run(
            NVML + "print(nvml.nvmlDeviceGetUtilizationRates(nvml.nvmlDeviceGetHandleByIndex(0)).gpu)"
        )
        == "0\n"
    )


def test_half_a_load_is_half_a_utilisation(standin):
    machine = standin("1xT4", launch_seconds=0.01)
    machine.start(
        KERNEL
        + """
print("ready", flush=True)
while True:
    launch(); ok(cuda.cuCtxSynchronize()); time.sleep(0.01)
"""
    )
    time.sleep(1.3)
    out = machine.run(
        NVML + "print(nvml.nvmlDeviceGetUtilizationRates(nvml.nvmlDeviceGetHandleByIndex(0)).gpu)"
    )
    assert 25 < int(out) < 65


def test_synchronising_waits_for_the_queue_and_events_measure_it(standin):
    standin("1xT4", launch_seconds=0.005).run(
        KERNEL
        + """
first, last = ok(cuda.cuEventCreate(0)), ok(cuda.cuEventCreate(0))
begun = time.monotonic()
ok(cuda.cuEventRecord(first, 0))
for _ in range(10): launch()
ok(cuda.cuEventRecord(last, 0))
assert time.monotonic() - begun < 0.04
assert cuda.cuStreamQuery(0)[0] == cuda.CUresult.CUDA_ERROR_NOT_READY
assert cuda.cuEventQuery(last)[0] == cuda.CUresult.CUDA_ERROR_NOT_READY
ok(cuda.cuStreamSynchronize(0))
assert time.monotonic() - begun > 0.049
assert 45 < ok(cuda.cuEventElapsedTime(first, last)) < 80
ok(cuda.cuEventSynchronize(last)); ok(cuda.cuEventQuery(last))
assert cuda.cuModuleGetFunction(module, b"missing")[0] == cuda.CUresult.CUDA_ERROR_NOT_FOUND
assert cuda.cuModuleLoadData(b"nonsense")[0] == cuda.CUresult.CUDA_ERROR_INVALID_IMAGE
"""
    )


def test_the_queue_is_bounded(standin):
    standin("1xT4", launch_seconds=0.005).run(
        KERNEL
        + """
begun = time.monotonic()
for _ in range(60): launch()
assert time.monotonic() - begun > 0.15
"""
    )


def test_a_lost_card_fails_every_call_and_comes_back(standin):
    machine = standin("2xT4")
    program = machine.start("""
begin()
for line in iter(lambda: (print("ready", flush=True), sys.stdin.readline())[1], ""):
    print(cuda.cuMemAlloc(5)[0].name, cuda.cuCtxSynchronize()[0].name, cuda.cuCtxCreate(None, 0, 0)[0].name, flush=True)
""")
    lost = (
        NVML
        + """
def name(call, *a):
    try: call(*a); return "well"
    except nvml.NVMLError as error: return str(error)
print(name(nvml.nvmlDeviceGetHandleByIndex, 0), name(nvml.nvmlDeviceGetHandleByIndex, 1))
print(ok(cuda.cuInit(0)), ok(cuda.cuDeviceGetCount()))
"""
    )

    def ask():
        program.stdin.write("\n")
        program.stdin.flush()
        answer = program.stdout.readline().split()
        assert program.stdout.readline() == "ready\n"
        return answer

    assert set(ask()) == {"CUDA_SUCCESS"}
    machine.cards.fail(machine.uuids[0])
    assert set(ask()) == {"CUDA_ERROR_DEVICE_UNAVAILABLE"}
    assert machine.run(lost).splitlines() == ["GPU is lost well", "() 1"]
    machine.cards.recover(machine.uuids[0])
    assert machine.run(lost).splitlines() == ["well well", "() 2"]


def test_ecc_errors_are_counted(standin):
    machine = standin("1xT4,1xRTX-4090")
    machine.cards.add_ecc_errors(machine.uuids[0], corrected=3, uncorrected=1)
    out = machine.run(
        NVML
        + """
card, game = (nvml.nvmlDeviceGetHandleByIndex(i) for i in range(2))
print(*[nvml.nvmlDeviceGetTotalEccErrors(card, kind, 0) for kind in (0, 1)])
print(nvml.nvmlDeviceGetMemoryErrorCounter(card, 1, 0, nvml.NVML_MEMORY_LOCATION_DEVICE_MEMORY))
try: nvml.nvmlDeviceGetTotalEccErrors(game, 1, 0)
except nvml.NVMLError_NotSupported: print("no ECC")
"""
    )
    assert out.split("\n") == ["3 1", "1", "no ECC", ""]


def test_xid_events_reach_who_waits_for_them(standin):
    machine = standin("2xT4")
    waiting = machine.start(
        NVML
        + """
events = nvml.nvmlEventSetCreate()
for i in range(2): nvml.nvmlDeviceRegisterEvents(nvml.nvmlDeviceGetHandleByIndex(i), nvml.nvmlEventTypeXidCriticalError, events)
try: nvml.nvmlEventSetWait_v2(events, 20); raise SystemExit("an event from nowhere")
except nvml.NVMLError_Timeout: print("ready", flush=True)
for _ in range(3):
    event = nvml.nvmlEventSetWait_v2(events, 10000)
    print(nvml.nvmlDeviceGetIndex(event.device) if event.eventData != 79 else "lost", event.eventData, flush=True)
"""
    )
    threading.Timer(0.1, machine.cards.post_xid, (machine.uuids[1], 48)).start()
    assert waiting.stdout.readline() == "1 48\n"
    machine.cards.post_xid(machine.uuids[0], 63)
    assert waiting.stdout.readline() == "0 63\n"
    machine.cards.fail(machine.uuids[1])
    assert waiting.stdout.readline() == "lost 79\n"


@pytest.mark.parametrize("kind", ["cuInit(1)", "cuDeviceGet(9)", "cuDeviceGetName(64, 3)"])
def test_wrong_arguments_are_refused(standin, kind):
    out = standin().run(f"first = cuda.{kind}[0].name; ok(cuda.cuInit(0)); print(first, cuda.{kind}[0].name)")
    assert "CUDA_SUCCESS" not in out

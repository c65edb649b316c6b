"""Several processes on a card: who holds what, and that death in any form returns it."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from standin.conftest import BINDINGS

MIB = 2**20
GIB = 2**30

HOLD = "begin(); ok(cuda.cuMemAlloc(GIB)); hold()"
READ = """
import pynvml
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
print({p.pid: p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(card)})
print(pynvml.nvmlDeviceGetMemoryInfo(card).used)
"""


def until(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_nvml_shows_who_holds_what(standin):
    machine = standin("1x16GiB")
    programs = [machine.start(HOLD) for _ in range(2)]
    listed, used = machine.run(READ).splitlines()
    assert eval(listed) == {program.pid: GIB + 256 * MIB for program in programs}
    assert int(used) == 2 * (GIB + 256 * MIB) == machine.used()
    assert {p.pid for p in machine.cards.processes()} == {program.pid for program in programs}
    assert machine.cards.processes()[0].context == {machine.uuids[0]: 256 * MIB}
    programs[0].communicate("")
    listed, _ = machine.run(READ).splitlines()
    assert set(eval(listed)) == {programs[1].pid}


def test_kill_9_returns_the_memory_at_once(standin):
    machine = standin("1x16GiB")
    program = machine.start("begin(); ok(cuda.cuMemAlloc(15 * GIB)); hold()")
    full = "begin(); print(cuda.cuMemAlloc(2 * GIB)[0].name)"
    assert machine.run(full) == "CUDA_ERROR_OUT_OF_MEMORY\n"
    program.kill()
    program.wait()
    assert machine.used() == 0
    assert machine.run(full) == "CUDA_SUCCESS\n"


def test_a_forked_child_starts_with_nothing(standin):
    machine = standin("1x16GiB")
    out = machine.run("""
begin()
pointer = ok(cuda.cuMemAlloc(GIB))
pid = os.fork()
if pid == 0:
    assert cuda.cuMemGetInfo()[0] == cuda.CUresult.CUDA_ERROR_NOT_INITIALIZED
    begin()
    assert free() == 16 * GIB - GIB - 2 * 256 * MIB
    assert cuda.cuMemFree(pointer)[0] == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    ok(cuda.cuMemAlloc(2 * GIB))
    assert free() == 16 * GIB - 3 * GIB - 2 * 256 * MIB
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert free() == 16 * GIB - GIB - 256 * MIB
ok(cuda.cuMemFree(pointer))
print(free() == 16 * GIB - 256 * MIB)
""")
    assert out == "True\n"


def test_a_child_that_only_lives_on_does_not_keep_the_parents_memory(standin):
    machine = standin("1x16GiB")
    program = machine.start(
        "begin(); ok(cuda.cuMemAlloc(GIB)); pid = os.fork(); hold() if pid else time.sleep(30)"
    )
    child = int(Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text())
    assert machine.used() == GIB + 256 * MIB
    program.kill()
    program.wait()
    assert machine.used() == 0
    os.kill(child, 9)


def test_exec_gives_everything_back(standin):
    machine = standin("1x16GiB")
    program = machine.start("""
begin(); ok(cuda.cuMemAlloc(GIB)); print("ready", flush=True); sys.stdin.readline()
os.execvp("sleep", ["sleep", "30"])
""")
    assert machine.used() == GIB + 256 * MIB
    assert program.stdin is not None
    program.stdin.write("\n")
    program.stdin.flush()
    until(lambda: machine.used() == 0)
    assert program.poll() is None


def test_a_program_that_closes_all_descriptors_keeps_its_memory(standin):
    machine = standin("1x16GiB")
    machine.start("""
begin(); ok(cuda.cuMemAlloc(GIB))
os.closerange(3, 4096); os.environ.clear(); os.chdir("/")
ok(cuda.cuMemAlloc(GIB)); assert free() == 16 * GIB - 2 * GIB - 256 * MIB
hold()
""")
    assert machine.used() == 2 * GIB + 256 * MIB


def test_threads_of_a_process_share_its_books(standin):
    out = standin("1x16GiB").run("""
import threading
context = begin()
start = free()
def work():
    ok(cuda.cuCtxPushCurrent(context))
    for i in range(2000):
        kept = [ok(cuda.cuMemAlloc(size)) for size in (100, 3 * MIB, 700 * 1024)]
        for pointer in kept: ok(cuda.cuMemFree(pointer))
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(free() == start)
""")
    assert out == "True\n"


STORM = """
import ctypes, random, sys
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0)
context, pointer = ctypes.c_void_p(), ctypes.c_ulonglong()
while (result := cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)) == 2: pass  # full just now
assert result == 0
cuda.cuCtxPushCurrent_v2(context)
print("ready", flush=True)
held = []
while True:
    size = random.choice([4096, 2 << 20, random.randrange(1 << 20, 900 << 20)])
    result = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
    assert result in (0, 2), result
    if result == 0:
        held.append(pointer.value)
    if result == 2 or len(held) > 20:
        while held:
            assert cuda.cuMemFree_v2(ctypes.c_ulonglong(held.pop())) == 0
"""


def test_a_storm_of_allocations_and_kills_never_fills_a_card_beyond_its_memory(standin):
    machine = standin("1x4GiB", context_bytes=16 * MIB)
    chance = random.Random(7)

    def start():
        program = subprocess.Popen(
            [sys.executable, "-S", "-c", STORM], env=machine.environment(), stdout=subprocess.PIPE, text=True
        )
        machine.programs.append(program)
        return program

    running = [start() for _ in range(6)]
    for program in running:
        assert program.stdout.readline() == "ready\n"
    most = 0
    for _ in range(20):
        for _ in range(10):
            used = machine.used()
            assert used <= 4 * GIB
            most = max(most, used)
        victim = running.pop(chance.randrange(len(running)))
        assert victim.poll() is None
        victim.kill()
        victim.wait()
        running.append(start())
        assert running[-1].stdout.readline() == "ready\n"
    for program in running:
        program.kill()
        program.wait()
    assert most > 2 * GIB
    assert machine.used() == 0
    assert machine.cards.cards()[0].peak <= 4 * GIB
    assert machine.run("begin(); print(free() == 4 * GIB - 16 * MIB)") == "True\n"


DIE_LOCKED = """
import ctypes, mmap, os
from cotenant.hardware.standin import layout
file = open(os.environ["COTENANT_STANDIN"], "r+b")
state = layout.State.from_buffer(mmap.mmap(file.fileno(), 0))
assert ctypes.CDLL(None).pthread_mutex_lock(ctypes.byref(state.card[0].lock)) == 0
state.card[0].version += 1
state.card[0].used = 3 * 2**30
os.kill(os.getpid(), 9)
"""


def test_a_process_killed_in_the_middle_of_a_change_leaves_the_sum_right(standin):
    machine = standin("1x4GiB", context_bytes=0)
    machine.start(HOLD)
    done = subprocess.run(
        [sys.executable, "-c", DIE_LOCKED], env=machine.environment(), check=False, timeout=20
    )
    assert done.returncode == -9
    out = machine.run("begin(); ok(cuda.cuMemAlloc(3 * GIB)); print(free(), cuda.cuMemAlloc(1)[0].name)")
    assert out == "0 CUDA_ERROR_OUT_OF_MEMORY\n"
    assert machine.used() == GIB


CTYPES_CONTEXT = """
import ctypes
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
"""

MANY_NAMESPACES = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
ready, go = os.pipe(), os.pipe()
for _ in range(24):
    if os.fork() == 0:
        os.close(go[1])
        assert libc.unshare(0x20000000) == 0  # CLONE_NEWPID: for the children
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        child = os.fork()
        if child == 0:
            os.execv(sys.executable, [sys.executable, "-S", "-c", sys.argv[1]])
        os.write(1, b"%d\\n" % child)
        os.waitpid(child, 0)
        os._exit(0)
os.close(go[0])
for _ in range(24):
    os.read(ready[0], 1)
os.close(go[1])
for _ in range(24):
    os.wait()
"""


def _can_unshare() -> bool:
    return (
        subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False).returncode
        == 0
    )


@pytest.mark.skipif(not _can_unshare(), reason="making a pid namespace needs root")
def test_a_process_in_another_pid_namespace_is_named_as_the_reader_sees_it(standin):
    machine = standin("1x16GiB")
    program = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", BINDINGS + HOLD],
        env=machine.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    machine.programs.append(program)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    child = int(Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text())
    listed, _ = machine.run(READ).splitlines()
    assert eval(listed) == {child: GIB + 256 * MIB}
    assert [p.pid for p in machine.cards.processes()] == [child]
    inside = machine.call(
        "unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", READ
    ).splitlines()
    assert inside == ["{}", str(GIB + 256 * MIB)], "from a namespace beside it the process cannot be named"


@pytest.mark.skipif(not _can_unshare(), reason="making a pid namespace needs root")
def test_processes_of_many_namespaces_that_begin_at_once_are_told_apart(standin):
    """Each is process 1 of its own, and many begin in the same hundredth of a second."""
    machine = standin("1x80GiB")
    program = subprocess.Popen(
        [
            sys.executable,
            "-c",
            MANY_NAMESPACES,
            CTYPES_CONTEXT + "import os, sys; os.write(1, b'1\\n'); sys.stdin.read()",
        ],
        env=machine.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    machine.programs.append(program)
    assert program.stdout is not None
    lines = [program.stdout.readline() for _ in range(48)]
    children = {int(line) for line in lines if line != "1\n"}
    assert len(children) == 24
    listed, _ = machine.run(READ).splitlines()
    assert set(eval(listed)) == children
    assert {process.pid for process in machine.cards.processes()} == children


SHARING = """
import socket
def prop():
    prop = cuda.CUmemAllocationProp()
    prop.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.requestedHandleTypes = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return prop
FD = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
begin()
"""


def test_exported_memory_lives_as_long_as_any_process_has_it(standin, tmp_path):
    machine = standin()
    context = 256 * MIB
    maker = machine.start(
        SHARING
        + f"""
made = ok(cuda.cuMemCreate(GIB, prop(), 0))
out = int(ok(cuda.cuMemExportToShareableHandle(made, FD, 0)))
server = socket.socket(socket.AF_UNIX); server.bind({str(tmp_path / "meeting")!r}); server.listen(2)
print("ready", flush=True)
for _ in range(2): socket.send_fds(server.accept()[0], [b"memory"], [out])
sys.stdin.read()
"""
    )
    imported = (
        SHARING
        + f"""
peer = socket.socket(socket.AF_UNIX); peer.connect({str(tmp_path / "meeting")!r})
got = ok(cuda.cuMemImportFromShareableHandle(socket.recv_fds(peer, 10, 1)[1][0], FD))
hold()
"""
    )
    first, second = machine.start(imported), machine.start(imported)
    assert machine.used() == 3 * context + GIB
    maker.kill()
    maker.wait()
    assert machine.used() == 2 * context + GIB
    machine.run("begin(); assert 16 * GIB - free() == 3 * 256 * MIB + GIB")
    assert machine.used() == 2 * context + GIB
    first.kill()
    first.wait()
    assert machine.used() == context + GIB
    [(_, used)] = [(p.pid, p.used[machine.uuids[0]]) for p in machine.cards.processes()]
    assert used == context + GIB
    second.kill()
    second.wait()
    assert machine.used() == 0
    machine.run("begin(); assert 16 * GIB - free() == 256 * MIB")

"""Who holds an entry: every process that uses a card, for exactly as long as it lives, whatever it does to itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from shim.slotted import CONTEXT, GIB, Bench

from cotenant.hardware import slots


def test_a_program_that_uses_no_card_takes_no_entry(bench: Bench):
    program = bench.start("say('idle'); hear()")
    assert not bench.usage().processes
    program.communicate("\n")


def test_a_forked_child_begins_with_nothing_and_its_end_takes_nothing(bench: Bench):
    bench.run("""
        ok(context()); ok(alloc(GIB)[0])
        before = shim()
        child = os.fork()
        if child == 0:
            free(c_ulonglong(123))
            os._exit(0)
        os.waitpid(child, 0)
        agree(before)
        ok(alloc(100 * MIB)[0])
        agree(before + 100 * MIB)
    """)


def test_a_forked_child_that_uses_the_card_is_counted_beside_its_parent(bench: Bench):
    bench.run("""
        ok(context()); ok(alloc(512 * MIB)[0])
        child = os.fork()
        if child == 0:
            ok(context())
            assert info()[0] == 2 * GIB - 512 * MIB - 2 * 256 * MIB, info()
            assert alloc(GIB + 2 * MIB)[0] == OUT_OF_MEMORY
            ok(alloc(GIB)[0])
            agree(2 * GIB)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert info()[0] in (GIB + 256 * MIB, 2 * GIB - 512 * MIB - 256 * MIB)
        ok(alloc(GIB)[0])
        agree(GIB + 512 * MIB + 256 * MIB)
    """)


def test_a_child_made_without_fork_handlers_is_told_apart_too(bench: Bench):
    bench.run(
        """
        ok(context()); ok(alloc(512 * MIB)[0])
        libc = ctypes.CDLL(None)
        child = libc.syscall(56, signal.SIGCHLD, 0, 0, 0, 0) if os.uname().machine == "x86_64" else os.fork()
        if child == 0:
            ok(context()); ok(alloc(64 * MIB)[0])
            os._exit(0 if len(slots.read_usage(slot).processes) == 2 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        agree(512 * MIB + 256 * MIB)
    """.replace("ok(context())", "import signal\n        ok(context())", 1)
    )


def test_closing_every_descriptor_does_not_drop_the_lock(bench: Bench):
    program = bench.start("""
        ok(context()); ok(alloc(GIB)[0])
        os.dup2(0, 900); os.dup2(1, 901)
        os.closerange(2, 900); os.closerange(902, 4096)
        say("closed"); hear()
    """)
    assert [process.pid for process in bench.usage().processes] == [program.pid]
    assert not slots.close(bench.slot)
    bench.run("ok(context()); assert alloc(GIB)[0] == OUT_OF_MEMORY")
    program.send_signal(signal.SIGKILL)
    program.wait()
    assert slots.close(bench.slot)


def test_exec_ends_what_the_old_program_held(bench: Bench):
    program = bench.start("""
        ok(context()); ok(alloc(GIB)[0]); say("holding"); hear()
        os.execv(sys.executable, [sys.executable, "-c", "print('execed', flush=True); input()"])
    """)
    program.stdin.write("\n")
    program.stdin.flush()
    assert program.stdout.readline() == "execed\n"
    assert not bench.usage().processes
    program.communicate("\n")


def test_a_daemon_with_a_session_of_its_own_keeps_the_slot_alive(bench: Bench):
    program = bench.start("""
        if os.fork():
            os._exit(0)
        os.setsid()
        if os.fork():
            os._exit(0)
        os.closerange(3, 4096)
        ok(context()); ok(alloc(GIB)[0]); say(os.getpid())
        import time
        time.sleep(60)
    """)
    program.wait()
    (daemon,) = bench.usage().processes
    assert daemon.used[0] == GIB + CONTEXT
    assert not slots.close(bench.slot)
    os.kill(daemon.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while not slots.close(bench.slot):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_stopped_process_makes_nobody_wait(bench: Bench):
    program = bench.start("""
        ok(context())
        say("looping")
        while True:
            result, address = alloc(64 * MIB)
            if result == 0:
                free(address)
    """)
    for _ in range(5):
        bench.stop(program)
        bench.run("""
            import time
            began = time.monotonic()
            ok(context()); ok(alloc(512 * MIB)[0]); assert alloc(2 * GIB)[0] == OUT_OF_MEMORY
            assert time.monotonic() - began < 2
        """)
        program.send_signal(signal.SIGCONT)
        time.sleep(0.02)
    program.kill()
    program.wait()


def test_kill_at_random_moments_leaks_nothing(bench: Bench):
    code = """
        import random
        ok(context()); say("up")
        held = []
        while True:
            if len(held) > 8 or (held and random.random() < 0.5):
                free(held.pop())
            else:
                result, address = alloc(random.choice([1000, 3 * MIB, 50 * MIB]))
                if result == 0:
                    held.append(address)
    """
    for round in range(8):
        programs = [bench.start(code) for _ in range(2)]
        time.sleep(0.01 * round)
        for program in programs:
            program.kill()
            program.wait()
    bench.run("ok(context()); ok(alloc(2 * GIB - 256 * MIB)[0]); agree(2 * GIB)")


LAUNCHING = """
    import time
    ok(context())
    module, function = c_void_p(), c_void_p()
    ok(cuda.cuModuleLoadData(byref(module), b".version 7.0\\n.target sm_52\\n.address_size 64\\n.visible .entry k()\\n{\\nret;\\n}\\n"))
    ok(cuda.cuModuleGetFunction(byref(function), module, b"k"))
    def launch():
        ok(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None))
    say("ready")
"""


def idle(bench: Bench) -> float:
    return (time.clock_gettime_ns(time.CLOCK_MONOTONIC) - bench.usage().last_active) / 1e9


def test_a_launch_after_a_pause_is_noted(bench: Bench):
    program = bench.start(LAUNCHING + "    while hear(): launch(); say('launched')\n")
    for _ in range(3):
        time.sleep(1.2)
        assert idle(bench) > 1
        program.stdin.write("go\n")
        program.stdin.flush()
        program.stdout.readline()
        assert idle(bench) < 1
    program.communicate("\n")


def test_after_a_burst_idleness_counts_from_its_end(bench: Bench):
    """Launches of a burst leave their time open; a synchronise, or whoever looks, closes it."""
    burst = "    for _ in range({}): launch()\n    {}\n    say('done'); hear()\n"
    for count in (1, 5, 12, 1003):
        program = bench.start(LAUNCHING + burst.format(count, "ok(cuda.cuCtxSynchronize())"))
        program.stdout.readline()
        time.sleep(1.5)
        assert 1 < idle(bench) < 3
        program.communicate("\n")
    program = bench.start(LAUNCHING + burst.format(1003, "pass"))
    program.stdout.readline()
    assert idle(bench) < 1
    time.sleep(1.2)
    idle(bench)
    time.sleep(1.2)
    assert idle(bench) > 1
    program.communicate("\n")


def test_readers_see_the_grant_and_take_no_entry(bench: Bench):
    code = (
        "import pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0)\n"
        "m = n.nvmlDeviceGetMemoryInfo(h); v = n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2)\n"
        "print(m.total, m.used, m.free, v.total, v.used, v.free)"
    )
    holder = bench.start("ok(context()); ok(alloc(GIB)[0]); say('holding'); hear()")
    done = subprocess.run(
        [sys.executable, "-c", code], env=bench.env(), capture_output=True, text=True, check=True
    )
    total, used, free = 2 * GIB, GIB + CONTEXT, GIB - CONTEXT
    assert [int(word) for word in done.stdout.split()] == [total, used, free] * 2
    assert len(bench.usage().processes) == 1
    holder.communicate("\n")

"""The limit: what is asked beyond it is refused, by mode, at once and over all processes."""

from __future__ import annotations

import signal

from shim.slotted import CONTEXT, GIB, MIB, Bench

from cotenant.hardware import slots


def test_an_allocation_that_just_fits_succeeds_and_the_next_is_refused(bench: Bench):
    bench.run("""
        ok(context())
        rest = 2 * GIB - card()
        assert alloc(rest - 2 * MIB)[0] == 0
        assert alloc(2 * MIB)[0] == 0
        agree(2 * GIB)
        assert alloc(1)[0] == OUT_OF_MEMORY
        agree(2 * GIB)
    """)
    usage = bench.usage()
    assert usage.denied == 1
    assert usage.peak[0] == 2 * GIB


def test_without_the_shim_the_whole_card_is_there(bench: Bench):
    bench.run(
        """
        ok(context())
        assert alloc(15 * GIB)[0] == 0
        """,
        shim=False,
    )


def test_the_card_looks_as_large_as_the_grant(bench: Bench):
    bench.run("""
        ok(context())
        available, total = info()
        assert total == 2 * GIB and available == 2 * GIB - 256 * MIB, (available, total)
        size = c_size_t()
        ok(cuda.cuDeviceTotalMem_v2(byref(size), 0))
        assert size.value == 2 * GIB
        ok(alloc(GIB)[0])
        assert info()[0] == GIB - 256 * MIB
    """)


def test_processes_share_one_limit(bench: Bench):
    holder = bench.start("""
        ok(context()); ok(alloc(GIB)[0]); say("holding"); hear()
    """)
    bench.run("""
        ok(context())
        assert info()[0] == 512 * MIB
        assert alloc(513 * MIB)[0] == OUT_OF_MEMORY
        assert alloc(512 * MIB)[0] == 0
        agree(2 * GIB)
    """)
    holder.communicate("\n")
    assert not bench.usage().processes


def test_a_context_that_does_not_fit_is_refused(bench: Bench):
    holder = bench.start("ok(context()); ok(alloc(2 * GIB - 300 * MIB)[0]); say('holding'); hear()")
    bench.run("""
        assert context() == OUT_OF_MEMORY
        agree()
    """)
    holder.communicate("\n")


def test_memory_of_a_killed_process_is_there_for_the_next(bench: Bench):
    for _ in range(5):
        holder = bench.start("ok(context()); ok(alloc(2 * GIB - 256 * MIB)[0]); say('full'); hear()")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    bench.run("""
        ok(context())
        assert info()[0] == 2 * GIB - 256 * MIB
        assert alloc(2 * GIB - 256 * MIB)[0] == 0
        agree(2 * GIB)
    """)


def test_observe_lets_through_and_counts(tmp_path, make_bench):
    bench = make_bench()
    bench.grant(GIB, "observe")
    done = bench.run("""
        ok(context())
        assert info()[1] == 16 * GIB
        assert alloc(4 * GIB)[0] == 0
        agree(4 * GIB + 256 * MIB)
    """)
    usage = bench.usage()
    assert (usage.denied, usage.over) == (0, 1)
    assert usage.peak[0] == 4 * GIB + CONTEXT
    assert "cotenant" not in done.stderr


def test_warn_lets_through_and_says_so_once(make_bench):
    bench = make_bench()
    bench.grant(GIB, "warn")
    done = bench.run("ok(context()); ok(alloc(2 * GIB)[0]); ok(alloc(2 * GIB)[0]); agree()")
    assert done.stderr.count("beyond the limit") == 1
    assert bench.usage().over == 2


def test_a_changed_limit_holds_at_the_next_allocation(bench: Bench):
    program = bench.start("""
        ok(context())
        assert alloc(3 * GIB)[0] == OUT_OF_MEMORY
        say("refused"); hear()
        assert info()[1] == 4 * GIB
        assert alloc(3 * GIB)[0] == 0
        say("allowed"); hear()
        assert alloc(64 * MIB)[0] == OUT_OF_MEMORY
        say("refused again")
    """)
    slots.set_limits(bench.slot, {bench.uuid: 4 * GIB})
    program.stdin.write("\n")
    program.stdin.flush()
    assert program.stdout.readline() == "allowed\n"
    slots.set_limits(bench.slot, {bench.uuid: 3 * GIB + CONTEXT})
    assert program.communicate("\n")[0] == "refused again\n"
    assert program.returncode == 0


def test_a_card_that_was_not_granted_is_refused(make_bench):
    bench = make_bench("2x16GiB")
    bench.grant(2 * GIB)
    bench.run("""
        assert context(0) == 0
        assert context(1) == NOT_PERMITTED
    """)


def test_many_small_allocations_share_granules(bench: Bench):
    bench.run("""
        ok(context())
        held = []
        for size in [1, 511, 512, 513, 4096, 65536, 1048575] * 40:
            result, address = alloc(size)
            ok(result)
            held.append(address)
            agree()
        for address in held[::2] + held[1::2]:
            ok(free(address))
            agree()
        agree(256 * MIB)
    """)


def test_racing_processes_never_pass_the_limit_and_are_not_refused_what_fits(bench: Bench):
    """Eight processes that together may hold all: whoever is refused now was refused for nothing."""
    code = """
        import random
        random.seed(int(sys.argv[1]) if len(sys.argv) > 1 else os.getpid())
        ok(context()); say("ready"); hear()
        mine = 200 * MIB
        for _ in range(400):
            size = random.randrange(2, 101) * 2 * MIB
            result, address = alloc(size)
            ok(result)
            ok(free(address))
        say("done")
    """
    slots.set_limits(bench.slot, {bench.uuid: 8 * (CONTEXT + 200 * MIB)})
    racers = [bench.start(code) for _ in range(8)]
    for racer in racers:
        racer.stdin.write("\n")
        racer.stdin.flush()
    worst = 0
    while any(racer.poll() is None for racer in racers):
        worst = max(worst, bench.cards.used(bench.uuid))
    assert all(racer.returncode == 0 for racer in racers)
    assert 0 < worst <= 8 * (CONTEXT + 200 * MIB)
    assert bench.usage().denied == 0


def test_threads_of_a_process_count_together(bench: Bench):
    bench.run("""
        import threading
        ok(context())
        current = c_void_p()
        ok(cuda.cuCtxGetCurrent(byref(current)))

        def work(seed):
            import random
            rng = random.Random(seed)
            ok(cuda.cuCtxSetCurrent(current))
            held = []
            for _ in range(300):
                if held and rng.random() < 0.5:
                    ok(free(held.pop(rng.randrange(len(held)))))
                else:
                    result, address = alloc(rng.choice([100, 5000, 700 * 1024, 3 * MIB, 20 * MIB]))
                    if result == 0:
                        held.append(address)
            for address in held:
                ok(free(address))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        agree(256 * MIB)
    """)
    assert bench.usage().peak[0] <= 2 * GIB

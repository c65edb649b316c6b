"""Real processes in a grant on simulated cards ask what to tell their framework, and take exactly that."""

import shutil

import pytest
from shim.slotted import CONTEXT, GIB, MIB

from cotenant.hardware import libraries, slots

ASK = """
import ctypes, json, os
from pathlib import Path
from cotenant.frameworks import share
from cotenant.hardware import slots

cuda = ctypes.CDLL("libcuda.so.1")
seen = ctypes.c_size_t()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceTotalMem_v2(ctypes.byref(seen), 0) == 0
mine, limits = share(), slots.read_limits(Path(os.environ["COTENANT_SLOT"]))
print(json.dumps({
    "mode": limits.mode, "granted": [card.bytes for card in limits.cards], "context": limits.cards[0].context_bytes,
    "seen": seen.value, "limit": mine.limit, "usable": mine.usable, "fraction": mine.fraction, "needed": mine.needed,
    "reason": mine.reason, "environment": {name: mine.environment(name) for name in ("pytorch", "jax", "cupy")},
}))
"""


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_where_the_card_is_seen_whole_the_fraction_is_of_the_card(simulated, mode):
    told = simulated().ask(ASK, "--gpu-memory", "4Gi", "--enforce", mode)
    assert (told["mode"], told["seen"], told["limit"]) == (mode, 16 * GIB, 4 * GIB)
    assert told["usable"] == 4 * GIB - told["context"]
    assert told["needed"]
    assert f"mode {mode}" in told["reason"]
    taken = told["fraction"] * told["seen"]
    assert 0 <= told["usable"] - taken < told["seen"] / 10000
    assert told["environment"]["jax"] == {"XLA_CLIENT_MEM_FRACTION": str(told["fraction"])}
    assert told["environment"]["cupy"] == {"CUPY_GPU_MEMORY_LIMIT": str(told["usable"])}


def test_where_the_shim_enforces_nothing_is_set(simulated):
    told = simulated().ask(ASK, "--gpu-memory", "4Gi")
    assert (told["mode"], told["seen"], told["limit"]) == ("enforce", 4 * GIB, 4 * GIB)
    assert (told["needed"], told["fraction"]) == (False, 1.0)
    assert told["environment"] == {"pytorch": {}, "jax": {}, "cupy": {}}
    assert "would shrink it twice" in told["reason"]


@pytest.mark.parametrize(
    ("spec", "options", "fraction"),
    [
        ("2x16GiB", ("--gpu-memory", "8Gi", "--gpus", "2"), (4 * GIB - CONTEXT) / (16 * GIB)),
        ("1x8GiB,1x16GiB", ("--gpu-memory", "8Gi", "--gpus", "2"), (4 * GIB - CONTEXT) / (16 * GIB)),
        ("1x16GiB", ("--gpu-memory", "50%"), (8 * GIB - CONTEXT) / (16 * GIB)),
    ],
)
def test_on_several_cards_it_is_what_holds_on_each(simulated, spec, options, fraction):
    told = simulated(spec).ask(ASK, *options, "--enforce", "observe")
    assert told["fraction"] == int(fraction * 10000) / 10000
    assert told["usable"] == min(told["granted"]) - CONTEXT


def test_a_card_without_memory_of_its_own_has_the_host_s(simulated):
    told = simulated("GB10").ask(ASK, "--gpu-memory", "4Gi", "--enforce", "observe")
    assert 0 <= told["usable"] - told["fraction"] * told["seen"] < told["seen"] / 1000


def test_a_mig_instance_is_the_card_of_its_grant(simulated):
    told = simulated("1xA100-80GB/3g.40gb+2g.20gb").ask(ASK, "--gpu-memory", "4Gi", "--enforce", "warn")
    assert 0 <= told["usable"] - told["fraction"] * told["seen"] < told["seen"] / 1000


def test_a_whole_card_needs_no_setting_in_any_mode(simulated):
    for mode in ("observe", "enforce"):
        told = simulated().ask(ASK, "--whole", "1", "--enforce", mode)
        assert (told["needed"], told["fraction"], told["limit"]) == (False, 1.0, 16 * GIB)


TAKE = """
    from cotenant.frameworks import share
    mine = share({processes})
    assert context() == 0
    assert alloc(mine.usable)[0] == 0
    say("ready")
    {then}
"""


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_what_is_usable_is_the_grant_to_the_granule(bench, mode):
    """By the slot's own count nothing was beyond the limit; one granule more is."""
    bench.grant(2 * GIB, mode)
    bench.run(TAKE.format(processes=1, then="agree(2 * GIB)"))
    assert bench.usage().over == 0
    bench.run(TAKE.format(processes=1, then="assert alloc(2 * MIB)[0] == 0"))
    assert bench.usage().over == 1


@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_equal_processes_divide_the_grant(bench, mode):
    bench.grant(3 * GIB, mode)
    for _ in range(3):
        bench.start(TAKE.format(processes=3, then="hear()"))
    usage = bench.usage()
    assert (usage.used(0), usage.denied, usage.over) == (3 * GIB, 0, 0)


def test_the_fraction_of_a_process_among_others_is_of_what_it_sees(bench):
    """The shim shows each of them the whole grant."""
    bench.grant(2 * GIB)
    bench.run(
        """
        from cotenant.frameworks import share
        assert context() == 0
        mine, (_, total) = share(2), info()
        assert total == 2 * GIB
        assert mine.needed and "2 processes share the 2Gi" in mine.reason
        assert 0 <= mine.usable - mine.fraction * total < total / 10000
        """
    )


def test_without_the_shim_nothing_holds_the_process(bench):
    """As with musl or a static program: the slot is there, and the library is not loaded."""
    bench.grant(2 * GIB, "enforce")
    bench.run(
        """
        from cotenant.frameworks import share
        assert context() == 0
        mine, (_, total) = share(), info()
        assert (total, mine.grant.shim, mine.needed) == (16 * GIB, False, True), mine
        assert mine.fraction == (2 * GIB - 256 * MIB) * 10000 // (16 * GIB) / 10000
        assert "the shim is not loaded" in mine.reason
        """,
        shim=False,
        COTENANT_SLOT=str(bench.slot),
    )


def test_a_shim_that_was_replaced_on_disk_still_counts_as_loaded(bench, tmp_path):
    """An upgrade renames a new one over it: the kernel then lists the old one as deleted."""
    bench.grant(2 * GIB)
    copy = tmp_path / "libcotenant.so"
    shutil.copy(libraries.shim(), copy)
    bench.run(
        """
        Path(os.environ["LD_PRELOAD"]).unlink()
        from cotenant.frameworks import share
        assert share().grant.enforced
        """,
        LD_PRELOAD=str(copy),
    )


def test_without_nvml_only_sizes_in_bytes_can_be_told(bench):
    bench.grant(2 * GIB, "observe")
    bench.run(
        """
        from cotenant.frameworks import ShareError, card_size, share
        card_size.LIBRARY = "libno-such-nvml.so.1"
        mine = share()
        assert mine.environment("cupy") == {"CUPY_GPU_MEMORY_LIMIT": str(2 * GIB - 256 * MIB)}
        try:
            mine.fraction
        except ShareError as error:
            assert "libno-such-nvml.so.1 cannot be loaded" in str(error) and "1.7Gi are usable" in str(error), error
        else:
            raise AssertionError
        """
    )


def test_a_grant_that_changes_is_read_anew(bench):
    bench.grant(2 * GIB)
    slots.set_limits(bench.slot, {bench.uuid: 3 * GIB + MIB})
    bench.run("from cotenant.frameworks import share; assert share().limit == 3 * GIB + MIB")

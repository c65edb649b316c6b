"""Whose a process is on one machine, and when its slot's count stands in for the driver's."""

import pytest

from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.hardware.accounting import NOISE
from cotenant.hardware.nvml import CardProcess, CardReading
from cotenant.hardware.slots import ProcessUsage, Usage
from cotenant.local.account import account, unlimited

GIB = 1 << 30
CARD = GPU("GPU-0", 0, "T4", 16 * GIB)


@pytest.fixture
def job(make_job):
    return make_job("one", shares=(Share("GPU-0", 4 * GIB),))


def reading(used, *processes):
    return CardReading(CARD, used, tuple(CardProcess(pid, size) for pid, size in processes))


def usage(*processes):
    padding = (0,) * 15
    return Usage(tuple(ProcessUsage(pid, (size, *padding)) for pid, size in processes), (0,) * 16, 0, 0, 0)


def owner(**pids):
    return lambda pid: pids.get(f"p{pid}")


def test_what_a_grant_uses_is_not_outside(job):
    card, usages = reading(3 * GIB, (7, 3 * GIB)), {"one": usage((7, 3 * GIB))}
    found = account(card, [job], usages, owner(p7="one"))
    assert (found.used, found.outside) == ({"one": 3 * GIB}, 0)
    assert unlimited(card, usages, owner(p7="one")) == frozenset()


def test_other_processes_are_outside(job):
    found = account(reading(5 * GIB, (7, 3 * GIB), (8, 2 * GIB)), [job], {}, owner(p7="one"))
    assert found.outside == 2 * GIB
    assert [stranger.pid for stranger in found.strangers] == [8]


def test_what_a_grant_holds_beyond_itself_is_outside(job):
    """In observe and warn nothing stops it, but it is there and nobody else can have it."""
    found = account(reading(6 * GIB, (7, 6 * GIB)), [job], {}, owner(p7="one"))
    assert (found.used["one"], found.outside, found.unexplained) == (6 * GIB, 2 * GIB, 0)


def test_memory_that_nobody_answers_for_is_outside(job):
    found = account(reading(5 * GIB, (7, 3 * GIB)), [job], {}, owner(p7="one"))
    assert (found.outside, found.unexplained) == (2 * GIB, 2 * GIB)


@pytest.mark.parametrize("told", [(), ((7, None),)])
def test_where_nvml_tells_no_figures_the_slot_does(job, told):
    found = account(reading(3 * GIB, *told), [job], {"one": usage((7, 3 * GIB))}, owner(p7="one"))
    assert (found.used, found.outside) == ({"one": 3 * GIB}, 0)


def test_a_process_is_not_counted_by_both(job):
    found = account(
        reading(4 * GIB, (7, GIB)), [job], {"one": usage((7, GIB), (9, 3 * GIB))}, owner(p7="one")
    )
    assert found.used["one"] == 4 * GIB, "9 is a process in a container, which NVML calls by another number"


def test_a_container_inside_the_grant_is_counted_once(job):
    """Docker's daemon started it: 4711 descends from no job, and calls itself 1 in the slot."""
    found = account(reading(3 * GIB, (4711, 3 * GIB)), [job], {"one": usage((1, 3 * GIB))}, owner())
    assert (found.used, found.outside, found.strangers) == ({"one": 3 * GIB}, 0, ())


def test_strangers_count_even_if_the_total_was_read_at_another_moment(job):
    found = account(reading(2 * GIB, (7, 2 * GIB), (8, 2 * GIB)), [job], {}, owner(p7="one"))
    assert found.outside == 2 * GIB


def test_a_process_without_the_shim_is_noticed(job):
    assert unlimited(reading(GIB, (7, GIB)), {"one": usage()}, owner(p7="one")) == {"one"}
    assert unlimited(reading(GIB, (7, GIB)), {}, owner(p7="one")) == {"one"}
    assert unlimited(reading(GIB, (7, None), (8, GIB)), {"one": usage()}, owner(p7="one")) == frozenset()


def test_a_process_that_is_gone_or_hidden_from_us_counts(job):
    """In a container of our own, other processes of the machine cannot be found and hold memory all the same."""
    found = account(reading(2 * GIB, (999_999, 2 * GIB)), [job], {}, owner())
    assert (found.outside, found.unexplained) == (2 * GIB, 0)


def test_a_grant_that_uses_a_card_it_was_not_given_is_outside_there(make_job):
    job = make_job("one", shares=(Share("GPU-1", 4 * GIB),))
    found = account(reading(2 * GIB, (7, 2 * GIB)), [job], {}, owner(p7="one"))
    assert found.outside == 2 * GIB


def test_an_idle_driver_s_few_bytes_do_not_make_a_card_used(job):
    assert account(reading(NOISE), [], {}, owner()).outside == 0
    assert account(reading(NOISE + 1), [], {}, owner()).outside == NOISE + 1
    assert account(reading(NOISE), [job], {}, owner()).outside == NOISE

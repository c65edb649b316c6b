"""Who holds a GPU's memory: every byte in use is somebody's, none is counted twice, and no grant counts on it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.gpu import GPU
from cotenant.hardware.accounting import NOISE, GpuAccount, account
from cotenant.hardware.nvml import CardProcess, CardReading

GIB = 2**30
ONE, TWO = "one", "two"


def card(*processes: tuple[int, int | None], used: int | None = None) -> CardReading:
    total = sum(size or 0 for _, size in processes) if used is None else used
    return CardReading(
        GPU("GPU-0", 0, "A100", 80 * GIB), total, tuple(CardProcess(pid, size) for pid, size in processes)
    )


def found(reading, owners=None, granted=None, counted=None) -> GpuAccount:
    return account(reading, owners or {}, granted or {}, counted or {})


def outside(*arguments, **more) -> int:
    return found(*arguments, **more).outside


def test_a_gpu_that_nobody_uses_has_nothing_outside():
    assert found(card()) == GpuAccount({}, 0, 0)


def test_what_a_grant_covers_is_not_outside():
    accounted = found(card((5, 4 * GIB), (6, GIB)), {5: ONE, 6: ONE}, {ONE: 8 * GIB})
    assert accounted == GpuAccount({ONE: 5 * GIB}, 0, 0)


def test_what_a_holder_uses_beyond_its_grant_is_outside():
    accounted = found(card((5, 4 * GIB), (6, 6 * GIB)), {5: ONE, 6: ONE}, {ONE: 8 * GIB})
    assert (accounted.used, accounted.outside, accounted.unexplained) == ({ONE: 10 * GIB}, 2 * GIB, 0)


def test_a_process_of_no_holder_is_outside_and_named():
    accounted = found(card((5, 3 * GIB)), {5: None})
    assert accounted.outside == 3 * GIB
    assert [process.pid for process in accounted.strangers] == [5]


def test_a_holder_without_a_grant_on_this_gpu_is_outside():
    assert outside(card((5, 3 * GIB), (6, GIB)), {5: TWO, 6: ONE}, {ONE: GIB}) == 3 * GIB


def test_memory_that_no_process_answers_for_is_outside():
    accounted = found(card((5, 4 * GIB), used=5 * GIB), {5: ONE}, {ONE: 4 * GIB})
    assert (accounted.outside, accounted.unexplained) == (GIB, GIB)


def test_unexplained_memory_counts_when_two_looks_find_it():
    accounted = found(card((5, 4 * GIB), used=5 * GIB), {5: ONE}, {ONE: 4 * GIB})
    assert accounted.confirmed(0).outside == 0
    assert accounted.confirmed(GIB // 2).outside == GIB // 2
    assert accounted.confirmed(2 * GIB).outside == GIB
    assert accounted.confirmed(None).outside == GIB, "there was no look before"


def test_a_process_that_has_ended_holds_nothing():
    """Its pid is missing: the driver's list is older than the lookup."""
    assert found(card((5, 3 * GIB), (6, GIB)), {6: ONE}, {ONE: GIB}) == GpuAccount({ONE: GIB}, 0, 0)


def test_strangers_count_even_if_the_total_was_read_at_another_moment():
    assert (
        outside(card((7, 2 * GIB), (8, 2 * GIB), used=2 * GIB), {7: ONE, 8: None}, {ONE: 4 * GIB}) == 2 * GIB
    )


def test_where_the_driver_reports_no_figures_the_slots_do():
    reading = card((5, None), (6, None), used=10 * GIB)
    assert outside(reading, {5: ONE, 6: None}, {ONE: 8 * GIB}, {ONE: 7 * GIB}) == 3 * GIB
    assert outside(reading, {5: ONE}, {ONE: 4 * GIB}, {ONE: 7 * GIB}) == 6 * GIB, "no more than the grant"
    assert outside(reading, {5: ONE}, {}, {ONE: 7 * GIB}) == 10 * GIB
    assert outside(card((5, None), used=GIB), {5: ONE}, {ONE: 4 * GIB}, {ONE: 2 * GIB}) == 0


def test_driver_and_slots_add_up_where_each_knows_a_part():
    """On a node it was one or the other: one process without a figure made all figures worthless."""
    reading = card((5, 2 * GIB), (6, None), (7, GIB), used=6 * GIB)
    accounted = found(reading, {5: ONE, 6: ONE, 7: None}, {ONE: 8 * GIB}, {ONE: 3 * GIB})
    assert accounted.used == {ONE: 5 * GIB}
    assert (accounted.beyond, accounted.unexplained) == (GIB, 0)


def test_a_container_inside_a_grant_is_not_outside_as_well():
    """A daemon started it: by its pid on the host it is nobody's, by its own pid the slot counts it."""
    accounted = found(card((4711, 3 * GIB)), {4711: None}, {ONE: 4 * GIB}, {ONE: 3 * GIB})
    assert accounted == GpuAccount({ONE: 3 * GIB}, 0, 0)


def test_a_stranger_beside_a_container_inside_a_grant_stays_outside():
    reading = card((4711, 3 * GIB), (8, 2 * GIB))
    accounted = found(reading, {4711: None, 8: None}, {ONE: 4 * GIB}, {ONE: 3 * GIB})
    assert (accounted.outside, len(accounted.strangers)) == (2 * GIB, 2)
    more = found(card((4711, 3 * GIB)), {4711: None}, {ONE: 4 * GIB}, {ONE: 2 * GIB})
    assert more.outside == GIB, "what the slot does not count is nobody's"
    other = found(card((8, 2 * GIB), used=5 * GIB), {8: None}, {ONE: 4 * GIB}, {ONE: 3 * GIB})
    assert other.outside == 2 * GIB, "both are in use"


def test_a_few_mib_on_a_gpu_that_nobody_uses_are_noise():
    assert outside(card(used=NOISE)) == 0
    assert outside(card(used=NOISE + 1)) == NOISE + 1
    assert outside(card(used=NOISE), granted={ONE: GIB}) == NOISE, "a grant cannot have them"


def test_a_process_without_a_figure_is_no_noise():
    """On a node it was taken for noise, on one machine not: somebody uses this GPU."""
    assert outside(card((5, None), used=NOISE), {5: None}) == NOISE


def test_little_memory_of_a_known_process_is_no_noise():
    """On one machine it was taken for noise where its holder had no grant here, on a node not."""
    assert outside(card((5, 50 << 20)), {5: ONE}) == 50 << 20


sizes = st.integers(min_value=0, max_value=100 * GIB)
holders = st.sampled_from([ONE, TWO, None, "ended"])
processes = st.lists(st.tuples(st.none() | sizes, holders), max_size=6)
by_holder = st.dictionaries(st.sampled_from([ONE, TWO]), sizes)


@given(processes, sizes, by_holder, by_holder)
def test_grants_and_outside_are_never_less_than_what_is_in_use(told, used, granted, counted):
    reading = card(*((pid, size) for pid, (size, _) in enumerate(told)), used=used)
    owners = {pid: owner for pid, (_, owner) in enumerate(told) if owner != "ended"}
    accounted = account(reading, owners, granted, counted)
    ended = sum(size or 0 for size, owner in told if owner == "ended")
    covered = sum(min(size, granted.get(holder, 0)) for holder, size in accounted.used.items())
    assert accounted.beyond >= 0
    assert accounted.unexplained >= 0
    if accounted.outside or granted:
        assert covered + accounted.outside >= used - ended
        assert sum(granted.values()) + accounted.outside >= used - ended
    else:
        assert used - ended <= NOISE


@given(processes, sizes, by_holder, by_holder)
def test_nothing_is_counted_twice(told, used, granted, counted):
    reading = card(*((pid, size) for pid, (size, _) in enumerate(told)), used=used)
    owners = {pid: owner for pid, (_, owner) in enumerate(told) if owner != "ended"}
    accounted = account(reading, owners, granted, counted)
    known = sum(size or 0 for size, owner in told if owner != "ended") + sum(counted.values())
    covered = sum(min(size, granted.get(holder, 0)) for holder, size in accounted.used.items())
    ended = sum(size or 0 for size, owner in told if owner == "ended")
    of_nobody = sum(size or 0 for size, owner in told if owner is None)
    twice = max(0, min(known - (used - ended), of_nobody, sum(counted.values())))
    assert covered + accounted.beyond == known - twice
    assert covered + accounted.outside <= max(used, known)


@given(processes, sizes, by_holder, st.none() | sizes)
def test_another_look_takes_unexplained_memory_only(told, used, granted, before):
    reading = card(*((pid, size) for pid, (size, _) in enumerate(told)), used=used)
    accounted = account(reading, {pid: None for pid, _ in enumerate(told)}, granted, {})
    assert accounted.beyond <= accounted.confirmed(before).outside <= accounted.outside


@pytest.mark.parametrize("size", [0, None])
def test_a_slot_that_counts_nothing_makes_no_user(size):
    assert found(card((5, size)), {5: None}, {ONE: GIB}, {ONE: 0}).used == {}

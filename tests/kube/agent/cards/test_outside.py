"""What no grant covers is outside."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.gpu import GPU
from cotenant.hardware.nvml import CardProcess, CardReading
from cotenant.kube.agent.cards.outside import NOISE, STEP, outside_of

GIB = 2**30
UID = "0a1b2c3d-1111-2222-3333-444455556666"
OTHER = "ffffffff-1111-2222-3333-444455556666"


def card(*processes: tuple[int, int | None], used: int | None = None) -> CardReading:
    total = sum(size or 0 for _, size in processes) if used is None else used
    return CardReading(
        GPU("GPU-0", 0, "A100", 80 * GIB), total, tuple(CardProcess(pid, size) for pid, size in processes)
    )


def outside(reading, pods=None, granted=None, counted=None, before=None):
    return outside_of(reading, pods or {}, granted or {}, counted or {}, before).bytes


def test_an_idle_card_has_nothing_outside():
    assert outside(card()) == 0


def test_what_a_grant_covers_is_not_outside():
    assert outside(card((5, 4 * GIB), (6, GIB)), {5: UID, 6: UID}, {UID: 8 * GIB}) == 0


def test_what_a_pod_holds_beyond_its_grant_is_outside():
    assert outside(card((5, 4 * GIB), (6, 6 * GIB)), {5: UID, 6: UID}, {UID: 8 * GIB}) == 2 * GIB


def test_a_process_of_no_pod_is_outside():
    assert outside(card((5, 3 * GIB)), {5: None}) == 3 * GIB


def test_a_pod_without_a_grant_on_this_card_is_outside():
    assert outside(card((5, 3 * GIB), (6, GIB)), {5: OTHER, 6: UID}, {UID: GIB}) == 3 * GIB


def test_it_is_rounded_up_so_that_it_seldom_changes():
    assert outside(card((5, 1)), {5: None}) == STEP
    assert outside(card((5, GIB + 1)), {5: None}) == GIB + STEP
    assert outside(card((5, GIB + STEP)), {5: None}) == GIB + STEP


def test_a_process_that_ended_meanwhile_is_not_counted():
    assert outside(card((5, 3 * GIB), (6, GIB)), {6: UID}, {UID: GIB}) == 0


def test_memory_that_no_process_answers_for_counts_when_it_is_seen_twice():
    reading = card((5, 4 * GIB), used=5 * GIB)
    first = outside_of(reading, {5: UID}, {UID: 4 * GIB}, {}, 0)
    assert (first.bytes, first.unexplained) == (0, GIB)
    assert outside_of(reading, {5: UID}, {UID: 4 * GIB}, {}, first.unexplained).bytes == GIB
    assert outside_of(reading, {5: UID}, {UID: 4 * GIB}, {}, None).bytes == GIB, "nothing is known yet"


def test_a_few_mib_on_a_card_that_nobody_uses_are_noise():
    assert outside(card(used=NOISE)) == 0
    assert outside(card(used=NOISE + 1)) == NOISE + STEP
    assert outside(card(used=NOISE), granted={UID: GIB}) == NOISE, "a grant cannot have them"


def test_where_the_driver_does_not_tell_processes_the_slots_do():
    reading = card((5, None), (6, None), used=10 * GIB)
    assert outside(reading, {5: UID, 6: None}, {UID: 8 * GIB}, {UID: 7 * GIB}) == 3 * GIB
    assert outside(reading, {5: UID}, {UID: 4 * GIB}, {UID: 7 * GIB}) == 6 * GIB, "no more than the grant"
    assert outside(reading, {5: UID}, {}, {UID: 7 * GIB}) == 10 * GIB
    assert outside(card((5, None), used=GIB), {5: UID}, {UID: 4 * GIB}, {UID: 2 * GIB}) == 0


sizes = st.integers(min_value=0, max_value=100 * GIB)
owners = st.sampled_from([UID, OTHER, None])


@given(
    st.lists(st.tuples(sizes, owners), max_size=6),
    st.dictionaries(st.sampled_from([UID, OTHER]), sizes),
    sizes,
    st.none() | sizes,
)
def test_outside_and_what_grants_cover_explain_all_that_is_in_use(processes, granted, more, before):
    told = [(pid, size) for pid, (size, _) in enumerate(processes)]
    reading = card(*told, used=sum(size for _, size in told) + more)
    pods = {pid: owner for pid, (_, owner) in enumerate(processes)}
    found = outside_of(reading, pods, granted, {}, before)
    assert found.bytes >= 0
    assert found.bytes % STEP == 0
    assert found.unexplained == more
    strangers = sum(size for size, owner in processes if owner is None)
    assert found.bytes >= strangers
    assert found.bytes < reading.used + STEP
    if before is None and more > NOISE:
        assert found.bytes + sum(granted.values()) >= reading.used

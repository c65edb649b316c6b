"""The judge of bursts sees a backlog that stays late, and every turn."""

import pytest
from cluster.cotenant.backlog import Seen


def seen(waiting: list[int], ready: list[int], wanted: list[int]) -> Seen:
    """A figure a second, of each."""
    series = [[(float(at), count) for at, count in enumerate(each)] for each in (wanted, ready, waiting)]
    return Seen(*series)


@pytest.mark.parametrize(
    ("waiting", "ready", "after"),
    [
        ([0, 10, 10, 4, 0], [0, 0, 1, 1, 1], 4),  # 4 messages of 1 s on one replica are 4 s: late
        ([0, 10, 10, 4, 0], [0, 0, 5, 5, 5], 2),  # 10 on five are 2 s
        ([0, 0, 0, 0, 0], [0, 0, 0, 0, 0], 0),  # nothing waits: no replica is needed
        ([0, 10, 0, 10, 0], [5, 1, 5, 1, 5], 4),  # in time, and late again
        ([0, 1, 1, 1, 1], [0, 0, 0, 0, 0], 4),  # one message that nobody takes is late for ever
    ],
)
def test_a_backlog_is_under_its_target_once_it_stays_so(waiting: list[int], ready: list[int], after: int):
    assert seen(waiting, ready, ready).under(target=3.0, seconds=1.0, begun=0.0) == after


@pytest.mark.parametrize(
    ("wanted", "turns"), [([0, 4, 9, 0], 1), ([0, 4, 3, 9, 0], 3), ([1, 5], 0), ([2, 0, 2], 1)]
)
def test_a_turn_is_a_change_of_direction(wanted: list[int], turns: int):
    assert seen([0], [0], wanted).turns == turns


def test_what_was_before_counts_only_as_the_state_that_was_found():
    begun = 2.5
    later = seen([7, 8, 9, 1, 0], [1, 1, 1, 1, 1], [5, 1, 1, 6, 1]).since(begun)
    assert later.wanted == [(begun, 1), (3.0, 6), (4.0, 1)]
    assert (later.turns, later.most) == (1, 6)
    assert later.under(target=3.0, seconds=1.0, begun=begun) == 0.5

"""A pod that works every few seconds is reported seldom."""

from __future__ import annotations

from cotenant.kube.agent.idle.rhythm import Rhythm


def writes_of(gap: float, seconds: float, after: float = 10.0) -> int:
    """Plays a pod that launches a kernel every `gap` seconds; returns how often it would be written."""
    rhythm, writes, last = Rhythm(after), 0, 0.0
    while last < seconds:
        if gap >= rhythm.needed("u", last + gap - 0.001):
            writes += 2
            rhythm.resumed("u", gap, last + gap)
        last += gap
    return writes


def test_the_first_idleness_is_reported_after_the_usual_time() -> None:
    assert Rhythm(10.0).needed("u", 0.0) == 10.0


def test_a_launch_every_few_seconds_costs_two_writes_in_ten_minutes() -> None:
    for gap in (10.5, 11.0, 20.0, 29.0):
        assert writes_of(gap, 3600) <= 2 * 7, gap


def test_at_worst_there_are_four_writes_in_a_minute() -> None:
    for gap in (30.5, 31.0, 40.0, 60.0):
        assert writes_of(gap, 3600) <= 4 * 60, gap
    assert writes_of(9.0, 3600) == 0


def test_a_pod_that_stays_idle_for_long_is_reported_in_the_usual_time_again() -> None:
    rhythm = Rhythm(10.0)
    rhythm.resumed("u", 500.0, 1000.0)
    assert rhythm.needed("u", 1001.0) == 10.0
    rhythm.resumed("u", 11.0, 1000.0)
    assert (rhythm.needed("u", 1599.0), rhythm.needed("u", 1600.0)) == (30.0, 10.0)


def test_others_are_not_affected_and_the_gone_are_forgotten() -> None:
    rhythm = Rhythm(10.0)
    rhythm.resumed("u", 11.0, 0.0)
    assert rhythm.needed("other", 1.0) == 10.0
    rhythm.keep({"other"})
    assert rhythm.needed("u", 1.0) == 10.0

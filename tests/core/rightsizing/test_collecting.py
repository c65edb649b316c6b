"""Samples become histories, in whatever order they come."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core.rightsizing.collecting import STEP, Collector
from cotenant.core.rightsizing.history import Track

SAMPLES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 40), st.floats(0, 1e12)), min_size=1, max_size=80
)
Sample = tuple[str, float, float]


def collected(samples: list[Sample], **options: int) -> dict[str, Track]:
    collector: Collector[str] = Collector(**options)
    for key, at, value in samples:
        collector.add(key, at, value)
    return collector.tracks()[0]


def expected(samples: list[Sample], step: float = STEP) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for key, at, value in samples:
        own = found.setdefault(key, {})
        bucket = int(at // step)
        own[bucket] = max(value, own.get(bucket, 0.0))
    return found


def as_dicts(tracks: dict[str, Track]) -> dict[str, dict[int, float]]:
    return {key: dict(zip(each.buckets, each.peaks, strict=True)) for key, each in tracks.items()}


@given(SAMPLES)
def test_each_bucket_has_its_highest_sample_in_any_order(samples: list[tuple[str, int, float]]) -> None:
    timed = [(key, number * 100.0, value) for key, number, value in samples]
    tracks = collected(timed)
    assert as_dicts(tracks) == expected(timed)
    for key, each in tracks.items():
        assert list(each.buckets) == sorted(each.buckets)
        assert each.peak == max(value for own, _, value in timed if own == key)
        assert each.samples == sum(own == key for own, _, _ in timed)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 60), st.booleans())
def test_many_at_once_are_the_same_as_one_by_one(seed: int, keys: int, moments: int, shuffled: bool) -> None:
    source = random.Random(seed)
    samples = [
        (f"k{key}", 1e9 + moment * 60.0, source.random() * 1e10)
        for moment in range(moments)
        for key in range(keys)
    ]
    if shuffled:
        source.shuffle(samples)
    at_once: Collector[str] = Collector()
    while samples_left := samples[: source.randint(1, 200)]:
        at_once.add_many(*map(list, zip(*samples_left, strict=True)))
        samples = samples[len(samples_left) :]
    again = [
        (key, each.buckets[place] * STEP, peak)
        for key, each in at_once.tracks()[0].items()
        for place, peak in enumerate(each.peaks)
    ]
    assert as_dicts(at_once.tracks()[0]) == expected(again)
    source = random.Random(seed)
    whole = [
        (f"k{key}", 1e9 + moment * 60.0, source.random() * 1e10)
        for moment in range(moments)
        for key in range(keys)
    ]
    assert as_dicts(at_once.tracks()[0]) == expected(whole)


def test_replicas_that_share_a_name_and_a_moment_are_pooled() -> None:
    collector: Collector[str] = Collector()
    collector.add_many(["a", "a", "b", "b"], [600.0] * 4, [3.0, 5.0, 2.0, 1.0])
    assert as_dicts(collector.tracks()[0]) == {"a": {2: 5.0}, "b": {2: 2.0}}


def test_a_line_of_one_key() -> None:
    collector: Collector[str] = Collector()
    collector.add_line("a", [150.0, 450.0, 460.0], [1.0, 2.0, 3.0])
    assert as_dicts(collector.tracks()[0]) == {"a": {0: 1.0, 1: 3.0}}
    assert collector.tracks()[0]["a"].samples == 3


@given(SAMPLES, SAMPLES)
def test_two_collectors_become_one(
    one: list[tuple[str, int, float]], other: list[tuple[str, int, float]]
) -> None:
    made = [Collector[str](), Collector[str](600.0)]
    both = []
    for collector, samples in zip(made, (one, other), strict=True):
        for key, number, value in samples:
            collector.add(key, number * 100.0, value)
            both.append((key, number * 100.0, value))
    made[0].absorb(made[1])
    tracks, _ = made[0].tracks()
    assert made[0].step == 600.0
    assert as_dicts(tracks) == expected(both, 600.0)
    assert sum(each.samples for each in tracks.values()) == len(both)


def test_buckets_become_longer_where_memory_would_not_do() -> None:
    samples = [("a", day * 86400.0, float(day)) for day in range(3000)]
    collector: Collector[str] = Collector(most_pieces=100)
    for each in samples:
        collector.add(*each)
    assert collector.step > STEP
    assert len(collector.series["a"]) <= 100
    assert as_dicts(collector.tracks()[0])["a"].items() <= expected(samples, collector.step)["a"].items()


@pytest.mark.parametrize("wrong", [0.0, 9e10, -9e10])
def test_samples_of_another_age_are_left_out(wrong: float) -> None:
    collector: Collector[str] = Collector()
    collector.add("a", wrong, 9.0)
    for number in range(1000):
        collector.add("a", 1.7e9 + number * 300, 1.0)
    collector.add("b", wrong, 5.0)
    tracks, dropped = collector.tracks()
    assert dropped == 2
    assert set(tracks) == {"a"}
    assert tracks["a"].peak == 1.0
    assert abs(tracks["a"].peak_at - 1.7e9) < 1e6


@pytest.mark.parametrize("years", [-10, 10])
def test_few_samples_of_another_year_are_left_out_wherever_they_are(years: int) -> None:
    """Of a clock that jumps back and forth, every piece of either year has samples."""
    collector: Collector[str] = Collector()
    for number in range(1000):
        wrong = number % 7 == 0
        at = 1.7e9 + number * 300 + (years * 365 * 86400.0 if wrong else 0.0)
        collector.add("a", at, 9.0 if wrong else 1.0)
    tracks, dropped = collector.tracks()
    assert dropped == 143
    assert tracks["a"].peak == 1.0


def test_times_before_1970_and_from_zero_are_times_too() -> None:
    assert as_dicts(collected([("a", -450.0, 1.0), ("a", 0.0, 2.0), ("a", -1.0, 3.0)])) == {
        "a": {-2: 1.0, -1: 3.0, 0: 2.0}
    }

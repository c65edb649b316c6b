"""A figure with its evidence, or the reason why there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core.rightsizing.made import GIB, group, track
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core.rightsizing.advice import Advice, Rules, advise, next_step
from cotenant.core.rightsizing.backtest import SPLITS
from cotenant.core.rightsizing.headroom import FLOOR
from cotenant.core.rightsizing.strategies import STRATEGIES

STEP = 300.0
HALF_A_DAY = 144
RULES = Rules(min_history=HALF_A_DAY * STEP, starts_are_seen=False)


def only(*groups: object, rules: Rules = RULES) -> Advice:
    (one,) = advise(groups, STEP, rules).advice  # type: ignore[arg-type]
    return one


@settings(max_examples=20)
@given(
    st.lists(
        st.lists(st.one_of(st.none(), st.floats(1, 1e12)), min_size=HALF_A_DAY, max_size=200).filter(
            lambda levels: levels[0] is not None and levels[-1] is not None
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["peak", "max", "pool"]),
)
def test_the_figure_is_at_least_the_pooled_peak_and_fifteen_percent(
    levels: list[list[float | None]], strategy: str
) -> None:
    tracks = [track(each, str(at)) for at, each in enumerate(levels)]
    for groups in (
        [group(*tracks)],
        [group(each, workload=each.instance, siblings=tracks) for each in tracks],
    ):
        report = advise(groups, STEP, replace(RULES, strategy=strategy))
        for one in report.advice:
            if one.reason == "few-samples":
                continue
            own = max(each.peak for each in one.group.tracks)
            assert one.target is not None
            assert one.target >= own * (1 + FLOOR)
            assert one.target <= max(each.peak for each in tracks) * 2.05 + 1
            assert one.evidence.peak == round(own)


def test_evidence_says_how_much_when_and_whose() -> None:
    one = only(group(track([5 * GIB] * 200, "a"), track([5 * GIB] * 100 + [6 * GIB] + [5 * GIB] * 99, "b")))
    assert (one.evidence.peak, one.evidence.peak_of, one.evidence.peak_at) == (6 * GIB, "b", 100 * STEP)
    assert (one.evidence.samples, one.evidence.instances, one.evidence.alive) == (400, 2, 2)
    assert one.evidence.history == 200 * STEP
    assert one.evidence.starts is None


def test_too_little_history_is_refused_with_what_is_missing() -> None:
    one = only(group(track([GIB] * 132)))
    assert (one.advised, one.target, one.reason) == (None, None, "short-history")
    assert one.why == "11h of samples, 12h are needed: wait, or lower --min-history"
    assert only(group(track([GIB] * HALF_A_DAY))).advised is not None


def test_half_a_day_may_begin_some_minutes_late() -> None:
    assert only(group(track([GIB] * 137, first=7))).advised is not None


@pytest.mark.parametrize("every", [2, 3, 6, 12])
def test_the_last_sample_stands_for_the_time_until_the_next(every: int) -> None:
    """Otherwise half of a day in samples an hour apart would be an hour short of half a day."""
    one = only(group(track([GIB if at % every == 0 else None for at in range(HALF_A_DAY)])))
    assert one.evidence.history == HALF_A_DAY * STEP
    assert one.advised is not None


def test_a_new_version_that_is_refused_names_the_peak_of_the_one_before() -> None:
    made = replace(group(track([GIB] * 10)), former=3.0 * GIB)
    assert only(made).why.endswith("; the version before it had a peak of 3Gi")


def test_a_history_that_is_mostly_gaps_is_refused() -> None:
    one = only(group(track([GIB, *[None] * 400, GIB])))
    assert one.reason == "few-samples"


@pytest.mark.parametrize("every", [1, 3, 12])
def test_samples_may_be_an_hour_apart(every: int) -> None:
    levels = [GIB if at % every == 0 else None for at in range(2 * HALF_A_DAY + 1)]
    one = only(group(track(levels)))
    assert one.advised is not None
    assert one.evidence.alive == 1


def test_a_gap_does_not_count_as_history() -> None:
    one = only(group(track([*[GIB] * 15, *[None] * 400, *[GIB] * 15])))
    assert one.reason == "few-samples"
    assert one.why == "samples of 2h40m in 35h50m: most are missing: sample more often"


def test_a_container_that_used_nothing_is_refused() -> None:
    assert only(group(track([0] * 200))).reason == "unused"


def test_fewer_than_two_cold_starts_are_refused_where_they_can_be_seen() -> None:
    seen = replace(RULES, starts_are_seen=True)
    steady, started = track([GIB] * 200, "a"), track([GIB] * 100, "b", first=100)
    early = group(track([GIB] * 200), workload="other")
    advice = advise([group(steady, started), early], STEP, seen).advice
    assert [each.reason for each in advice] == ["few-starts", "few-starts"]
    assert advice[0].evidence.starts == 1
    assert "1 cold starts seen, 2 are needed" in advice[0].why
    assert all(each.advised for each in advise([group(steady, started), early], STEP, RULES).advice)
    assert all(
        each.advised for each in advise([group(steady), early], STEP, replace(seen, min_starts=0)).advice
    )


def test_peaks_since_the_start_show_the_start_of_each_pod() -> None:
    seen = replace(RULES, starts_are_seen=True)
    pods = [track([GIB] * 200, name, since_start=True) for name in "ab"]
    assert only(group(*pods), rules=seen).evidence.starts == 2


def test_what_is_refused_and_too_low_already_is_said_to_be_raised_at_once() -> None:
    one = only(replace(group(track([3 * GIB] * 20)), now=2 * GIB))
    assert one.reason == "short-history"
    assert "it has used 3Gi and asks for 2Gi: raise it to at least 3.4Gi now" in one.why


def test_where_allocations_failed_the_peak_is_not_what_it_needs() -> None:
    made = replace(group(track([7.9 * GIB] * 400)), now=8 * GIB, denied=3)
    one = only(made, rules=replace(RULES, headroom=0.15))
    assert one.target == one.advised == 10 * GIB
    assert one.confidence == "low"
    one = only(replace(group(track([GIB] * 20)), now=8 * GIB, denied=3))
    assert "3 allocations failed at its limit of 8Gi: raise it to at least 10Gi now" in one.why


def test_a_card_that_others_share_gives_no_figure() -> None:
    one = only(replace(group(track([GIB] * 200)), shared_with="it shares a GPU with b"))
    assert (one.reason, one.why) == ("not-its-own", "it shares a GPU with b")


@given(st.one_of(st.none(), st.integers(1, 1 << 40)), st.integers(1, 1 << 40), st.floats(0.01, 1.0))
def test_more_is_advised_at_once_and_less_in_steps(now: int | None, target: int, lower_by: float) -> None:
    step = next_step(now, target, lower_by)
    assert step >= target
    if now is None or target >= now:
        assert step == target
    else:
        assert step <= now * (1 - lower_by) * 65 / 64 + 1 or step == target
        for _ in range(2000):
            if step == target:
                break
            assert next_step(step, target, 0.25) < step or step < 64, "it arrives"
            step = next_step(step, target, 0.25)


def test_several_gpus_are_advised_together_by_the_fullest() -> None:
    tracks = [track([GIB] * 200, "pod", gpu="1"), track([3 * GIB] * 200, "pod", gpu="2")]
    one = only(replace(group(*tracks), now=4 * GIB), rules=replace(RULES, headroom=0.5))
    assert one.gpus == 2
    assert one.now == 8 * GIB
    assert one.target == 9 * GIB


def test_headroom_can_be_set() -> None:
    report = advise([group(track([64 * GIB] * 200))], STEP, replace(RULES, headroom=0.25))
    assert report.advice[0].target == 80 * GIB
    assert report.learned_from == 0
    assert report.tested is not None


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_of_the_table_advises_and_is_tested_on_the_past(strategy: str) -> None:
    groups = [
        group(track([GIB * (1 + at % 7) for at in range(400)], str(n)), workload=str(n)) for n in range(8)
    ]
    report = advise(groups, STEP, replace(RULES, strategy=strategy))
    assert all(each.target for each in report.advice)
    assert report.tested is not None
    assert report.tested.containers == 8 * len(SPLITS)


def test_percentiles_miss_what_the_peak_covers() -> None:
    rare = [10 * GIB if at % 40 == 20 else GIB for at in range(800)]
    groups = [group(track(rare, str(n)), workload=str(n)) for n in range(8)]
    tested = {name: advise(groups, STEP, replace(RULES, strategy=name)).tested for name in ("peak", "p90")}
    assert tested["peak"] is not None
    assert tested["p90"] is not None
    assert tested["peak"].miss == 0
    assert tested["p90"].miss == 1


def test_versions_of_the_past_are_learned_from_and_not_advised() -> None:
    past = [group(track([GIB] * 400, str(n)), workload=str(n)) for n in range(20)]
    report = advise([group(track([GIB] * 300, first=100), workload="new")], STEP, RULES, past)
    assert [each.group.owner.workload for each in report.advice] == ["new"]
    assert report.learned_from > 20


@pytest.mark.parametrize(
    ("levels", "instances", "confidence"),
    [
        ([GIB] * 2016, 2, "high"),
        ([GIB] * 2016, 1, "medium"),
        ([GIB] * 1000, 2, "medium"),
        ([GIB] * 200, 2, "low"),
        ([GIB] * 1500 + [2 * GIB] * 516, 2, "low"),
    ],
)
def test_confidence_grows_with_time_and_replicas_and_falls_with_new_peaks(
    levels: list[int], instances: int, confidence: str
) -> None:
    one = only(group(*(track(levels, str(at)) for at in range(instances))))
    assert one.confidence == confidence


def test_what_is_saved_counts_those_that_run_at_the_end() -> None:
    gone, here = track([GIB] * 200, "gone"), [track([GIB] * 400, str(at)) for at in range(3)]
    one = only(replace(group(gone, *here), now=4 * GIB), rules=replace(RULES, headroom=1.0, lower_by=0.25))
    assert (one.target, one.advised) == (2 * GIB, 3 * GIB)
    assert one.saved == 3 * GIB

"""Runs of this machine as histories."""

from __future__ import annotations

from cotenant.core.rightsizing.advice import Rules, advise
from cotenant.local.ended import EndedJob, EndedShare
from cotenant.local.past_runs import past_runs

GIB = 1 << 30


def run(
    id: str,
    name: str,
    *peaks: int | None,
    ended: float = 1e9,
    workload: str | None = None,
    limit: int = 8 * GIB,
    denied: int = 0,
) -> EndedJob:
    shares = tuple(EndedShare(f"GPU-{at}", limit, peak) for at, peak in enumerate(peaks))
    return EndedJob(
        id=id,
        name=name,
        user="me",
        command=("train",),
        mode="enforce",
        enforcer="shim",
        whole=False,
        shares=shares,
        denied=denied,
        over=0,
        ended=ended,
        seconds=60.0,
        code=0,
        workload=workload,
    )


def test_runs_of_one_name_and_replicas_of_one_workload_are_pooled() -> None:
    ended = [
        run("1", "train", 3 * GIB),
        run("2", "train-2", 4 * GIB),
        run("3", "web-7", GIB, workload="web"),
        run("4", "web-8", 2 * GIB, workload="web"),
        run("5", "epoch-3", GIB),
    ]
    found = past_runs(ended, "here")
    peaks = {each.owner.workload: [track.peak for track in each.tracks] for each in found.groups}
    assert peaks == {"train": [3 * GIB, 4 * GIB], "web": [GIB, 2 * GIB], "epoch-3": [GIB]}
    assert not found.live


def test_runs_whose_peak_is_not_known_are_left_out_and_counted() -> None:
    found = past_runs([run("1", "a", None), run("2", "a", 0), run("3", "a", GIB)], "here")
    assert found.samples == 1
    assert found.notes == ("2 runs used no GPU, or were not limited by the shim: left out",)


def test_only_what_failed_at_the_present_limit_counts() -> None:
    before = run("1", "a", GIB, limit=GIB, denied=5)
    (group,) = past_runs([before, run("2", "a", 2 * GIB, ended=1e9 + 9, limit=4 * GIB)], "here").groups
    assert (group.now, group.denied) == (4 * GIB, 0)
    (group,) = past_runs([before], "here").groups
    assert group.denied == 5


def test_two_runs_are_enough_and_several_gpus_count_by_the_fullest() -> None:
    found = past_runs([run("1", "a", GIB, 3 * GIB), run("2", "a", GIB, GIB, ended=1e9 + 9e5)], "here")
    (one,) = advise(found.groups, found.step, Rules(min_history=0.0)).advice
    assert one.gpus == 2
    assert one.evidence.starts == 2
    assert one.now == 16 * GIB
    assert one.target is not None
    assert one.target >= 2 * 3 * GIB * 1.15
    (one,) = advise(past_runs([run("1", "a", GIB)], "here").groups, 300.0, Rules(min_history=0.0)).advice
    assert one.reason == "few-starts"

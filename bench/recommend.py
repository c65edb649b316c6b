"""Measures advice on traces that it has not seen: how many containers pass it later, and what it wastes.

    python -m bench.recommend            strategies x families of traces: misses and slack
    python -m bench.recommend --scale    time and memory for 30 days of 500 containers

Each trace is cut in two. The first part makes the advice, the second is held back. A miss is a container
whose later peak is above its advice. Slack is what the advice is above the later peak, as a part of that
peak: the mean over containers, which one that falls idle may decide. `of sums` is that of all advice over all
later peaks, which large containers decide. `told` is the rate of misses that the back-test reported, `kept`
how many traces had at most 5 % misses at less than 40 % slack by the mean, and by the sums. The families are
in `bench/memory_traces.py`, those with a star were not used to make the rule. It fails if the default ever
misses more than the peak and 15 %.
"""

from __future__ import annotations

import argparse
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.figures import Figure, record
from bench.memory_traces import FAMILIES, HELD_OUT, LATER, Family, Samples, trace
from cotenant.core.rightsizing.advice import Rules, advise
from cotenant.core.rightsizing.collecting import STEP
from cotenant.core.rightsizing.groups import Owner, by_column
from cotenant.core.rightsizing.history import Track

LEAST = 12 * 3600.0
MISS, SLACK = 5.0, 40.0
"""Percent: a trace is kept if the default strategy has at most so many misses at less slack."""


@dataclass(frozen=True)
class Result:
    """Percent over the containers of one trace that got advice and were there later."""

    containers: int
    miss: float
    slack: float
    """Of the later peak."""
    of_sums: float
    """That of all advice together, of all later peaks together."""
    told: float
    """The rate of misses that the back-test told."""


def track_of(samples: Samples) -> Track:
    """Makes the history that reading the samples would make, but quickly."""
    numbers, begins = np.unique((samples.times // STEP).astype(np.int64), return_index=True)
    peaks = np.maximum.reduceat(samples.bytes, begins)
    top = int(np.argmax(samples.bytes))
    return Track(
        samples.container,
        "",
        array("q", numbers.tolist()),
        array("d", peaks.tolist()),
        len(samples.times),
        float(samples.bytes[top]),
        float(samples.times[top]),
    )


def advised(known: Iterable[Samples], rules: Rules) -> tuple[dict[tuple[str, str], int], float]:
    """Returns the advice for each container, and the rate of misses in the back-test."""
    tracks = {Owner(each.workload, "", each.container): [track_of(each)] for each in known if len(each.times)}
    groups, _ = by_column(tracks)
    report = advise(groups, STEP, rules)
    found = {
        (each.group.owner.workload, track.instance): each.target
        for each in report.advice
        if each.target is not None
        for track in each.group.tracks
    }
    return found, 100 * report.tested.miss if report.tested else float("nan")


def judge(samples: Sequence[Samples], part: float, rules: Rules) -> Result:
    first, last = min(each.times[0] for each in samples), max(each.times[-1] for each in samples)
    cut = first + (last - first) * part
    found, told = advised([each.until(cut) for each in samples], rules)
    missed, slack, advice, peaks = [], [], [], []
    for each in samples:
        size, later = found.get((each.workload, each.container)), each.after(cut)
        if size is None or not len(later.times):
            continue
        peak = float(later.bytes.max())
        missed.append(peak > size)
        slack.append(size / peak - 1)
        advice.append(size)
        peaks.append(peak)
    return Result(
        len(missed),
        100 * float(np.mean(missed)),
        100 * float(np.mean(slack)),
        100 * (sum(advice) / sum(peaks) - 1),
        told,
    )


Relabel = Callable[[Samples], Samples]


def as_is(samples: Samples) -> Samples:
    return samples


def one_workload(samples: Samples) -> Samples:
    """As a trace that does not say which workload a container belongs to."""
    return Samples("all", samples.container, samples.times, samples.bytes)


def each_its_own(samples: Samples) -> Samples:
    return Samples(samples.container, "main", samples.times, samples.bytes)


SERVING: dict[str, Family] = {
    **{name: FAMILIES[name] for name in ("requests", "tenants", "pictures")},
    "sessions": LATER["sessions"],
}
FITTED: dict[str, Family] = {**FAMILIES, **LATER}
ALL: dict[str, Family] = {**FITTED, **HELD_OUT}
CASES: dict[str, tuple[dict[str, Family], float, float, Relabel]] = {
    **{name: ({name: family}, 4.0, 0.5, as_is) for name, family in FITTED.items()},
    **{f"*{name}": ({name: family}, 4.0, 0.5, as_is) for name, family in HELD_OUT.items()},
    "*diffusion, half of 1 day": ({"diffusion": HELD_OUT["diffusion"]}, 1.0, 0.5, one_workload),
    "*fleets, half of 1 day": ({"fleets": HELD_OUT["fleets"]}, 1.0, 0.5, one_workload),
    "fitted, half of 2 days": (FITTED, 2.0, 0.5, as_is),
    "fitted, half of 4 days": (FITTED, 4.0, 0.5, as_is),
    "fitted, half of 14 days": (FITTED, 14.0, 0.5, as_is),
    "*held out, half of 2 days": (HELD_OUT, 2.0, 0.5, as_is),
    "*held out, half of 4 days": (HELD_OUT, 4.0, 0.5, as_is),
    "*held out, half of 14 days": (HELD_OUT, 14.0, 0.5, as_is),
    "*held out, 70 % of 4 days": (HELD_OUT, 4.0, 0.7, as_is),
    "*held out, 30 % of 6 days": (HELD_OUT, 6.0, 0.3, as_is),
    "*held out, one workload": (HELD_OUT, 4.0, 0.5, one_workload),
    "*held out, a workload each": (HELD_OUT, 4.0, 0.5, each_its_own),
    "serving, half of 1 day": (SERVING, 1.0, 0.5, as_is),
    "serving, one workload": (SERVING, 2.0, 0.5, one_workload),
    "all, half of 4 days": (ALL, 4.0, 0.5, as_is),
}
"""Families, days, part that is known, and how containers are labelled. A star: held out."""
COMPARED = ("peak", "max", "pool", "p99", "p90")


def table(
    seeds: Sequence[int], containers: int, strategies: Sequence[str]
) -> dict[str, dict[str, list[Result]]]:
    found: dict[str, dict[str, list[Result]]] = {}
    for case, (families, days, part, relabel) in CASES.items():
        for seed in seeds:
            samples = [relabel(each) for each in trace(families, seed, days, containers)]
            for strategy in strategies:
                result = judge(samples, part, Rules(LEAST, starts_are_seen=False, strategy=strategy))
                found.setdefault(case, {}).setdefault(strategy, []).append(result)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--containers", type=int, default=80)
    parser.add_argument("--strategy", action="append")
    parser.add_argument("--scale", action="store_true", help="measure time and memory instead")
    parser.add_argument("--interval", type=int, default=300, help="seconds between samples, with --scale")
    options = parser.parse_args(arguments)
    if options.scale:
        from bench.recommend_scale import measure

        return 0 if measure(options.interval) else 1
    strategies = options.strategy or COMPARED
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    found = table(seeds, options.containers, strategies)
    print(
        f"{'misses % / slack %':28}"
        + "".join(f"{each:>14}" for each in strategies)
        + "  of sums    told   kept"
    )
    figures: list[Figure] = []
    for case, by_strategy in found.items():
        cells = []
        for each in strategies:
            results = by_strategy[each]
            miss, slack = np.mean([one.miss for one in results]), np.mean([one.slack for one in results])
            cells.append(f"{miss:.1f} / {slack:.0f}")
            figures.append(Figure(case, cells[-1], column=each))
        ours = by_strategy[strategies[0]]
        of_sums = float(np.mean([one.of_sums for one in ours]))
        by_mean = sum(one.miss <= MISS and one.slack < SLACK for one in ours)
        by_sums = sum(one.miss <= MISS and one.of_sums < SLACK for one in ours)
        kept = f"{by_mean} and {by_sums} of {len(ours)}"
        told = float(np.nanmean([one.told for one in ours]))
        figures += [
            Figure(case, f"{of_sums:.0f}", column="of sums"),
            Figure(case, f"{told:.1f}", column="told"),
            Figure(case, kept, column="kept"),
        ]
        line = "".join(f"{each:>14}" for each in cells)
        print(f"{case:28}{line}  {of_sums:7.0f}  {told:6.1f}   {kept}")
    record("bench.recommend", figures, f"seeds {seeds.start} to {seeds.stop - 1}")
    return 0 if never_worse(found) else 1


def never_worse(found: dict[str, dict[str, list[Result]]]) -> bool:
    """Whether the default misses no more than the peak and 15 % on each single trace."""
    kept = True
    for case, by_strategy in found.items():
        for ours, theirs in zip(by_strategy.get("peak", ()), by_strategy.get("max", ()), strict=False):
            if ours.miss > theirs.miss:
                print(f"worse than max: {case}: {ours} {theirs}")
                kept = False
    return kept


if __name__ == "__main__":
    sys.exit(main())

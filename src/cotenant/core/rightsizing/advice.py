"""Advises a figure for each group of containers, with its evidence, or says why there is none.

Raise at once, lower slowly: a figure that is too low ends programs, one that is too high costs memory. So a
higher figure is advised in full, and a lower one in steps of at most a quarter, each with evidence of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from cotenant.core.rightsizing.backtest import Score, pairs, score
from cotenant.core.rightsizing.groups import Group
from cotenant.core.rightsizing.headroom import FLOOR, MISS, SLACK, Headroom, learn
from cotenant.core.rightsizing.history import highest, span, typical_gap
from cotenant.core.rightsizing.rounding import ADVICE_FINENESS, round_up
from cotenant.core.rightsizing.strategies import DEFAULT, LEAST, STRATEGIES, fixed
from cotenant.core.units import format_bytes, format_duration

DAY = 86400.0
WEEK = 7 * DAY
ENOUGH = 0.95
"""The part of the least history that will do: half a day of samples often begins some minutes late."""
COVERED = 0.25
"""The part of the least history for which there must be samples: some sources have none while one is idle."""
LEAST_BUCKETS = 12
"""Fewer buckets with samples are no history."""
GAPS = 3
"""Typical distances of samples: a longer one is a gap."""

DENIED = 0.25
"""Where allocations failed at a limit, advice is at least this much above it: more than that is not known."""
LATELY = 1800.0
"""Seconds: an instance with samples so shortly before the end runs."""

Confidence = Literal["low", "medium", "high"]
Reason = Literal["short-history", "few-samples", "few-starts", "unused", "not-its-own"]


@dataclass(frozen=True, slots=True)
class Rules:
    """What people choose. Times are seconds, parts are from 0 to 1."""

    min_history: float = DAY
    min_starts: int = 2
    """Cold starts that must have been seen, if the source shows them."""
    starts_are_seen: bool = True
    """Whether the source shows cold starts; plain samples may begin in the middle of a container's life."""
    strategy: str = DEFAULT
    headroom: float | None = None
    """Instead of what is learned."""
    miss: float = MISS
    slack: float = SLACK
    lower_by: float = 0.25
    """The most that a figure is lowered at once."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a group."""

    peak: int
    """Bytes on one GPU."""
    peak_at: float
    """Unix time."""
    peak_of: str
    """The pod, container or process that had it."""
    samples: int
    history: float
    """Seconds from the first sample to the last, and as long as that stands for."""
    starts: int | None
    """Cold starts that were seen; None if the source does not show them."""
    instances: int
    alive: int
    """Instances that had samples at the end."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One figure, or a reason why there is none. Bytes are those of a container in all, over its GPUs."""

    group: Group
    gpus: int
    evidence: Evidence
    now: int | None
    target: int | None = None
    """What it should ask for in the end; None if that is refused."""
    advised: int | None = None
    """What it should ask for next: the target, or a step towards a lower one."""
    headroom: float | None = None
    """The target above the peak, as a part of the peak, before rounding."""
    confidence: Confidence = "low"
    reason: Reason | None = None
    why: str = ""
    """Why nothing is advised, and what to do; a sentence."""

    @property
    def saved(self) -> int:
        """Bytes that all its instances at the end would free; negative if they need more."""
        if self.now is None or self.advised is None:
            return 0
        return (self.now - self.advised) * self.evidence.alive


@dataclass(frozen=True, slots=True)
class Report:
    advice: tuple[Advice, ...]
    rules: Rules
    headroom: Headroom
    learned_from: int
    """How many times a container was looked at; 0 if nothing was learned."""
    tested: Score | None
    """What the strategy did in the past of the same containers; None if there is no past to test it on."""
    first: float
    end: float
    """Unix times of the data."""


def advise(
    groups: Sequence[Group],
    step: float,
    rules: Rules,
    past: Sequence[Group] = (),
    began: float | None = None,
) -> Report:
    """Advises for all groups. `step` is the length of a bucket in seconds; `past` are versions that only
    serve to learn from; `began` is the Unix time from which on the source has anything at all.
    """
    strategy = STRATEGIES[rules.strategy]
    first, end = span([track for each in (*groups, *past) for track in each.tracks])
    least = max(1, int(rules.min_history / step))
    usable = [each for each in (*groups, *past) if not each.shared_with]
    if rules.headroom is not None:
        rule, tested, learned_from = fixed(rules.headroom), None, 0
    elif strategy.learns:
        learned = learn(pairs(usable, first, end, least), rules.miss, rules.slack)
        rule, tested, learned_from = learned.headroom, learned.score, learned.pairs
    else:
        rule, tested, learned_from = LEAST, None, 0
    figure = strategy.make(rule)
    if tested is None:
        tested = score(usable, first, end, least, figure)
    opened = first if began is None else min(first, int(began // step))
    made = tuple(_one(each, opened, end, step, rules, figure) for each in groups)
    return Report(made, rules, rule, learned_from, tested, first * step, end * step)


def _one(
    group: Group, opened: int, end: int, step: float, rules: Rules, figure: Callable[[Group, int], float]
) -> Advice:
    evidence = _evidence(group, opened, end, step, rules)
    gpus = group.gpus
    now = None if group.now is None else group.now * gpus
    refused = _refusal(group, evidence, step, rules)
    if refused is not None:
        reason, why = refused
        return Advice(
            group, gpus, evidence, now, reason=reason, why=why + _too_low(evidence, group.now, group.denied)
        )
    size = figure(group, end)
    if group.denied and group.now is not None:
        size = max(size, group.now * (1 + DENIED))
    target = round_up(size, ADVICE_FINENESS) * gpus
    return Advice(
        group,
        gpus,
        evidence,
        now,
        target,
        next_step(now, target, rules.lower_by),
        size / evidence.peak - 1,
        _confidence(group, evidence, end, rules),
    )


def next_step(now: int | None, target: int, lower_by: float) -> int:
    """Returns what to ask for next: more at once, less in steps of at most `lower_by` of what it is now."""
    if now is None or target >= now:
        return target
    return max(target, round_up(now * (1 - lower_by), ADVICE_FINENESS))


def _evidence(group: Group, opened: int, end: int, step: float, rules: Rules) -> Evidence:
    top = max(group.tracks, key=lambda each: (each.peak, -each.peak_at))
    begins, ends = span(group.tracks)
    gap = _gap(group)
    seen = {each.instance: 0 for each in group.tracks}
    for each in group.tracks:  # an instance with several GPUs started once
        seen[each.instance] = max(seen[each.instance], each.starts(opened))
    return Evidence(
        peak=round(top.peak),
        peak_at=top.peak_at,
        peak_of=top.instance,
        samples=sum(each.samples for each in group.tracks),
        history=(ends - 1 - begins + gap) * step,
        starts=sum(seen.values()) if rules.starts_are_seen else None,
        instances=len(seen),
        alive=len(group.alive(end - max(int(LATELY / step), GAPS * gap, 2))),
    )


def _gap(group: Group) -> int:
    return typical_gap(max(group.tracks, key=lambda each: len(each.buckets)).buckets)


def _refusal(group: Group, evidence: Evidence, step: float, rules: Rules) -> tuple[Reason, str] | None:
    if group.shared_with:
        return "not-its-own", group.shared_with
    if evidence.peak <= 0:
        return "unused", "it has not used GPU memory yet: let it work first"
    if evidence.history < rules.min_history * ENOUGH:
        found, needed = format_duration(evidence.history), format_duration(rules.min_history)
        before = f"; the version before it had a peak of {format_bytes(int(group.former))}"
        return "short-history", (
            f"{found} of samples, {needed} are needed: wait, or lower --min-history"
            + (before if group.former > 0 else "")
        )
    if (covered := _covered(group, step, rules)) < rules.min_history * COVERED:
        found, time = format_duration(covered), format_duration(evidence.history)
        return "few-samples", f"samples of {found} in {time}: most are missing: sample more often"
    if evidence.starts is not None and evidence.starts < rules.min_starts:
        why = (
            f"{evidence.starts} cold starts seen, {rules.min_starts} are needed, since a start may take more "
            "than all that follows: look further back with --since, restart a replica, or lower --min-starts"
        )
        return "few-starts", why
    return None


def _covered(group: Group, step: float, rules: Rules) -> float:
    """Returns the seconds that samples stand for: each until the next, but not over a gap of three or more;
    nothing if there are very few of them.
    """
    buckets = sorted({bucket for each in group.tracks for bucket in each.buckets})
    if len(buckets) < min(LEAST_BUCKETS, rules.min_history / step):
        return len(buckets) * step
    longest = GAPS * typical_gap(buckets)
    return (sum(min(b - a, longest) for a, b in pairwise(buckets)) + 1) * step


def _too_low(evidence: Evidence, now: int | None, denied: int) -> str:
    """Warns where what it asks for now is too little already: that cannot wait."""
    if now is not None and denied:
        enough = round_up(now * (1 + DENIED), ADVICE_FINENESS)
        return (
            f"; but {denied} allocations failed at its limit of {format_bytes(now)}: raise it to at least "
            f"{format_bytes(enough)} now"
        )
    if now is None or evidence.peak <= now:
        return ""
    enough = round_up(evidence.peak * (1 + FLOOR), ADVICE_FINENESS)
    return (
        f"; but it has used {format_bytes(evidence.peak)} and asks for {format_bytes(now)}: "
        f"raise it to at least {format_bytes(enough)} now"
    )


def _confidence(group: Group, evidence: Evidence, end: int, rules: Rules) -> Confidence:
    """High: a week, several replicas and starts, and no new peak in the last half of it. Low: little more
    than the least history, a peak that was passed by more than the least headroom in its second half, or
    allocations that failed.
    """
    if group.denied:
        return "low"
    begins, _ = span(group.tracks)
    middle = highest(group.tracks, begins + (end - begins) // 2)
    grew = evidence.peak / middle - 1 if middle > 0 else 1.0
    if evidence.history < 2 * rules.min_history or grew > FLOOR:
        return "low"
    steady = evidence.history >= WEEK and evidence.instances > 1 and grew <= 0.02
    return "high" if steady and (evidence.starts is None or evidence.starts >= rules.min_starts) else "medium"

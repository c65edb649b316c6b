"""Prints advice as a table, with what it rests on and what it would have done in the past."""

from __future__ import annotations

import textwrap
import time

import click

from cotenant.advice.gathered import Gathered
from cotenant.cli import table, terminal
from cotenant.cli.table import Cell, Column
from cotenant.core.rightsizing.advice import Advice, Report
from cotenant.core.rightsizing.cards import Filled
from cotenant.core.units import format_bytes

HEADER = (
    Column("WORKLOAD", least=14),
    Column("CONTAINER", least=9),
    Column("VERSION", rank=6, least=7),
    Column("NOW"),
    Column("ADVISED"),
    Column("PEAK", rank=1),
    Column("WHEN", rank=4),
    Column("OF", rank=5, least=10),
    Column("SAMPLES", rank=8),
    Column("HISTORY", rank=3),
    Column("STARTS", rank=7),
    Column("CONFIDENCE", rank=2),
)
REFUSED = (
    Column("WORKLOAD", least=14),
    Column("CONTAINER", least=9),
    Column("REFUSED", least=20, wraps=True),
)
_COLOURS = {"high": "green", "medium": None, "low": "yellow"}
MOST_REASONS = 5


def show(report: Report, gathered: Gathered, needed: tuple[Filled | None, Filled] | None, total: int) -> None:
    """Prints advice, refusals, the back-test, what is saved, and notes."""
    for rejected in gathered.rejected[:MOST_REASONS]:
        _say(f"left out: {rejected}", err=True)
    for note in gathered.notes:
        _say(f"note: {note}", err=True)
    advised = [each for each in report.advice if each.advised is not None]
    refused = [each for each in report.advice if each.advised is None]
    if advised:
        left_out = [] if any(each.group.owner.version for each in advised) else ["VERSION"]
        if all(each.evidence.starts is None for each in advised):
            left_out.append("STARTS")
        columns = [at for at, column in enumerate(HEADER) if column.name not in left_out]
        rows = [_row(each) for each in advised]
        table.show([HEADER[at] for at in columns], [[row[at] for at in columns] for row in rows])
    if refused:
        if advised:
            click.echo()
        table.show(REFUSED, [(each.group.owner.workload, _container(each), each.why) for each in refused])
    if advised:
        click.echo()
        for each in advised:
            if each.group.denied:
                name = " ".join(filter(None, (each.group.owner.workload, each.group.owner.container)))
                _say(
                    f"{name}: {each.group.denied} allocations failed at its limit: its peak does not show "
                    "what it needs; raise it, and look again"
                )
        for line in _sums(report, advised, gathered, needed, total):
            _say(line)


def _say(sentence: str, *, err: bool = False) -> None:
    """Prints a sentence, on several lines where the terminal is narrow."""
    text = table.printable(sentence)
    for line in textwrap.wrap(text, terminal.width() or len(text) + 1, break_on_hyphens=False):
        click.echo(line, err=err)


def _container(advice: Advice) -> str:
    owner, count = advice.group.owner, advice.evidence.instances
    return owner.container or ("-" if count == 1 else f"all {count}")


def _row(advice: Advice) -> list[Cell | str]:
    owner, evidence = advice.group.owner, advice.evidence
    size = format_bytes(advice.advised or 0)
    if advice.target is not None and advice.target != advice.advised:
        size += f" (then {format_bytes(advice.target)})"
    more = advice.now is not None and advice.advised is not None and advice.advised > advice.now
    each = f" x{advice.gpus}" if advice.gpus > 1 else ""
    return [
        owner.workload,
        _container(advice),
        owner.version or "-",
        "-" if advice.now is None else format_bytes(advice.now),
        Cell(size, "red" if more else None),
        format_bytes(evidence.peak) + each,
        _local_time(evidence.peak_at),
        evidence.peak_of or "-",
        str(evidence.samples),
        table.duration(evidence.history),
        "-" if evidence.starts is None else str(evidence.starts),
        Cell(advice.confidence, _COLOURS[advice.confidence]),
    ]


def _sums(
    report: Report,
    advised: list[Advice],
    gathered: Gathered,
    needed: tuple[Filled | None, Filled] | None,
    total: int,
) -> list[str]:
    lines = []
    tested = report.tested
    if tested is None:
        lines.append("back-test: the history is too short to try the rule on its own past")
    else:
        lines.append(
            f"back-test of {report.rules.strategy!r}: {100 * tested.miss:.1f} % misses, "
            f"{100 * tested.slack:.0f} % slack ({tested.containers} times a container was looked at)"
        )
    if report.learned_from:
        reach = f", and {100 * report.headroom.reach:.0f} % of the way to the highest sibling"
        lines.append(
            f"headroom: {100 * report.headroom.base:.0f} % above the peak"
            + (
                reach
                if report.headroom.reach
                and any(len(each.group.siblings.tracks) > len(each.group.tracks) for each in advised)
                else ""
            )
        )
    if gathered.live and any(each.now is not None for each in advised):
        saved = sum(each.saved for each in advised)
        final = sum(
            ((each.now or 0) - (each.target or 0)) * each.evidence.alive for each in advised if each.now
        )
        word = "frees" if saved >= 0 else "takes"
        lines.append(
            f"{word} {format_bytes(abs(saved))} of what runs now"
            + (f", {format_bytes(final)} when all steps are taken" if final > saved else "")
        )
    if needed is not None:
        lines.append(_cards(*needed, total))
    return lines


def _cards(now: Filled | None, then: Filled, total: int) -> str:
    short = f"; {then.left_over} containers find no room" if then.left_over else ""
    if now is None:
        return f"GPUs: {then.used} of {total} hold what runs now{short}"
    less = now.used - then.used
    word = "fewer" if less >= 0 else "more"
    return (
        f"GPUs: {then.used} of {total} instead of {now.used} hold what runs now: "
        f"{abs(less)} {'card' if abs(less) == 1 else 'cards'} {word}{short}"
    )


def _local_time(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
    except (OverflowError, OSError, ValueError):
        return f"{seconds:.0f}"

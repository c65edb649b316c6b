"""Watches this machine's GPUs, grants and line live (`cotenant top`)."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from cotenant.cli import table
from cotenant.cli.compose import machine_of, output_option, simulate_option
from cotenant.cli.gpus import gpu_row
from cotenant.cli.ps import waiting_row
from cotenant.cli.termination import unwind_on_signal
from cotenant.core.errors import BadInput
from cotenant.core.units import format_bytes, parse_duration
from cotenant.hardware import activity
from cotenant.local.machine import Machine
from cotenant.local.snapshot import snapshot, to_json
from cotenant.observe.view import GrantView, View, with_utilization

if TYPE_CHECKING:
    from rich.console import Group

SHORTEST = 0.05
IDLE = 60.0
"""Seconds without a kernel launch or allocation after which a grant is shown as idle."""


class Section(NamedTuple):
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]


@click.command()
@click.option("--interval", default="2s", show_default=True, metavar="2s", help="Time between two samples.")
@click.option("-n", "--iterations", type=int, metavar="N", help="Exit after N samples.")
@output_option
@simulate_option
@click.pass_context
def command(ctx: click.Context, interval: str, iterations: int | None, output: str) -> None:
    """Watch the GPUs, who uses them and who waits, until Ctrl-C.

    \b
    cotenant top
    cotenant top --interval 500ms
    cotenant top -n 1                      one sample
    cotenant top -o json | jq .gpus        one line of JSON per sample

    Without a terminal it prints one sample, or as many as -n says. BUSY is the GPU's recent utilization;
    USED is red beyond the limit.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    pause = parse_duration(interval, "--interval")
    if pause < SHORTEST:
        raise BadInput(f"--interval: {interval} is too short: take 50ms or more")
    if iterations is not None and iterations < 1:
        raise BadInput(f"--iterations: {iterations} is not a number of samples: take 1 or more")
    machine = machine_of(ctx.obj)
    live = output == "table" and sys.stdout.isatty()
    if iterations is None and output == "table" and not live:
        iterations = 1
    views = _views(machine, pause, iterations)
    with unwind_on_signal(), contextlib.suppress(KeyboardInterrupt):
        if output == "json":
            _show_json(machine, views)
        elif live:
            _show_live(views, screen=iterations is None)
        else:
            _show_plain(views)


def _views(machine: Machine, pause: float, iterations: int | None) -> Iterator[View]:
    looks = 0
    due = time.monotonic()
    while iterations is None or looks < iterations:
        if looks:
            due = max(due + pause, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
        looks += 1
        view = snapshot(machine)
        healthy = (each.gpu.uuid for each in view.gpus if each.gpu.healthy)
        yield with_utilization(view, activity.by_gpu(healthy))


def _document(machine: Machine, view: View) -> dict[str, Any]:
    document = to_json(machine, view)
    for shown, grant in zip(document["grants"], view.grants, strict=True):
        shown["utilization"] = grant.utilization
    return document


def _show_json(machine: Machine, views: Iterator[View]) -> None:
    for view in views:
        click.echo(json.dumps(_document(machine, view)))


def _show_plain(views: Iterator[View]) -> None:
    for number, view in enumerate(views):
        if number:
            click.echo()
        click.echo(_headline(view))
        for section in _sections(view):
            click.echo()
            table.show(section.header, section.rows)


def _show_live(views: Iterator[View], *, screen: bool) -> None:
    """Draws on an alternate screen, or in place, so that the last sample stays visible."""
    from rich.live import Live  # only here: it takes longer to load than all the rest

    with Live(screen=screen, auto_refresh=False) as live:
        for view in views:
            live.update(_drawn(view), refresh=True)


def _drawn(view: View) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Text | Table] = [Text(_headline(view), style="bold")]
    for section in _sections(view):
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        *columns, last = zip(section.header, *section.rows, strict=True)
        for column in columns:
            drawn.add_column(
                column[0], no_wrap=True, min_width=max(len(click.unstyle(cell)) for cell in column)
            )
        drawn.add_column(last[0], no_wrap=True, overflow="ellipsis")  # the one that gives way
        for row in section.rows:
            drawn.add_row(*(Text.from_ansi(cell) for cell in row))
        parts += [Text(), drawn]
    return Group(*parts)


def _headline(view: View) -> str:
    free, memory = sum(each.room.free for each in view.gpus), sum(each.gpu.memory for each in view.gpus)
    simulated = view.nodes[0].simulated
    kind = f"simulated {simulated}" if simulated else "this machine"
    return (
        f"cotenant top  {time.strftime('%H:%M:%S')}  {kind}  "
        f"{format_bytes(free)} of {format_bytes(memory)} free  "
        f"{len(view.grants)} running  {len(view.line)} waiting"
    )


def _sections(view: View) -> Sequence[Section]:
    cards = Section(
        ("GPU", "MODEL", "MEMORY", "", "FREE", "GRANTED", "USED", "OUTSIDE", "BUSY", "WHO"),
        [gpu_row(gpu) for gpu in view.gpus],
    )
    grants = Section(
        ("NAME", "GPU", "LIMIT", "", "USED", "PEAK", "BUSY", "DENIED", "IDLE", "USER", "COMMAND"),
        [_grant(grant) for grant in view.grants],
    )
    line = Section(("LINE", "NAME", "USER", "WAITED", "WHY"), [waiting_row(waiting) for waiting in view.line])
    return [section for section in (cards, grants, line) if section.rows]


def _grant(grant: GrantView) -> tuple[str, ...]:
    signs = table.signs()
    over = grant.used > grant.limit
    idle = grant.idle_seconds is not None and grant.idle_seconds >= IDLE
    return (
        grant.name,
        ",".join("?" if share.index is None else str(share.index) for share in grant.shares),
        format_bytes(grant.limit),
        click.style(table.bar([(grant.used, signs["used"])], grant.limit, 12), fg="red" if over else "green"),
        click.style(format_bytes(grant.used), fg="red" if over else None),
        format_bytes(grant.peak),
        _percent(grant.utilization),
        click.style(str(grant.denied), fg="red" if grant.denied else None),
        click.style(table.duration(grant.idle_seconds), fg="yellow" if idle else None),
        grant.user,
        table.command_line(grant.command),
    )


def _percent(value: int | None) -> str:
    return "-" if value is None else f"{value}%"

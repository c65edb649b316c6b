"""Watches this machine's GPUs, grants and line live (`cotenant top`)."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from cotenant.cli import table, terminal
from cotenant.cli.compose import machine_of, output_option, simulate_option
from cotenant.cli.gpus import GPUS, gpu_row
from cotenant.cli.ps import LINE, waiting_row
from cotenant.cli.screen import Screen
from cotenant.cli.table import Cell, Column
from cotenant.cli.termination import unwind_on_signal
from cotenant.core.errors import BadInput
from cotenant.core.units import format_bytes, parse_duration
from cotenant.hardware import activity
from cotenant.local.machine import Machine
from cotenant.local.snapshot import snapshot, to_json
from cotenant.observe.view import GrantView, View, with_utilization

SHORTEST = 0.05
IDLE = 60.0
"""Seconds without a kernel launch or allocation after which a grant is shown as idle."""


QUIT = ("q", "Q", "\x03", "\x04")
"""The last two are Ctrl-C and Ctrl-D, where the terminal does not make a signal of them."""
REFRESH = (" ", "r")
SCROLL = {"down": 1, "j": 1, "up": -1, "k": -1}
PAGES = {"pagedown": 1, "pageup": -1, "end": 1000, "G": 1000, "home": -1000, "g": -1000}

GRANTS = (
    Column("NAME", least=8),
    Column("GPU"),
    Column("LIMIT"),
    Column("", rank=7),
    Column("USED"),
    Column("PEAK", rank=6),
    Column("BUSY", rank=4),
    Column("DENIED", rank=3),
    Column("TIME", rank=8),
    Column("IDLE", rank=5),
    Column("USER", rank=2, least=6),
    Column("COMMAND", rank=1, least=12),
)
"""The one without a name is the bar."""


class Section(NamedTuple):
    columns: tuple[Column, ...]
    rows: list[tuple[Cell | str, ...]]


@click.command()
@click.option("--interval", default="2s", show_default=True, metavar="2s", help="Time between two samples.")
@click.option("-n", "--iterations", type=int, metavar="N", help="Exit after N samples.")
@output_option
@simulate_option
@click.pass_context
def command(ctx: click.Context, interval: str, iterations: int | None, output: str) -> None:
    """Watch the GPUs, who uses them and who waits, until `q` or Ctrl-C.

    \b
    cotenant top
    cotenant top --interval 500ms
    cotenant top -n 1                      one sample
    cotenant top -o json | jq .gpus        one line of JSON per sample

    Keys: q quits, space takes a sample now, arrow keys and page up/down scroll. Without a terminal, or with
    TERM=dumb, it prints one sample, or as many as -n says. BUSY is the GPU's recent utilization; USED is red
    beyond the limit. A narrow terminal leaves out columns and names them. NO_COLOR=1 leaves out colours.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    pause = parse_duration(interval, "--interval")
    if pause < SHORTEST:
        raise BadInput(f"--interval: {interval} is too short: take 50ms or more")
    if iterations is not None and iterations < 1:
        raise BadInput(f"--iterations: {iterations} is not a number of samples: take 1 or more")
    machine = machine_of(ctx.obj)
    live = output == "table" and iterations is None and terminal.is_terminal() and not terminal.is_dumb()
    if iterations is None and output == "table":
        iterations = 1
    with unwind_on_signal(), contextlib.suppress(KeyboardInterrupt):
        if live:
            _show_live(machine, pause)
        elif output == "json":
            _show_json(machine, _views(machine, pause, iterations))
        else:
            _show_plain(_views(machine, pause, iterations))


def _look(machine: Machine) -> View:
    view = snapshot(machine)
    healthy = (each.gpu.uuid for each in view.gpus if each.gpu.healthy)
    return with_utilization(view, activity.by_gpu(healthy))


def _views(machine: Machine, pause: float, iterations: int | None) -> Iterator[View]:
    due = time.monotonic()
    for number in itertools.count() if iterations is None else range(iterations):
        if number:
            due = max(due + pause, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
        yield _look(machine)


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
        for line in _drawn(view, terminal.width()):
            click.echo(line)


def _show_live(machine: Machine, pause: float) -> None:
    """Draws on the alternate screen until a key, Ctrl-C or a signal ends it."""
    with Screen() as screen:
        scrolled = 0
        while True:
            view = _look(machine)
            due = time.monotonic() + pause
            while (left := due - time.monotonic()) > 0:
                columns, rows = terminal.size()
                lines = _drawn(view, columns)
                scrolled = max(0, min(scrolled, len(lines) - rows + 1))
                screen.draw(_page(lines, scrolled, columns, rows))
                key = screen.wait(left)
                if key in QUIT:
                    return
                if key in REFRESH:
                    break
                scrolled += SCROLL.get(key, 0) or PAGES.get(key, 0) * (rows - 2)


def _page(lines: list[str], scrolled: int, columns: int, rows: int) -> list[str]:
    """Cuts out what the screen shows; its last line says which keys there are, and what is not shown."""
    shown = lines[scrolled : scrolled + rows - 1]
    below = len(lines) - scrolled - len(shown)
    more = [f"{below} more below (down)"] if below > 0 else []
    more += [f"{scrolled} above (up)"] if scrolled else []
    return [*shown, click.style(table.cut("  ".join(["q quit", *more]), columns), dim=True)]


def _drawn(view: View, columns: int | None) -> list[str]:
    lines = [click.style(table.cut(_headline(view), columns or 10**6), bold=True)]
    left_out: list[Column] = []
    for section in _sections(view):
        fitted = table.fit(section.columns, section.rows, columns)
        lines += ["", *fitted.lines]
        left_out += fitted.left_out
    if left_out:
        lines += ["", *table.hint(left_out, columns)]
    return lines


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
    cards = Section(GPUS, [gpu_row(gpu) for gpu in view.gpus])
    grants = Section(GRANTS, [_grant(grant) for grant in view.grants])
    line = Section(LINE, [waiting_row(waiting) for waiting in view.line])
    return [section for section in (cards, grants, line) if section.rows]


def _grant(grant: GrantView) -> tuple[Cell | str, ...]:
    signs = table.signs()
    over = grant.used > grant.limit
    idle = grant.idle_seconds is not None and grant.idle_seconds >= IDLE
    return (
        grant.name,
        ",".join("?" if share.index is None else str(share.index) for share in grant.shares),
        format_bytes(grant.limit),
        Cell(table.bar([(grant.used, signs["used"])], grant.limit, 12), "red" if over else "green"),
        Cell(format_bytes(grant.used), "red" if over else None),
        format_bytes(grant.peak),
        _percent(grant.utilization),
        Cell(str(grant.denied), "red" if grant.denied else None),
        table.duration(grant.running_seconds),
        Cell(table.duration(grant.idle_seconds), "yellow" if idle else None),
        grant.user,
        table.command_line(grant.command),
    )


def _percent(value: int | None) -> str:
    return "-" if value is None else f"{value}%"

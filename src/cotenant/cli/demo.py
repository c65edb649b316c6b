"""Runs the demo on simulated GPUs and prints what was measured (`cotenant demo`)."""

from __future__ import annotations

import textwrap
import time

import click

from cotenant.cli import table, terminal
from cotenant.cli.compose import simulate_option
from cotenant.cli.table import Cell, Column
from cotenant.cli.termination import unwind_on_signal
from cotenant.core.errors import CotenantError

WIDTH = 100


class _Paper:
    """Prints the demo; colours only on a terminal."""

    def __init__(self) -> None:
        self._typing = False

    def heading(self, text: str) -> None:
        self._apart()
        click.secho(text, bold=True, fg="cyan")

    def say(self, text: str) -> None:
        self._apart()
        width = min(WIDTH, terminal.width() or WIDTH)
        click.echo(textwrap.fill(text, width, break_long_words=False))

    def typed(self, command: str) -> None:
        if not self._typing:
            self._apart()
        self._typing = command.endswith("&")
        click.secho(f"$ {command}", bold=True)

    def heard(self, line: str) -> None:
        self._typing = False
        click.echo(f"  {line}")

    def _apart(self) -> None:
        self._typing = False
        click.echo()


@click.command()
@simulate_option
@click.pass_context
def command(ctx: click.Context) -> int:
    """Show GPU sharing in under a minute, on simulated GPUs.

    Real processes share a GPU: one asks for too much, one waits in line, one is resized while it runs,
    one is killed with -9, one becomes idle. Then a worker that idles gives its GPU to somebody in line, and
    a message in its queue brings it back. Each part is measured by what the simulated driver counts.
    It touches neither real GPUs nor your ledger, and leaves nothing behind.

    \b
    cotenant demo
    cotenant --simulate 2xA100-80GB demo

    Exit codes: 0 if every part really happened, 1 if not.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    from cotenant.demo.stage import stage
    from cotenant.demo.story import SPEC, Story

    spec = ctx.obj or SPEC
    paper = _Paper()
    began = time.monotonic()
    with unwind_on_signal():
        click.secho(f"The GPUs in this demo are simulated ({spec}); the processes are real.", bold=True)
        real = "" if ctx.obj else _real_cards()
        if real:
            paper.say(real)
        with stage(spec, paper) as made:
            checks = Story(made).play()
    paper.heading("What happened")
    table.show(
        (Column("PART", least=12), Column("EXPECTED", least=16), Column("MEASURED", least=16), "HAPPENED"),
        [(check.part, check.expected, check.measured, _yes(happened=check.happened)) for check in checks],
    )
    happened = all(check.happened for check in checks)
    click.echo()
    sum_ = "Every part happened" if happened else "Not every part happened"
    click.echo(f"{sum_}, in {time.monotonic() - began:.0f} s, on simulated GPUs.")
    return 0 if happened else 1


def _yes(*, happened: bool) -> Cell:
    return Cell("yes", "green") if happened else Cell("NO", "red")


def _real_cards() -> str:
    """Says how to continue with the machine's real GPUs, if it has any."""
    from cotenant.hardware.nvml import Nvml

    nvml = Nvml()
    try:
        cards = nvml.read().cards
        nvml.close()
    except CotenantError:
        return ""
    if not cards:
        return ""
    models = ", ".join(dict.fromkeys(card.gpu.model for card in cards))
    return (
        f"This machine has {len(cards)} real GPU{'s' if len(cards) > 1 else ''} ({models}). To share them, "
        "leave out --simulate: `cotenant gpus` lists them, "
        "`cotenant run --gpu-memory 4Gi -- COMMAND` runs a command on them."
    )

"""`cotenant demo`."""

from __future__ import annotations

import textwrap
import time

import click

from cotenant.cli import table
from cotenant.cli.compose import simulate_option
from cotenant.cli.ending import tidily
from cotenant.core.errors import CotenantError

WIDTH = 100


class _Paper:
    """The story as it is told on a terminal; colours only there."""

    def __init__(self) -> None:
        self._typing = False

    def heading(self, text: str) -> None:
        self._apart()
        click.secho(text, bold=True, fg="cyan")

    def say(self, text: str) -> None:
        self._apart()
        click.echo(textwrap.fill(text, WIDTH, break_long_words=False))

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
    """Tell the whole story of sharing in half a minute, on simulated cards.

    Real processes share a card, one asks for too much, one waits in line, one is resized while it runs,
    one is killed with -9, one falls idle. Each part is measured by the cards' own account. Nothing of it
    touches real cards or your ledger, and nothing is left behind.

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
    with tidily():
        click.secho(f"The cards in this story are simulated ({spec}); the processes are real.", bold=True)
        real = "" if ctx.obj else _real_cards()
        if real:
            paper.say(real)
        with stage(spec, paper) as made:
            checks = Story(made).tell()
    paper.heading("What happened")
    table.show(
        ("PART", "EXPECTED", "MEASURED", "HAPPENED"),
        [(check.part, check.expected, check.measured, _yes(happened=check.happened)) for check in checks],
    )
    happened = all(check.happened for check in checks)
    click.echo()
    sum_ = "Every part happened" if happened else "Not every part happened"
    click.echo(f"{sum_}, in {time.monotonic() - began:.0f} s, on simulated cards.")
    return 0 if happened else 1


def _yes(*, happened: bool) -> str:
    return click.style("yes", fg="green") if happened else click.style("NO", fg="red", bold=True)


def _real_cards() -> str:
    """How to go on with the machine's own cards, if it has any."""
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
        f"This machine has {len(cards)} of its own ({models}). To share those, leave out --simulate: "
        "`cotenant gpus` shows them, `cotenant run --gpu-memory 4Gi -- COMMAND` runs a command on them."
    )

"""Goes on with the idle rule of a job whose `cotenant run` was killed: `cotenant run` itself starts it."""

from __future__ import annotations

import click

from cotenant.cli.compose import machine_of, simulate_option
from cotenant.local.idle import take_over


@click.command(hidden=True)
@click.argument("id")
@simulate_option
@click.pass_context
def command(ctx: click.Context, id: str) -> None:
    """Go on with --idle-timeout of the job ID."""
    take_over(machine_of(ctx.obj), id)

"""Terminates a running or waiting command (`cotenant stop`)."""

from __future__ import annotations

import click

from cotenant.cli.completing import jobs
from cotenant.cli.compose import machine_of, simulate_option
from cotenant.core.units import parse_duration
from cotenant.local.stop import stop


@click.command()
@click.argument("name", shell_complete=jobs)
@click.option(
    "--timeout", default="10s", show_default=True, metavar="10s", help="Time between SIGTERM and SIGKILL."
)
@simulate_option
@click.pass_context
def command(ctx: click.Context, name: str, timeout: str) -> None:
    """Terminate NAME: every process of its grant, or a command that waits in line.

    All its processes get SIGTERM; those that still run after the timeout get SIGKILL. In a folder of
    several users, only the user who started NAME and root can stop it.

    \b
    cotenant stop train
    cotenant stop train --timeout 0s       kill it at once
    """  # noqa: D301 -- \b keeps the lines below it as they are
    done = stop(machine_of(ctx.obj), name, parse_duration(timeout, "--timeout"))
    click.echo(f"{done.job.name} {'was killed' if done.killed else 'has ended'}")
    if done.unreleased is not None:
        click.echo(
            f"cotenant: {done.unreleased}: the room of {done.job.name} is released by the next command of "
            "Cotenant that can write it",
            err=True,
        )

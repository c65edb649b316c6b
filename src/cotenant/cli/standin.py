"""Runs a command on simulated GPUs without a grant (`cotenant standin`)."""

from __future__ import annotations

import os
import shlex

import click

from cotenant.cli.completing import programs
from cotenant.cli.compose import machine_of, simulate_option
from cotenant.core.errors import BadInput
from cotenant.local import program


@click.command(context_settings={"allow_interspersed_args": False})
@simulate_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, shell_complete=programs)
@click.pass_context
def command(ctx: click.Context, command: tuple[str, ...]) -> None:
    """Use simulated GPUs without a grant: run COMMAND on them, or print the exports for a shell.

    Memory allocated this way counts as outside any grant.

    \b
    cotenant --simulate 2x16GiB standin -- nvitop -1
    eval "$(cotenant --simulate 2x16GiB standin)"
    """  # noqa: D301 -- \b keeps the lines below it as they are
    if not ctx.obj:
        raise BadInput("which GPUs? Name them with --simulate, as in `cotenant --simulate 2x16GiB standin`")
    cards = machine_of(ctx.obj).card_environment
    if command:
        path = program.find(command[0], os.environ).path
        os.execve(path, command, {**os.environ, **cards})  # noqa: S606
    for name, value in cards.items():
        click.echo(f"export {name}={shlex.quote(value)}")

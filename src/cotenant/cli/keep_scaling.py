"""Scales in the background: `cotenant up -d` itself starts it."""

from __future__ import annotations

import time

import click

from cotenant.cli.compose import machine_of, simulate_option
from cotenant.cli.scaling_extra import scaling_extra
from cotenant.cli.up import scale


@click.command(hidden=True)
@simulate_option
@click.pass_context
def command(ctx: click.Context) -> int:
    """Scale the workloads that are up."""
    with scaling_extra():
        from cotenant.local.scalers.folder import ScalerFolder

        machine = machine_of(ctx.obj)
        return scale(machine, ScalerFolder(machine.home), _dated)


def _dated(line: str) -> None:
    click.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}")

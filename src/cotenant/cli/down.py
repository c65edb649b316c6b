"""Stops workloads and all their replicas (`cotenant down`)."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from cotenant.cli.completing import workloads
from cotenant.cli.compose import machine_of, simulate_option
from cotenant.cli.scaling_extra import scaling_extra
from cotenant.local.machine import Machine

if TYPE_CHECKING:
    from cotenant.local.scalers.folder import ScalerFolder


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME|FILE]...", shell_complete=workloads)
@simulate_option
@click.pass_context
def command(ctx: click.Context, names: tuple[str, ...]) -> int:
    """Stop the workloads of `cotenant up`: all of them, or those of these names or files.

    Replicas get SIGTERM, and SIGKILL after their terminationGracePeriod. It waits for their end. A
    `cotenant up` that runs ends when no workload is left. What was learned of a workload is forgotten.

    \b
    cotenant down
    cotenant down room-scene
    cotenant down workloads.yaml
    """  # noqa: D301 -- \b keeps the lines below it as they are
    with scaling_extra():
        from cotenant.local.scalers.declaring import take_down
        from cotenant.local.scalers.folder import ScalerFolder

        machine = machine_of(ctx.obj)
        folder = ScalerFolder(machine.home)
        folder.create()
        gone = take_down(folder, names, machine.store.jobs())
        if not gone:
            click.echo("nothing is up")
            return 0
        return _end(machine, folder, gone)


def _end(machine: Machine, folder: ScalerFolder, names: Collection[str]) -> int:
    """Waits until the replicas have ended; stops them itself where no `cotenant up` runs."""
    import asyncio

    from cotenant.local.scalers.folder import AlreadyScaling
    from cotenant.local.scalers.supervising import supervise

    left = set(names)
    while True:
        here = folder.up(machine.store.jobs())
        for name in sorted(left - here):
            click.echo(f"{name}: down")
        left &= here
        if not left:
            return 0
        try:
            with folder.scaling(stops=True):
                return 0 if asyncio.run(supervise(machine, folder, click.echo, left)) else 1
        except AlreadyScaling:
            time.sleep(0.1)

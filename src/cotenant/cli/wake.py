"""Brings back a workload that was released because it idled (`cotenant wake`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cotenant.cli import table
from cotenant.cli.cluster import Where, ask, namespace_options
from cotenant.cli.compose import output_option
from cotenant.core.errors import BadInput

if TYPE_CHECKING:
    from cotenant.kube.api.client import Client
    from cotenant.kube.operating.waking import Woken


@click.command()
@click.argument("name")
@click.option("--replicas", type=int, metavar="N", help="Instead of what it had when it was released.")
@output_option
@namespace_options
def command(where: Where, name: str, replicas: int | None, output: str) -> None:
    """Bring back a workload that was scaled to zero because its GPUs were idle.

    NAME is a workload's, or KIND/NAME. It gets as many replicas as it had; on a full cluster they wait in
    line. A workload that runs is left alone. A GpuScaler wakes its workload by itself, when work comes; by
    hand it gets the scaler's minimum, at least one replica, until its load changes.

    \b
    cotenant wake room-scene
    cotenant wake -n team replicationcontroller/room-scene
    cotenant wake room-scene --replicas 2
    """  # noqa: D301 -- \b keeps the lines below it as they are
    if where.everywhere:
        raise BadInput("--all-namespaces: one workload is woken: name its namespace with -n")

    async def work(client: Client, namespace: str) -> Woken:
        from cotenant.kube.operating import waking

        return await waking.wake(client, name, namespace, replicas)

    woken = ask(where, work)
    if output == "json":
        table.show_json(woken.to_json())
    else:
        click.echo(woken.sentence)

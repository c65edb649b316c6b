"""Removes what Cotenant wrote into a cluster (`cotenant uninstall`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cotenant.cli import table
from cotenant.cli.cluster import Where, ask, namespace_options
from cotenant.cli.compose import output_option

if TYPE_CHECKING:
    from cotenant.kube.api.client import Client
    from cotenant.kube.operating.uninstalling import Removed


HOME = "cotenant-system"


@click.command()
@click.option(
    "--wait",
    "seconds",
    type=float,
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for agents and servers to exit.",
)
@output_option
@namespace_options
def command(where: Where, seconds: float, output: str) -> None:
    """Remove what Cotenant wrote into a cluster, after the chart or deploy/cotenant.yaml was deleted.

    It removes the capacity and annotations that agents wrote to nodes, and deletes the server's Secret,
    Leases and EndpointSlice from the namespace where it ran (cotenant-system unless -n names another).
    Running pods keep running. `helm uninstall` does this by itself; without Helm:

    \b
    kubectl delete -f deploy/cotenant.yaml
    cotenant uninstall
    """  # noqa: D301 -- \b keeps the lines below it as they are

    async def work(client: Client, _: str) -> Removed:
        from cotenant.kube.operating.uninstalling import uninstall

        return await uninstall(client, where.namespace or HOME, seconds)

    removed = ask(where, work)
    if output == "json":
        table.show_json({"nodes": removed.nodes, "objects": removed.objects})
    else:
        click.echo(removed.sentence)

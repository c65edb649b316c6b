"""Stops new grants on one GPU of a cluster (`cotenant drain`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cotenant.cli import table
from cotenant.cli.cluster import Where, ask, where_options
from cotenant.cli.completing import cluster_gpus, nodes
from cotenant.cli.compose import output_option

if TYPE_CHECKING:
    from cotenant.kube.api.client import Client
    from cotenant.kube.operating.draining import Drained


@click.command()
@click.argument("gpu", shell_complete=cluster_gpus)
@click.option("--node", metavar="NAME", help="The GPU's node, if GPU is an index.", shell_complete=nodes)
@output_option
@where_options
def command(where: Where, gpu: str, node: str | None, output: str) -> None:
    """Take one GPU of a cluster out of service; the node's other GPUs stay in use.

    GPU is a UUID (or the beginning of one), or NODE/INDEX. The GPU gets no new grants; pods that use it
    keep running and are listed. Draining a GPU twice is harmless.

    \b
    cotenant drain GPU-5a3f0e1c
    cotenant drain gpu-node-1/3
    cotenant drain 3 --node gpu-node-1
    cotenant undrain gpu-node-1/3        put it back into service
    """  # noqa: D301 -- \b keeps the lines below it as they are
    show(set_drained(where, gpu, node, drained=True), output)


def set_drained(where: Where, gpu: str, node: str | None, *, drained: bool) -> Drained:
    async def work(client: Client, _: str) -> Drained:
        from cotenant.kube.operating import draining

        return await draining.set_drained(client, gpu, node, drained=drained)

    return ask(where, work)


def show(outcome: Drained, output: str) -> None:
    if output == "json":
        table.show_json(outcome.to_json())
    else:
        click.echo(outcome.sentence)

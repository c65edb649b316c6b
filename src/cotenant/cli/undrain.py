"""Puts a drained GPU back into service (`cotenant undrain`)."""

from __future__ import annotations

import click

from cotenant.cli.cluster import Where, where_options
from cotenant.cli.completing import cluster_gpus, nodes
from cotenant.cli.compose import output_option
from cotenant.cli.drain import set_drained, show


@click.command()
@click.argument("gpu", shell_complete=cluster_gpus)
@click.option("--node", metavar="NAME", help="The GPU's node, if GPU is an index.", shell_complete=nodes)
@output_option
@where_options
def command(where: Where, gpu: str, node: str | None, output: str) -> None:
    """Put a drained GPU back into service: it gets new grants again, and waiting pods are retried.

    \b
    cotenant undrain GPU-5a3f0e1c
    cotenant undrain gpu-node-1/3
    """  # noqa: D301 -- \b keeps the lines below it as they are
    show(set_drained(where, gpu, node, drained=False), output)

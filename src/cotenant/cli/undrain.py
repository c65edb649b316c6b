"""`cotenant undrain`."""

from __future__ import annotations

import click

from cotenant.cli.cluster import Where, where_options
from cotenant.cli.compose import output_option
from cotenant.cli.drain import set_drained, show


@click.command()
@click.argument("gpu")
@click.option("--node", metavar="NAME", help="The card's node, where GPU is an index.")
@output_option
@where_options
def command(where: Where, gpu: str, node: str | None, output: str) -> None:
    """Give a drained card back: it takes new grants again, and those who wait for it are told.

    \b
    cotenant undrain GPU-5a3f0e1c
    cotenant undrain gpu-node-1/3
    """  # noqa: D301 -- \b keeps the lines below it as they are
    show(set_drained(where, gpu, node, drained=False), output)

"""Lists a cluster's GPUs with what is granted of each (`cotenant status`)."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from cotenant.cli import table, terminal
from cotenant.cli.cluster import Where, ask, namespace_options
from cotenant.cli.completing import nodes
from cotenant.cli.compose import output_option
from cotenant.core.errors import BadInput

if TYPE_CHECKING:
    from cotenant.kube.api.client import Client
    from cotenant.kube.operating.status.reading import Seen


@click.command()
@click.argument("node", required=False, shell_complete=nodes)
@click.option("-d", "--details", is_flag=True, help="List the pods of each GPU.")
@click.option("-w", "--watch", is_flag=True, help="Print it again whenever it changes, until Ctrl-C.")
@output_option
@namespace_options
def command(where: Where, node: str | None, details: bool, watch: bool, output: str) -> None:
    """List the GPUs of a cluster: what is granted of each, and to whom.

    \b
    cotenant status                      one line per node, as `kubectl inspect gpushare` prints it
    cotenant status -d                   the pods of each GPU; which GPUs are unhealthy or drained; what was
                                         asked to hold each pod to its limit, and what does
    cotenant status -d -n team           only that namespace's pods are listed
    cotenant status gpu-node-1 -w        one node, again at every change
    cotenant status -o json              bytes as integers, UUIDs, health; all pods of these nodes, and
                                         what placements are judged by

    It reads from the API server only, so it works while no server of Cotenant runs. Amounts are in the unit
    that aliyun.com/gpu-mem has in this cluster; used amounts are rounded up.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    if watch and output == "json":
        raise BadInput("--watch prints tables only: for JSON, leave out --watch")

    def shown(seen: Seen) -> str:
        return _shown(seen, node, where.namespace, details=details, output=output)

    async def work(client: Client, _: str) -> None:
        from cotenant.kube.operating.status.reading import read_all, with_learned

        if watch:
            await _follow(client, shown)
            return
        seen = await read_all(client)
        click.echo(shown(await with_learned(client, seen) if output == "json" else seen), nl=False)

    try:
        ask(where, work)
    except KeyboardInterrupt:
        click.echo()


def _shown(seen: Seen, node: str | None, namespace: str | None, *, details: bool, output: str) -> str:
    from cotenant.kube.operating.status import inspect_table
    from cotenant.kube.operating.status.snapshot import document, one_node

    view = seen.full_view if output == "json" else seen.view
    nodes = view.nodes
    if node is not None:
        nodes = one_node(nodes, node, seen.nodes)
    if output == "json":
        pending = view.pending if node is None else ()
        return table.json_text(document(nodes, inspect_table.unit_of(nodes).name, pending, view.learned))
    if not any(each.gpus for each in nodes):
        return (
            "no node reports a GPU: Cotenant's agents report them; see whether they run: "
            "kubectl get pods -A -l app.kubernetes.io/name=cotenant\n"
        )
    text = inspect_table.summary(nodes)
    if details:
        text = inspect_table.details(nodes, namespace) + inspect_table.limits(nodes, namespace)
    return "".join(f"{table.printable(line)}\n" for line in text.splitlines())


async def _follow(client: Client, shown: Any) -> None:
    """Prints the table again when watched objects change: at most once a second, without relisting."""
    from cotenant.kube.operating.status.reading import follow

    before = None
    async for seen in follow(client):
        text = shown(seen)
        if text != before:
            if terminal.is_terminal() and not terminal.is_dumb():
                click.clear()
            elif before is not None:
                click.echo()
            click.echo(text, nl=False)
            sys.stdout.flush()
            before = text
        await asyncio.sleep(1.0)

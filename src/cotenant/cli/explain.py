"""Explains where a pod runs, or why it is pending (`cotenant explain`)."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import click

from cotenant.cli import table
from cotenant.cli.cluster import Where, ask, namespace_options, require_libraries
from cotenant.cli.completing import pods
from cotenant.cli.compose import output_option
from cotenant.cli.table import Column

if TYPE_CHECKING:
    from cotenant.kube.api.client import Client
    from cotenant.kube.operating.explain.explanation import Explanation
    from cotenant.kube.operating.explain.workloads import Asked
    from cotenant.observe.view import View

_LINE = (
    Column("LINE"),
    Column("POD", least=16),
    Column("WAITED", rank=2),
    Column("REASON", rank=1),
    Column("WHY", least=20, wraps=True),
)
_COLOURS = {"running": "green", "ended": "green", "not-gpu": "green", "refused": "red"}


@click.command()
@click.argument("pod", required=False, shell_complete=pods)
@output_option
@namespace_options
def command(where: Where, pod: str | None, output: str) -> None:
    """Explain where a pod runs and what limits it, or why it is pending and what to do about it.

    POD is a pod or the workload that creates pods: deployment/web, job/train, sts/llm. A workload helps
    when its pods are not even created: a quota is used up, or the webhook does not answer. Without POD, all
    waiting pods are explained, in the order of the line.

    \b
    cotenant explain train-0
    cotenant explain deployment/web -n team
    cotenant explain -A                  the line of the whole cluster
    cotenant explain train-0 -o json     with a stable word for the reason

    It says, for each node and GPU, why there is no room, and what would make the pod fit: pods that would
    have to end, a smaller demand, a GPU that is drained, unhealthy, or held for a pod ahead in the line. GPUs
    that would do, on nodes without the CPU, memory or place for the pod, are named.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    require_libraries()
    from cotenant.kube.operating.explain import gather
    from cotenant.kube.operating.explain.explanation import line_json
    from cotenant.kube.operating.explain.workloads import parse_asked

    asked = None if pod is None else parse_asked(pod)

    async def line(client: Client, namespace: str) -> View:
        return await gather.explain_line(client, None if where.everywhere else namespace, time.time())

    async def one(client: Client, namespace: str, asked: Asked) -> list[Explanation]:
        return await gather.explain(client, None if where.everywhere else namespace, asked, time.time())

    if asked is None:
        view = ask(where, line)
        if output == "json":
            table.show_json(line_json(view))
        else:
            show_line(view)
        return
    explained = ask(where, partial(one, asked=asked))
    if output == "json":
        table.show_json([each.to_json() for each in explained])
    else:
        for number, each in enumerate(explained):
            if number:
                click.echo()
            _show(each)


def _show(told: Explanation) -> None:
    first, *rest = told.lines()
    target, _, state = first.rpartition(": ")
    click.echo(f"{click.style(target, bold=True)}: {click.style(state, fg=_COLOURS.get(state, 'yellow'))}")
    for line in rest:
        click.echo(table.printable(line))


def show_line(view: View) -> None:
    """Prints the pods in line as a table."""
    if not view.line:
        click.echo("nobody waits for a GPU")
        return
    rows = [
        (str(each.place), str(each), table.duration(round(each.waited_seconds)), each.code, each.reason)
        for each in view.line
    ]
    table.show(_LINE, rows)
    if view.left_out:
        click.echo(f"and {view.left_out} more in line: cotenant explain POD explains any of them", err=True)

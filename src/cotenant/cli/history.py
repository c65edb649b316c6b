"""Lists jobs that have ended, with the most GPU memory that they held (`cotenant history`)."""

from __future__ import annotations

import time
from typing import Any

import click

from cotenant.cli import table
from cotenant.cli.compose import machine_of, output_option, simulate_option
from cotenant.cli.table import Column
from cotenant.core.units import format_bytes, format_exact
from cotenant.local.ended import EndedJob
from cotenant.local.line import ended_jobs
from cotenant.local.store import ENDED

HEADER = (
    Column("ENDED", rank=5),
    Column("NAME", least=8),
    Column("USER", rank=4, least=6),
    Column("LIMIT"),
    Column("PEAK"),
    Column("DENIED", rank=3),
    Column("TIME", rank=2),
    Column("EXIT"),
    Column("WOULD DO"),
    Column("COMMAND", rank=1, least=12),
)
SHOWN = 20
LONGEST_REASON = 40
"""Characters; -o json has all of it."""


@click.command()
@click.argument("name", required=False)
@click.option(
    "-n",
    "--last",
    type=click.IntRange(1, ENDED),
    default=SHOWN,
    show_default=True,
    metavar="N",
    help="At most N of them.",
)
@output_option
@simulate_option
@click.pass_context
def command(ctx: click.Context, name: str | None, last: int, output: str) -> None:
    """List commands that have ended, the last first; only those named NAME if it is given.

    \b
    cotenant history
    cotenant history train -n 5
    cotenant history -o json | jq '.ended[].peak'

    PEAK is the most that its processes held together, contexts included; `-` if it is not known. WOULD DO
    is what to ask for with --gpu-memory the next time: the peak and some headroom. TIME runs until its end
    was seen. EXIT is the command's own code, `-` if `cotenant run` was killed before it could see it; behind
    it is why Cotenant stopped it, such as `143 (idle for 2h)`.

    The ledger keeps the last 1000.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    machine = machine_of(ctx.obj)
    ended = [job for job in ended_jobs(machine) if name in (None, job.name, job.id)][:last]
    if output == "json":
        table.show_json(
            {
                "simulated": machine.home.simulated,
                "home": str(machine.home.folder),
                "ended": [_json(job) for job in ended],
            }
        )
        return
    if not ended:
        click.echo("nothing has ended yet" if name is None else f"nothing named {name} has ended")
        return
    table.show(HEADER, [_row(job) for job in ended])


def _json(job: EndedJob) -> dict[str, Any]:
    return {**job.to_json(), "limit": job.limit, "peak": job.peak, "would_do": job.would_do}


def _row(job: EndedJob) -> tuple[str, ...]:
    wants = job.would_do
    return (
        time.strftime("%Y-%m-%d %H:%M", time.localtime(job.ended)),
        job.name,
        job.user,
        format_bytes(job.limit) + (" whole" if job.whole else ""),
        "-" if job.peak is None else format_bytes(job.peak),
        str(job.denied) + (f" (+{job.over} let through)" if job.over else ""),
        table.duration(job.seconds),
        ("-" if job.code is None else str(job.code))
        + (f" ({table.cut(job.stopped, LONGEST_REASON)})" if job.stopped else ""),
        "-" if wants is None else format_exact(wants),
        table.command_line(job.command),
    )

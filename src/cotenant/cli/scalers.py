"""Lists the workloads of `cotenant up` with their last decision (`cotenant scalers`)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from cotenant.cli import table
from cotenant.cli.compose import machine_of, output_option, simulate_option
from cotenant.cli.scaling_extra import scaling_extra
from cotenant.cli.table import Cell, Column
from cotenant.local.machine import Machine

if TYPE_CHECKING:
    from cotenant.local.scalers.folder import ScalerFolder

HEADER = (
    Column("NAME", least=8),
    Column("REPLICAS"),
    Column("DESIRED"),
    Column("BACKLOG"),
    Column("STATE"),
    Column("SINCE", rank=2),
    Column("REASON", rank=1, least=20, wraps=True),
)
_WORRYING = ("NoMetric", "MetricStuck", "Stalled", "NotStarting")


@click.command()
@output_option
@simulate_option
@click.pass_context
def command(ctx: click.Context, output: str) -> int:
    """List the workloads of `cotenant up`: replicas, backlog, state, and the reason of the last decision.

    \b
    cotenant scalers
    cotenant scalers -o json | jq '.scalers[].state'

    REPLICAS are those that are ready, of all. BACKLOG is how long the ready replicas would take for what
    waits in the queue, and the number of messages. SINCE is how long it is in this STATE:

    \b
    Active, ScalingUp, ScalingDown, AtMaximum     as they say
    Idle, Waking                                  at zero, or on its way there or back
    WaitingForGpu                                 a replica is in line; REASON has its place
    NoMetric, MetricStuck                         the queue does not answer, or always the same
    Stalled                                       messages wait and nothing completes
    NotStarting                                   replicas start again and again; look at their logs
    """  # noqa: D301 -- \b keeps the lines below it as they are
    with scaling_extra():
        from cotenant.local.scalers.folder import ScalerFolder

        machine = machine_of(ctx.obj)
        folder = ScalerFolder(machine.home)
        if output == "json":
            table.show_json(
                {
                    "simulated": machine.home.simulated,
                    "home": str(machine.home.folder),
                    "scaled_by": folder.scaled_by(),
                    "scalers": _gather(folder),
                }
            )
            return 0
        show(machine, folder)
        return 0


def show(_machine: Machine, folder: ScalerFolder) -> None:
    """Prints the table."""
    found = _gather(folder)
    if not found:
        click.echo("nothing is up")
        return
    table.show(HEADER, [_row(each) for each in found])
    if folder.scaled_by() is None:
        click.echo("nobody scales them now: `cotenant up` goes on, `cotenant down` stops them")


def _gather(folder: ScalerFolder) -> list[dict[str, Any]]:
    declared = {each.name: each for each in folder.declared()}
    return [_scaler(folder, name, declared.get(name)) for name in sorted({*declared, *folder.records()})]


def _scaler(folder: ScalerFolder, name: str, declared: Any) -> dict[str, Any]:
    record = folder.record(name)
    status = record.get("status", {})
    leaving = (
        {} if declared is not None else {"state": "Leaving", "desired": 0, "reason": "it is being stopped"}
    )
    since = status.get("since") or None
    return {
        "name": name,
        "file": None if declared is None else str(declared.file),
        "replicas": sum(not each.get("leaving") for each in record.get("replicas", ())),
        "ready": status.get("ready", 0),
        "desired": status.get("desired", 0),
        "backlog": status.get("backlog"),
        "backlog_seconds": status.get("backlog_seconds"),
        "state": status.get("state", "Starting"),
        "since": since,
        "since_seconds": None if since is None else max(0.0, time.time() - since),
        "reason": status.get("reason", "no decision yet"),
        "polled": status.get("polled") or None,
        "logs": [str(folder.log(f"{name}-{each['number']}")) for each in record.get("replicas", ())],
        **leaving,
    }


def _row(found: dict[str, Any]) -> tuple[Cell | str, ...]:
    backlog, seconds = found["backlog"], found["backlog_seconds"]
    return (
        found["name"],
        f"{found['ready']}/{found['replicas']}",
        str(found["desired"]),
        "-" if backlog is None or seconds is None else f"{seconds:.1f}s ({backlog:.0f})",
        Cell(found["state"], "red" if found["state"] in _WORRYING else None),
        table.duration(found["since_seconds"]),
        found["reason"],
    )

"""Lists this machine's GPUs with free, granted and used memory (`cotenant gpus`)."""

from __future__ import annotations

import click

from cotenant.cli import table
from cotenant.cli.compose import machine_of, output_option, simulate_option
from cotenant.cli.table import Cell, Column
from cotenant.core.units import format_bytes
from cotenant.local.snapshot import snapshot, to_json
from cotenant.observe.view import GpuView, ProcessView

BAR = Column("", rank=6)
GPUS = (
    Column("GPU"),
    Column("MODEL", rank=5, least=12),
    Column("MEMORY"),
    BAR,
    Column("FREE"),
    Column("GRANTED", rank=1),
    Column("USED"),
    Column("OUTSIDE", rank=3),
    Column("BUSY", rank=4),
    Column("WHO", rank=2, least=16, wraps=True),
)


@click.command()
@output_option
@simulate_option
@click.pass_context
def command(ctx: click.Context, output: str) -> None:
    """List this machine's GPUs: free and granted memory, and who uses them.

    \b
    cotenant gpus
    cotenant gpus -o json
    cotenant gpus --simulate 2xA100-80GB,1xT4

    FREE is what a new grant may take: the GPU's memory less what is granted and less what processes
    outside any grant hold. USED is what all processes hold now.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    machine = machine_of(ctx.obj)
    view = snapshot(machine)
    if output == "json":
        document = to_json(machine, view)
        table.show_json({name: document[name] for name in ("simulated", "home", "gpus")})
        return
    if BAR in table.show(GPUS, [gpu_row(gpu) for gpu in view.gpus]):
        return
    signs = table.signs()
    click.echo(
        f"\n{signs['used']} used by grants  {signs['granted']} granted, not used  "
        f"{signs['outside']} outside grants  {signs['free']} free"
    )


def gpu_row(view: GpuView) -> tuple[Cell | str, ...]:
    signs, gpu, granted = table.signs(), view.gpu, view.granted
    used = min(view.used_by_grants or 0, granted)
    parts = [(used, signs["used"]), (granted - used, signs["granted"]), (view.outside, signs["outside"])]
    return (
        str(gpu.index),
        gpu.model,
        format_bytes(gpu.memory),
        Cell(table.bar(parts, gpu.memory), "green" if gpu.healthy else "red"),
        format_bytes(view.room.free),
        format_bytes(granted),
        "-" if view.used is None else format_bytes(view.used),
        format_bytes(view.outside),
        "-" if view.utilization is None else f"{view.utilization}%",
        Cell(_who(view), None if gpu.healthy else "red"),
    )


def _who(view: GpuView) -> str:
    who = [f"{share} (whole)" if view.room.whole else str(share) for share in view.shares]
    who += [_stranger(each) for each in view.strangers]
    if view.gpu.shared:
        who.insert(0, "memory shared with the host")
    if not view.gpu.healthy:
        who.insert(0, f"SICK: {view.problem}")
    return ", ".join(who) or "-"


def _stranger(process: ProcessView) -> str:
    return f"pid {process.pid}{f' of {process.user}' if process.user else ''} outside"

"""Lists jobs with their grants and GPU memory, and the line (`cotenant ps`)."""

from __future__ import annotations

import click

from cotenant.cli import table
from cotenant.cli.compose import machine_of, output_option, simulate_option
from cotenant.cli.table import Cell, Column
from cotenant.core.refusal import ordinal
from cotenant.core.units import format_bytes
from cotenant.local.snapshot import snapshot, to_json
from cotenant.observe.view import GrantView, WaitingView

GRANTS = (
    Column("NAME", least=8),
    Column("USER", rank=2, least=6),
    Column("PID", rank=7),
    Column("GPU"),
    Column("LIMIT"),
    Column("USED"),
    Column("PEAK", rank=6),
    Column("DENIED", rank=3),
    Column("TIME", rank=8),
    Column("IDLE", rank=5),
    Column("ENFORCER", rank=4),
    Column("COMMAND", rank=1, least=12),
)
LINE = (
    Column("LINE"),
    Column("NAME", least=8),
    Column("USER", rank=2, least=6),
    Column("PID", rank=4),
    Column("WAITED", rank=3),
    Column("COMMAND", rank=1, least=12),
    Column("WHY", least=20, wraps=True),
)


@click.command()
@output_option
@simulate_option
@click.pass_context
def command(ctx: click.Context, output: str) -> None:
    """List what runs, with its limit and use, and what waits, with its place in line.

    \b
    cotenant ps
    cotenant ps -o json

    DENIED counts allocations that were refused. TIME is how long it has had its grant. IDLE is the time
    since the last kernel launch or allocation, or since its start if there was none. ENFORCER is what is in
    force: `shim` (allocations beyond the limit fail) or `watch` (use is measured, not limited). A narrow
    terminal has no room for every column: `cotenant ps | cat` shows all.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    machine = machine_of(ctx.obj)
    view = snapshot(machine)
    if output == "json":
        document = to_json(machine, view)
        table.show_json({name: document[name] for name in ("simulated", "home", "grants", "line")})
        return
    if not view.grants and not view.line:
        click.echo("nothing runs, nothing waits")
        return
    if view.grants:
        table.show(GRANTS, [_grant(grant) for grant in view.grants])
    if view.line:
        if view.grants:
            click.echo()
        table.show(LINE, [waiting_row(waiting) for waiting in view.line])


def _grant(grant: GrantView) -> tuple[Cell | str, ...]:
    cards = ",".join("?" if share.index is None else str(share.index) for share in grant.shares)
    held = grant.enforcer if grant.mode == "enforce" else f"{grant.enforcer} ({grant.mode})"
    if grant.compute is not None:
        held += ", compute: mps" if grant.compute == "mps" else ", compute: not enforced"
    return (
        grant.name,
        grant.user,
        str(grant.pid),
        cards,
        format_bytes(grant.limit) + (" whole" if any(share.whole for share in grant.shares) else ""),
        Cell(format_bytes(grant.used), "red" if grant.used > grant.limit else None),
        format_bytes(grant.peak),
        str(grant.denied) + (f" (+{grant.over} let through)" if grant.over else ""),
        table.duration(grant.running_seconds),
        table.duration(grant.idle_seconds),
        held,
        table.command_line(grant.command),
    )


def waiting_row(waiting: WaitingView) -> tuple[str, ...]:
    why = waiting.reason
    if waiting.held:
        why += f"; {len(waiting.held)} GPU{'s are' if len(waiting.held) > 1 else ' is'} held for it"
    return (
        ordinal(waiting.place),
        waiting.name,
        waiting.user,
        str(waiting.pid),
        table.duration(waiting.waited_seconds),
        table.command_line(waiting.command),
        why,
    )

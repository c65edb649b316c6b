"""Changes the memory limit of a running command (`cotenant resize`)."""

from __future__ import annotations

import click

from cotenant.cli.compose import machine_of, simulate_option
from cotenant.core.units import format_bytes, parse_memory
from cotenant.local.resize import resize


@click.command()
@click.argument("name")
@click.argument("memory")
@simulate_option
@click.pass_context
def command(ctx: click.Context, name: str, memory: str) -> None:
    """Change the memory limit of NAME to MEMORY while it runs.

    More is possible if its GPUs have room (else nothing changes, exit 75); less, but not below what it
    uses. The new limit counts from the command's next allocation on.

    \b
    cotenant resize train 6Gi
    """  # noqa: D301 -- \b keeps the lines below it as they are
    done = resize(machine_of(ctx.obj), name, parse_memory(memory, "memory"))
    before, after = (format_bytes(job.grant.memory) for job in (done.before, done.after))
    click.echo(f"{done.after.name}: {before} -> {after}")

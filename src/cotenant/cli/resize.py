"""Changes the memory limit of a running command (`cotenant resize`)."""

from __future__ import annotations

import click

from cotenant.cli.completing import jobs
from cotenant.cli.compose import machine_of, simulate_option
from cotenant.core.errors import BadInput
from cotenant.core.units import Memory, check_unit, format_bytes, parse_bytes, parse_memory
from cotenant.local.resize import Step, resize


@click.command(context_settings={"ignore_unknown_options": True})  # `-2Gi` is no option
@click.argument("name", shell_complete=jobs)
@click.argument("memory")
@simulate_option
@click.pass_context
def command(ctx: click.Context, name: str, memory: str) -> None:
    """Change the memory limit of NAME to MEMORY, or by MEMORY with a sign, while it runs.

    More is possible if its GPUs have room (else nothing changes, exit 75); less, but not below what it
    uses. The new limit counts from the command's next allocation on.

    \b
    cotenant resize train 6Gi
    cotenant resize train +2Gi             2 GiB more than it has
    cotenant resize train -512Mi           512 MiB less

    In a folder of several users, only the user who started NAME and root can change it.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    done = resize(machine_of(ctx.obj), name, _wish(memory))
    before, after = (format_bytes(job.grant.memory) for job in (done.before, done.after))
    click.echo(f"{done.after.name}: {before} -> {after}")


def _wish(text: str) -> Memory | Step:
    """Reads the new limit, or with a sign the step to it."""
    body = text.strip()
    if not body.startswith(("+", "-")):
        check_unit(text, "memory")
        return parse_memory(text, "memory")
    amount = body[1:]
    if amount.startswith(("+", "-")):
        raise BadInput(f"memory: {text[:40]!a} has two signs: write it like +2Gi or -2Gi")
    if amount.endswith("%"):
        raise BadInput(
            f"memory: {text[:40]!a}: a step is a size, such as +2Gi; a percentage is written without a sign"
        )
    check_unit(amount, "memory")
    size = parse_bytes(amount, "memory")
    return Step(-size if body.startswith("-") else size)

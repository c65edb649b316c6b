"""Finds and repairs what is wrong on a machine or in a cluster (`cotenant doctor`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cotenant.cli import table
from cotenant.cli.cluster import Where, ask, where_options
from cotenant.cli.compose import machine_of, output_option, simulate_option
from cotenant.core.errors import BadInput, CotenantError, LedgerUnusable
from cotenant.core.finding import ERROR, Kind, Outcome
from cotenant.local.doctor import libraries
from cotenant.local.doctor.checkup import check

if TYPE_CHECKING:
    from cotenant.kube.api.client import Client

_LOOKED_AT = "the ledger, slots, grants, the line, GPUs, driver and shim"
_LOOKED_AT_IN_CLUSTER = (
    "leader, certificates, webhook, policies, schedulers, grants, nodes, GPUs, slots and GpuScalers"
)
APART = 3
"""Findings of one kind that are shown one by one, and in full of those that are more."""
NAMED = 12
"""How many others are named."""
_SEE_FOUND = "resolve the reason that is named here, then run doctor again"
_NO_COMMAND = "no command can be run from here"
_HOME_UNUSABLE = Kind("home-unusable", ERROR, _NO_COMMAND)
_NOT_READY = Kind("not-ready", ERROR, _NO_COMMAND)


@click.command()
@click.option("--fix", is_flag=True, help="Repair what can be repaired.")
@click.option("--cluster", is_flag=True, help="Examine a cluster instead of this machine.")
@output_option
@simulate_option
@where_options
@click.pass_context
def command(ctx: click.Context, where: Where, fix: bool, cluster: bool, output: str) -> int:
    """Find what is wrong on this machine or in a cluster and, with --fix, repair it.

    On a machine it finds: jobs that have ended and are still charged or still wait, slots that no process
    uses or that the ledger does not know, limits that differ from the ledger, GPUs granted beyond their size,
    a ledger that is damaged, locked or not writable, libraries that are missing or not suitable, musl, GPUs
    that are not healthy, and memory held outside grants or by processes without the shim.

    \b
    cotenant doctor
    cotenant doctor --fix
    cotenant doctor -o json

    In a cluster (--cluster, --context, --kubeconfig, or called as `kubectl cotenant doctor`) it finds: GPUs
    granted twice, grants that are forged or of GPUs that are gone, GPU pods that webhook or scheduler did not
    see, agents that are missing or have another version, a second device plugin on the same GPUs, pods that
    see GPUs without a grant, a scheduler that samples nodes, faults of certificates, webhook and policies, no
    leader or one whose term cannot begin, a ledger or slots that differ from grants, quotas that count
    nothing. --fix touches only pods of Cotenant itself: it restores webhook, policies, our scheduler's
    configuration and the leader's endpoint, restarts servers whose ledger is wrong, and removes the drained
    marks of GPUs that are gone.

    \b
    cotenant doctor --cluster
    kubectl cotenant doctor --context production --fix

    Exit codes: 0 if nothing is wrong (any more), 1 if something is left.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    in_cluster = cluster or where.named or (ctx.find_root().info_name or "").startswith("kubectl")
    outcomes = _of_cluster(where, fix=fix) if in_cluster else _of_machine(ctx.obj, fix=fix)
    left = [outcome for outcome in outcomes if outcome.left]
    if output == "json":
        table.show_json({"findings": [outcome.to_json() for outcome in outcomes], "left": len(left)})
    else:
        for alike in _grouped(outcomes):
            _show(alike)
        click.echo(_sum(outcomes, left, fix=fix, in_cluster=in_cluster))
    return 1 if left else 0


def _of_cluster(where: Where, *, fix: bool) -> tuple[Outcome, ...]:
    from datetime import UTC, datetime
    from importlib.metadata import version

    async def work(client: Client, _: str) -> tuple[Outcome, ...]:
        from cotenant.kube.operating.doctor.checkup import check

        return await check(client, lambda: datetime.now(UTC), version("cotenant"), fix=fix)

    return ask(where, work)


def _of_machine(simulate: str | None, *, fix: bool) -> tuple[Outcome, ...]:
    try:
        machine = machine_of(simulate)
    except BadInput:
        raise
    except LedgerUnusable as error:  # without a folder or libraries nothing else can be examined
        return (Outcome(_HOME_UNUSABLE.at("COTENANT_HOME", str(error), _SEE_FOUND), left=True),)
    except CotenantError as error:
        return (Outcome(_NOT_READY.at("cotenant", str(error), _SEE_FOUND), left=True),)
    seen = libraries.look(machine.shim.library, os.environ, machine.card_environment)
    return check(machine, seen, fix=fix)


def _grouped(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """Puts outcomes together that differ only in what they are about. Few stay apart, each with its step."""
    alike: dict[tuple[object, ...], list[Outcome]] = {}
    for each in outcomes:
        key = (each.finding.kind, each.finding.severity, each.finding.means, each.left)
        alike.setdefault(key, []).append(each)
    return [
        group
        for several in alike.values()
        for group in ([several] if len(several) > APART else [[each] for each in several])
    ]


def _show(alike: Sequence[Outcome]) -> None:
    """Shows one outcome, or several that are alike as one."""
    first, finding = alike[0], alike[0].finding
    colour = "red" if finding.severity == ERROR else "yellow"
    kind = f"{click.style(finding.severity, fg=colour, bold=True)} {finding.kind}"
    if len(alike) == 1:
        click.echo(f"{kind}: {table.printable(finding.found)}")
    else:
        click.echo(f"{kind}, {len(alike):,} times:")
        for each in alike[:APART]:
            click.echo(f"    found  {table.printable(each.finding.found)}")
        named = [each.finding.target for each in alike[APART : APART + NAMED]]
        more = len(alike) - APART - len(named)
        others = f" and {more:,} more (-o json has them all)" if more else ""
        click.echo(f"    and    {table.printable(', '.join(named))}{others}")
    click.echo(f"    means  {table.printable(finding.means)}")
    if first.left:
        if first.done:
            click.echo(f"    tried  {table.printable(first.done)}")
        click.echo(f"    do     {table.printable(finding.do)}")
        if len({each.finding.do for each in alike}) > 1:
            click.echo("           and so for the others")
    else:
        click.echo(click.style(f"    fixed  {table.printable(first.done or 'it is gone')}", fg="green"))
    click.echo()


def _sum(outcomes: Sequence[Outcome], left: Sequence[Outcome], *, fix: bool, in_cluster: bool) -> str:
    if not outcomes:
        return f"nothing is wrong with {_LOOKED_AT_IN_CLUSTER if in_cluster else _LOOKED_AT}"
    if not left:
        return f"{len(outcomes)} found, all fixed"
    fixable = sum(outcome.finding.repair is not None for outcome in left)
    command_ = "cotenant doctor --cluster --fix" if in_cluster else "cotenant doctor --fix"
    hint = f": `{command_}` repairs {fixable}" if fixable and not fix else ""
    return f"{len(outcomes)} found, {len(left)} left{hint}"

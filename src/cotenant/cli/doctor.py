"""`cotenant doctor`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cotenant.cli import table
from cotenant.cli.cluster import Where, ask, where_options
from cotenant.cli.compose import machine_of, output_option, simulate_option
from cotenant.core.errors import BadInput, CotenantError, LedgerUnusable
from cotenant.local.doctor import report, system
from cotenant.local.doctor.finding import ERROR, Finding

if TYPE_CHECKING:
    from cotenant.kube.api.client import Client
    from cotenant.kube.operating.doctor import finding as of_cluster

    Outcome = report.Outcome | of_cluster.Outcome

_LOOKED_AT = "the ledger, slots, grants, the line, cards, driver and shim"
_LOOKED_AT_IN_CLUSTER = "leader, certificates, webhook, policies, schedulers, grants, nodes, cards and slots"


@click.command()
@click.option("--fix", is_flag=True, help="Repair what can be repaired.")
@click.option("--cluster", is_flag=True, help="Look at a cluster, not at this machine.")
@output_option
@simulate_option
@where_options
@click.pass_context
def command(ctx: click.Context, where: Where, fix: bool, cluster: bool, output: str) -> int:
    """Find what is wrong here and, with --fix, repair it.

    Looked for on a machine: owners that died and are still charged or still wait, slots that nobody uses
    or that the ledger does not know, limits that differ from the ledger, cards granted beyond their size, a
    damaged, locked or unwritable ledger, missing or unsuitable libraries, musl, sick cards, and memory held
    outside grants or past the shim.

    \b
    cotenant doctor
    cotenant doctor --fix
    cotenant doctor -o json

    In a cluster (--cluster, --context, --kubeconfig, or called as `kubectl cotenant doctor`): cards granted
    twice, grants that are forged or of cards that are gone, GPU pods past webhook or scheduler, agents that
    are missing or of another version, a second device plugin on the same cards, cards visible without
    asking, a scheduler that samples nodes, certificates, webhook and policies, a server that does not lead,
    a ledger or slots that differ from grants, quotas that count nothing. --fix touches no pod but our own: it
    restores webhook, policies, our scheduler's configuration and the way to the leader, restarts servers
    whose ledger is wrong, and takes off the drained marks of cards that are gone.

    \b
    cotenant doctor --cluster
    kubectl cotenant doctor --context production --fix

    Exit codes: 0 if nothing is wrong (any more), 1 if something is left.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    in_cluster = cluster or where.named or (ctx.find_root().info_name or "").startswith("kubectl")
    outcomes: Sequence[Outcome] = _of_cluster(where, fix=fix) if in_cluster else _outcomes(ctx.obj, fix=fix)
    left = [outcome for outcome in outcomes if outcome.left]
    if output == "json":
        table.show_json({"findings": [outcome.to_json() for outcome in outcomes], "left": len(left)})
    else:
        for outcome in outcomes:
            _show(outcome)
        click.echo(_sum(outcomes, left, fix=fix, in_cluster=in_cluster))
    return 1 if left else 0


def _of_cluster(where: Where, *, fix: bool) -> tuple[of_cluster.Outcome, ...]:
    from datetime import UTC, datetime
    from importlib.metadata import version

    async def work(client: Client, _: str) -> tuple[of_cluster.Outcome, ...]:
        from cotenant.kube.operating.doctor.report import check

        return await check(client, lambda: datetime.now(UTC), version("cotenant"), fix=fix)

    return ask(where, work)


def _outcomes(simulate: str | None, *, fix: bool) -> tuple[report.Outcome, ...]:
    try:
        machine = machine_of(simulate)
    except BadInput:
        raise
    except CotenantError as error:  # without a folder or its own libraries nothing else can be looked at
        finding = Finding(
            kind="home-unusable" if isinstance(error, LedgerUnusable) else "not-ready",
            target="COTENANT_HOME" if isinstance(error, LedgerUnusable) else "cotenant",
            severity=ERROR,
            found=str(error),
            means="no command can be run from here",
            do="see above",
        )
        return (report.Outcome(finding, left=True),)
    seen = system.look(machine.shim.library, os.environ, machine.card_environment)
    return report.check(machine, seen, fix=fix)


def _show(outcome: Outcome) -> None:
    finding = outcome.finding
    colour = "red" if finding.severity == ERROR else "yellow"
    click.echo(f"{click.style(finding.severity, fg=colour, bold=True)} {finding.kind}: {finding.found}")
    click.echo(f"    means  {finding.means}")
    if outcome.left:
        if outcome.done:
            click.echo(f"    tried  {outcome.done}")
        click.echo(f"    do     {finding.do}")
    else:
        click.echo(click.style(f"    fixed  {outcome.done or 'it is gone'}", fg="green"))
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

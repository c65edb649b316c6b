"""`cotenant doctor`."""

from __future__ import annotations

import os

import click

from cotenant.cli import table
from cotenant.cli.compose import machine_of, output_option, simulate_option
from cotenant.core.errors import BadInput, CotenantError, LedgerUnusable
from cotenant.local.doctor import report, system
from cotenant.local.doctor.finding import ERROR, Finding


@click.command()
@click.option("--fix", is_flag=True, help="Repair what can be repaired.")
@output_option
@simulate_option
@click.pass_context
def command(ctx: click.Context, fix: bool, output: str) -> int:
    """Find what is wrong here and, with --fix, repair it.

    Looked for: owners that died and are still charged or still wait, slots that nobody uses or that the
    ledger does not know, limits that differ from the ledger, cards granted beyond their size, a damaged,
    locked or unwritable ledger, missing or unsuitable libraries, musl, sick cards, and memory held outside
    grants or past the shim.

    \b
    cotenant doctor
    cotenant doctor --fix
    cotenant doctor -o json

    Exit codes: 0 if nothing is wrong (any more), 1 if something is left.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    outcomes = _outcomes(ctx.obj, fix=fix)
    left = [outcome for outcome in outcomes if outcome.left]
    if output == "json":
        table.show_json({"findings": [outcome.to_json() for outcome in outcomes], "left": len(left)})
    else:
        for outcome in outcomes:
            _show(outcome)
        click.echo(_sum(outcomes, left, fix=fix))
    return 1 if left else 0


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
    seen = system.look(machine.shim, os.environ, machine.card_environment)
    return report.check(machine, seen, fix=fix)


def _show(outcome: report.Outcome) -> None:
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


def _sum(outcomes: tuple[report.Outcome, ...], left: list[report.Outcome], *, fix: bool) -> str:
    if not outcomes:
        return "nothing is wrong with the ledger, slots, grants, the line, cards, driver and shim"
    if not left:
        return f"{len(outcomes)} found, all fixed"
    fixable = sum(outcome.finding.repair is not None for outcome in left)
    hint = f": `cotenant doctor --fix` repairs {fixable}" if fixable and not fix else ""
    return f"{len(outcomes)} found, {len(left)} left{hint}"

"""`cotenant gpus`."""

from __future__ import annotations

import click

from cotenant.cli import table
from cotenant.cli.compose import machine_of, output_option, simulate_option
from cotenant.core.units import format_bytes
from cotenant.local.snapshot import CardView, snapshot


@click.command()
@output_option
@simulate_option
@click.pass_context
def command(ctx: click.Context, output: str) -> None:
    """Show the cards: free and granted memory, and who is on them.

    \b
    cotenant gpus
    cotenant gpus -o json
    cotenant gpus --simulate 2xA100-80GB,1xT4

    FREE is what a new grant may take: the card's memory less what is granted and less what processes
    outside any grant hold. USED is what is in use now, by whomever.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    view = snapshot(machine_of(ctx.obj))
    if output == "json":
        document = view.to_json()
        table.show_json({name: document[name] for name in ("simulated", "home", "gpus")})
        return
    table.show(
        ("GPU", "MODEL", "MEMORY", "", "FREE", "GRANTED", "USED", "OUTSIDE", "BUSY", "WHO"),
        [card_row(card) for card in view.gpus],
    )
    signs = table.signs()
    click.echo(
        f"\n{signs['used']} used by grants  {signs['granted']} granted, not used  "
        f"{signs['outside']} outside grants  {signs['free']} free"
    )


def card_row(card: CardView) -> tuple[str, ...]:
    signs = table.signs()
    used = min(card.used_by_grants, card.granted)
    parts = [(used, signs["used"]), (card.granted - used, signs["granted"]), (card.outside, signs["outside"])]
    return (
        str(card.index),
        card.model,
        format_bytes(card.memory),
        click.style(table.bar(parts, card.memory), fg="green" if card.healthy else "red"),
        format_bytes(card.free),
        format_bytes(card.granted),
        format_bytes(card.used),
        format_bytes(card.outside),
        "-" if card.utilization is None else f"{card.utilization}%",
        _who(card),
    )


def _who(card: CardView) -> str:
    who = [f"{name} (whole)" if card.whole else name for name in card.grants]
    who += [f"pid {each.pid} outside" for each in card.strangers]
    if not card.healthy:
        who.append(click.style(f"SICK: {card.problem}", fg="red"))
    return ", ".join(who) or "-"

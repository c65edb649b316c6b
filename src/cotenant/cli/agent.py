"""cotenant agent: a GPU node's side of Cotenant."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotenant.cli.compose import simulate_option
from cotenant.cli.service import run_service, settings_option

if TYPE_CHECKING:
    from cotenant.kube.api.auth.access import Access
    from cotenant.kube.settings import Settings


@click.command()
@settings_option
@simulate_option
@click.pass_context
def command(ctx: click.Context, settings: Path | None) -> None:
    """Serve a GPU node of a cluster: tell of its cards, give containers their slots, and measure them.

    One runs on each node with cards, as root, with the host's pids, the kubelet's folder and /run/cotenant.
    It finds the node by agent.node in the settings, by NODE_NAME, or by the host's name.

    \b
    cotenant agent --settings /etc/cotenant/settings.toml
    COTENANT__AGENT__SURVEY=5s cotenant agent
    cotenant agent --simulate 2xA100-80GB          on a node without a card
    cotenant settings                              every setting with its default

    \b
    /metrics    cards, containers and the agent's own health, for Prometheus
    /healthz    it lives
    /readyz     the cards are told and the kubelet knows the slots; else what is still waited for
    on agent.port (8889), by TLS with a certificate of its own, or plain where agent.address is 127.0.0.1.

    It ends at SIGTERM and withdraws nothing: pods that run keep their cards and their limits without it. Its
    next start finds everything again.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    from cotenant.kube.agent.agent import serve
    from cotenant.kube.agent.parts import PARTS

    async def with_cards(read: Settings, access: Access) -> None:
        own = replace(read.agent, simulate=ctx.obj) if ctx.obj else read.agent
        await serve(replace(read, agent=own), access)

    run_service(settings, PARTS, with_cards)

"""Runs the node agent (`cotenant agent`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotenant.cli.compose import simulate_option
from cotenant.cli.service import load, run_service, run_until_signal, settings_option

if TYPE_CHECKING:
    from cotenant.kube.api.auth.access import Access
    from cotenant.kube.settings import Settings


@click.command()
@settings_option
@simulate_option
@click.option(
    "--mount-slots",
    type=click.Path(path_type=Path),
    help="Mount a tmpfs of agent.slots_size at this folder, where agent.slots is seen, and exit.",
)
@click.option(
    "--supervise-mps",
    is_flag=True,
    help="Only keep the MPS control daemons of mps.daemons running, for an agent with mps.supervise = false.",
)
@click.pass_context
def command(ctx: click.Context, settings: Path | None, mount_slots: Path | None, supervise_mps: bool) -> None:
    """Run the node agent: publish the node's GPUs, set memory limits of containers, measure their use.

    One agent runs on each GPU node, as root, with the host's PIDs, the kubelet's folder and /run/cotenant.
    The node's name is agent.node in the settings, else NODE_NAME, else the host name.

    \b
    cotenant agent --settings /etc/cotenant/settings.toml
    COTENANT__AGENT__SURVEY=5s cotenant agent
    cotenant agent --simulate 2xA100-80GB          on a node without GPUs
    cotenant settings                              every setting with its default

    \b
    /metrics    GPUs, containers and the agent's own health, for Prometheus
    /healthz    the process is alive
    /readyz     GPUs are published and slots registered with the kubelet; else what is missing
    on agent.port (8889), over TLS with a certificate of its own, or plain HTTP if agent.address is 127.0.0.1.

    It exits on SIGTERM and withdraws nothing: running pods keep their GPUs and limits without it. After a
    restart it finds its state again.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    from cotenant.kube.agent.agent import serve
    from cotenant.kube.agent.parts import PARTS

    if mount_slots is not None:
        _mount_slots(mount_slots, settings)
        return
    if supervise_mps:
        _supervise_mps(ctx.obj, settings)
        return

    async def with_cards(read: Settings, access: Access) -> None:
        await serve(_simulating(read, ctx.obj), access)

    run_service(settings, PARTS, with_cards)


def _simulating(read: Settings, spec: str | None) -> Settings:
    return replace(read, agent=replace(read.agent, simulate=spec)) if spec else read


def _supervise_mps(spec: str | None, file: Path | None) -> None:
    from cotenant.kube.agent.mps.supervising import supervise
    from cotenant.kube.agent.parts import PARTS

    run_until_signal(supervise(_simulating(load(file, PARTS), spec)))


def _mount_slots(folder: Path, file: Path | None) -> None:
    from cotenant.kube.agent.mps.layout import mount_mps
    from cotenant.kube.agent.parts import PARTS
    from cotenant.kube.agent.slots.mounting import mount_slots

    read = load(file, PARTS)
    own = read.agent
    if own.slots_size:
        mount_slots(folder, own.slots_size, own.slots_label)
    if read.mps.daemons != "off" and read.mps.size:
        mount_mps(folder / "mps", read.mps.size, own.slots_label)

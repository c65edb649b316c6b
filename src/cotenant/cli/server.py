"""Runs the cluster's server: webhook, scheduler extender, line and scalers (`cotenant server`)."""

from __future__ import annotations

from pathlib import Path

import click

from cotenant.cli.service import run_service, settings_option


@click.command()
@settings_option
def command(settings: Path | None) -> None:
    """Run the server of a cluster: admit GPU pods, place them on GPUs, and keep the line of waiting pods.

    Several servers may run. Each of them admits pods (webhook); only the leader, which holds the Lease,
    answers kube-scheduler (extender). Its own address is server.address in the settings, or POD_IP in the
    environment.

    \b
    cotenant server --settings /etc/cotenant/settings.toml
    COTENANT__LINE__PATIENCE=90s cotenant server
    cotenant settings                    every setting with its default

    It exits on SIGTERM. Running pods keep running without it; waiting pods are served by the next leader.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    from cotenant.kube.server.parts import PARTS
    from cotenant.kube.server.server import serve

    run_service(settings, PARTS, serve)

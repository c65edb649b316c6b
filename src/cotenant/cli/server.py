"""cotenant server: the cluster's side of Cotenant."""

from __future__ import annotations

from pathlib import Path

import click

from cotenant.cli.service import run_service, settings_option


@click.command()
@settings_option
def command(settings: Path | None) -> None:
    """Serve a cluster: admit GPU pods, place them on cards, and keep those that wait in line.

    Several servers may run. Each of them admits pods (webhook); one of them, which holds the Lease, is asked
    by kube-scheduler (extender). Its own address is server.address in the settings, or POD_IP in the
    environment.

    \b
    cotenant server --settings /etc/cotenant/settings.toml
    COTENANT__LINE__PATIENCE=90s cotenant server
    cotenant settings                    every setting with its default

    It ends at SIGTERM. Pods that run keep running without it, and those that wait are served by the next one.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    from cotenant.kube.server.parts import PARTS
    from cotenant.kube.server.server import serve

    run_service(settings, PARTS, serve)

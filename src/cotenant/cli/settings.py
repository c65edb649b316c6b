"""Prints every setting of the server and the agent with its default (`cotenant settings`)."""

from __future__ import annotations

import click


@click.command()
def command() -> None:
    """Print every setting of `cotenant server` and `cotenant agent` with its default, as a TOML file.

    Environment variables take precedence: COTENANT__LINE__PATIENCE is `patience` in `[line]`.
    """
    from cotenant.kube.settings import Settings
    from cotenant.settings.reference import settings_reference

    click.echo(settings_reference(Settings()), nl=False)

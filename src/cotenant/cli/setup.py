"""Creates the folder for a ledger that all users of a machine share (`cotenant setup`)."""

from __future__ import annotations

from pathlib import Path

import click

from cotenant.local import home
from cotenant.local.setup import TMPFILES, setup


@click.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=home.FOR_ALL,
    show_default=True,
    help="The folder to create.",
)
def command(folder: Path) -> None:
    """Create the folder in which all users of this machine share one ledger (as root).

    Without it each user has a separate ledger and sees the memory of others as taken. With it, every user
    can read and change every grant, and clean up after others: the users of one machine cooperate.

    \b
    sudo cotenant setup
    """  # noqa: D301 -- \b keeps the lines below it as they are
    for path in setup(folder.absolute(), tmpfiles=TMPFILES if folder == home.FOR_ALL else None):
        click.echo(f"ready: {path}")
    if folder != home.FOR_ALL:
        click.echo(f"to use it, set COTENANT_HOME={folder.absolute()}")

"""Creates the folder for a ledger that all users of a machine share (`cotenant setup`)."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import sys
from pathlib import Path

import click

from cotenant.local import home
from cotenant.local.setup import TMPFILES, NeedsRoot, setup


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
    cotenant setup                  it calls sudo itself, with its own full path
    sudo cotenant setup             where cotenant is in root's PATH too, such as /usr/local/bin
    """  # noqa: D301 -- \b keeps the lines below it as they are
    if os.geteuid() != 0:
        _as_root(folder)
    for path in setup(folder.absolute(), tmpfiles=TMPFILES if folder == home.FOR_ALL else None):
        click.echo(f"ready: {path}")
    if folder != home.FOR_ALL:
        click.echo(f"to use it, set COTENANT_HOME={folder.absolute()}")
    if hidden := _hidden_from_others():
        click.echo(f"other users cannot run cotenant, since {hidden} is closed to them: {_FOR_ALL}")


_FOR_ALL = "install it for all, as docs/one-machine.md says"


def _as_root(folder: Path) -> None:
    """Calls sudo with the full path of this program: sudo's own PATH does not have ~/.local/bin."""
    sudo = shutil.which("sudo")
    line = [*_own_command(), "setup"]
    line += [] if folder == home.FOR_ALL else ["--folder", str(folder.absolute())]
    if sudo is None or sys.stdin is None or not sys.stdin.isatty():
        raise NeedsRoot(f"only root can create the folder for all users: sudo {shlex.join(line)}")
    click.echo(f"cotenant: only root can do this: sudo {shlex.join(line)}", err=True)
    os.execv(sudo, [sudo, *line])  # noqa: S606


def _own_command() -> list[str]:
    program = shutil.which(sys.argv[0])
    if program is None or program.endswith(".py"):
        return [sys.executable, "-m", "cotenant.cli.main"]
    return [os.path.abspath(program)]


def _hidden_from_others() -> Path | None:
    """Finds what keeps other users from running this program: a private home, most often."""
    for used in (Path(_own_command()[0]), Path(sys.prefix), Path(sys.base_prefix), Path(__file__)):
        resolved = used.resolve()
        for each in (resolved, *resolved.parents):
            wanted = stat.S_IXOTH if each.is_dir() else stat.S_IROTH
            if not each.stat().st_mode & wanted:
                return each
    return None

"""Prints the script with which a shell completes `cotenant` (`cotenant completion`)."""

from __future__ import annotations

import sys

import click

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_COTENANT_COMPLETE"
"""Set by the script when it asks the program; click defines its values."""

COMPLETE_FILES, NO_FILES = 0, 4
"""Directives of kubectl to the shell: bits of cobra's ShellCompDirective."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the script with which a shell completes commands, options, job names, GPUs, pods and nodes.

    \b
    eval "$(cotenant completion bash)"                            now, or in ~/.bashrc
    eval "$(cotenant completion zsh)"                             in ~/.zshrc, after compinit
    cotenant completion fish > ~/.config/fish/completions/cotenant.fish

    For all users of a machine:

    \b
    cotenant completion bash > /usr/share/bash-completion/completions/cotenant

    `kubectl cotenant` is completed by kubectl's own completion, which calls kubectl_complete-cotenant. That
    program is installed beside this one.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    from click.shell_completion import ShellComplete, get_completion_class

    from cotenant.cli.main import group

    kind = get_completion_class(shell)
    if kind is None:
        raise AssertionError(shell)
    # Not its own `source`: for bash it asks which bash is here, and the script may be for elsewhere.
    click.echo(ShellComplete.source(kind(group, {}, "cotenant", VARIABLE)), nl=False)


def complete_for_kubectl() -> None:
    """Answers kubectl: a word and its meaning on each line, then what the shell may add."""
    from click.shell_completion import ShellComplete

    from cotenant.cli.main import PLUGIN, group

    *typed, incomplete = sys.argv[1:] or [""]
    found = ShellComplete(group, {}, PLUGIN, VARIABLE).get_completions(typed, incomplete)
    words = [each for each in found if each.type == "plain"]
    for each in words:
        click.echo(f"{each.value}\t{each.help}" if each.help else each.value)
    click.echo(f":{NO_FILES if len(words) == len(found) else COMPLETE_FILES}")

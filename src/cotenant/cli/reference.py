"""Writes `docs/commands.md` from the commands' --help. `make docs` runs it, and a test keeps them equal."""

from __future__ import annotations

import click

from cotenant.cli.main import OF_KUBECTL, PLUGIN, group

WIDTH = 110
"""Of the help texts; a terminal of that width shows the same lines."""

_HEAD = """\
# Command line

Every command with its options, as `--help` prints it. This page is generated from the commands in
`src/cotenant/cli` by `make docs`: change them, not this file. By task: [one-machine.md](one-machine.md),
[operating.md](operating.md).

`kubectl cotenant` is the same program and offers
{plugin}.
Its options come after `cotenant`: kubectl refuses options before the name of a plugin.
"""
_TAIL = """\
## Exit codes
| code | meaning |
|---|---|
| 0 | done |
| 1 | it could not be done; `doctor`: something is left; `demo`: not every part happened |
| 2 | bad input; the message names the option |
| 3, 4 | `recommend`: nothing can be advised; with `--check`, something asks for less than is advised |
| 75 | no room now (`run --no-wait`, `run --wait-timeout`, `resize`) |
| 124 | `run`: stopped by `--idle-timeout` |
| 126, 127 | `run`: the command is not executable, or was not found |
| 128+n | ended by signal n: 130 Ctrl-C, 141 the reader of the output has ended, 143 SIGTERM |

`run` exits with the command's own code. An error is one line on standard error that begins with `cotenant:`.
"""


def reference() -> str:
    """The whole page."""
    root = click.Context(
        group, info_name="cotenant", terminal_width=WIDTH, max_content_width=WIDTH, **group.context_settings
    )
    parts = [_HEAD.format(plugin=", ".join(f"`{name}`" for name in OF_KUBECTL)), _section(root)]
    for name in group.list_commands(root):
        command = group.get_command(root, name)
        if command is not None:
            own = click.Context(command, parent=root, info_name=name)
            parts.append(_section(own))
            below = command.commands.values() if isinstance(command, click.Group) else ()
            parts += [_section(click.Context(each, parent=own, info_name=each.name)) for each in below]
    plugin = click.Context(
        group, info_name=PLUGIN, terminal_width=WIDTH, max_content_width=WIDTH, **group.context_settings
    )
    return "\n".join([*parts, _section(plugin), _TAIL])


def _section(ctx: click.Context) -> str:
    lines = (line.rstrip() for line in ctx.get_help().splitlines())
    return f"## {ctx.command_path}\n```\n" + "\n".join(lines) + "\n```\n"

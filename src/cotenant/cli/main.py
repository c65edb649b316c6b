"""Dispatches the `cotenant` command to its subcommands; each is imported only when it is called."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

import click

from cotenant.core.errors import CotenantError

COMMANDS = {
    "gpus": "list this machine's GPUs: free and granted memory",
    "run": "run a command with a part of a GPU",
    "ps": "list commands that run or wait",
    "stop": "terminate a command that runs or waits",
    "resize": "change the GPU memory of a running command",
    "top": "watch GPUs and grants live",
    "doctor": "find and repair what is wrong",
    "demo": "show GPU sharing on simulated GPUs",
    "setup": "create the folder for all users (as root)",
    "status": "list a cluster's GPUs: what is granted, to whom",
    "explain": "explain where a pod runs, or why it is pending",
    "drain": "take one GPU of a cluster out of service",
    "undrain": "put a drained GPU back into service",
    "uninstall": "remove what is left of Cotenant in a cluster",
    "server": "run the server: webhook, extender, line",
    "agent": "run the agent of a GPU node",
    "settings": "print every setting of server and agent",
    "standin": "use simulated GPUs directly, without a grant",
}
"""The summary of each subcommand; its code is `cotenant.cli.<name>:command`."""


class _Table(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [name for name in COMMANDS if _module(name) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        module = _module(cmd_name)
        if module is None:
            return None
        command: click.Command = importlib.import_module(module).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])


def _module(name: str) -> str | None:
    module = f"cotenant.cli.{name}"
    return module if name in COMMANDS and importlib.util.find_spec(module) else None


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"cotenant {version('cotenant')}")
        ctx.exit()


@click.group(
    cls=_Table,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": None},
    epilog="Environment: COTENANT_SIMULATE, COTENANT_HOME (folder of the ledger), COTENANT_PATIENCE (60s), "
    "COTENANT_CONTEXT_MEMORY (512Mi).",
)
@click.option(
    "--simulate",
    metavar="SPEC",
    envvar="COTENANT_SIMULATE",
    help="Use simulated GPUs, such as 2x16GiB or 2xA100-80GB,1xT4.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version."
)
@click.pass_context
def group(ctx: click.Context, simulate: str | None) -> None:
    """Share GPUs among containers and processes, on one machine or in a Kubernetes cluster.

    \b
    cotenant gpus                                           what is free
    cotenant run --gpu-memory 4Gi -- python train.py        4 GiB of a GPU
    cotenant run --whole 1 -- python train.py               a whole GPU
    cotenant ps                                             what runs and what waits
    cotenant --simulate 2x16GiB gpus                        try it without a GPU
    """  # noqa: D301 -- \b keeps the lines below it as they are
    ctx.obj = simulate


def main() -> None:
    """Runs the command and exits by os._exit: closing SQLite would write and sync the whole ledger."""
    _leave_the_grant()
    try:
        code = call()
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        code = 141
    os._exit(code)


PLUGIN = "kubectl cotenant"
"""The program's name in --help when it is called as a kubectl plugin."""


def program() -> str:
    own = os.path.basename(sys.argv[0]).replace("_", "-").removesuffix(".py")
    return PLUGIN if own == "kubectl-cotenant" else "cotenant"


def call() -> int:
    """Runs what the command line asks for and returns its exit code."""
    try:
        code = group.main(standalone_mode=False, prog_name=program())
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except CotenantError as error:
        click.echo(f"cotenant: {error}", err=True)
        return error.exit_code
    return code if isinstance(code, int) else 0


def _leave_the_grant() -> None:
    """Restarts without the shim if it is preloaded: it would report the grant as the GPU's size."""
    if "LD_PRELOAD" not in os.environ:  # nearly every call; it saves the import
        return
    from cotenant.hardware.enforcers.shim import is_preloaded, leave_slot

    if is_preloaded(os.environ):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], leave_slot(os.environ))  # noqa: S606


if __name__ == "__main__":
    main()

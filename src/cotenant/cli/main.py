"""Dispatches the `cotenant` command to its subcommands; each is imported only when it is called."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from typing import Any

import click

from cotenant.cli import streams, terminal
from cotenant.cli.completing import contexts, namespaces
from cotenant.cli.usage_errors import sentence
from cotenant.core.errors import BadInput, CotenantError

COMMANDS = {
    "gpus": "list this machine's GPUs: free and granted memory",
    "run": "run a command with a part of a GPU",
    "ps": "list commands that run or wait",
    "stop": "terminate a command that runs or waits",
    "resize": "change the GPU memory of a running command",
    "history": "list commands that have ended, with their peak",
    "top": "watch GPUs and grants live",
    "metrics": "serve this machine's metrics to Prometheus",
    "up": "run workloads, sized by their queues: to zero and back",
    "scalers": "list the workloads of `up`: replicas, backlog, state",
    "down": "stop the workloads of `up`",
    "doctor": "find and repair what is wrong",
    "demo": "show GPU sharing on simulated GPUs",
    "simulate": "replay recorded load against scaling and placement",
    "recommend": "advise how much GPU memory to ask for",
    "setup": "create the folder for all users (as root)",
    "status": "list a cluster's GPUs: what is granted, to whom",
    "explain": "explain where a pod runs, or why it is pending",
    "plan": "plan which pods to move so that room opens on GPUs",
    "drain": "take one GPU of a cluster out of service",
    "undrain": "put a drained GPU back into service",
    "wake": "bring back a workload that was released as idle",
    "uninstall": "remove what is left of Cotenant in a cluster",
    "server": "run the server: webhook, extender, line",
    "agent": "run the agent of a GPU node",
    "settings": "print every setting of server and agent",
    "standin": "use simulated GPUs directly, without a grant",
    "completion": "print the completion script of a shell",
}
"""The summary of each subcommand; its code is `cotenant.cli.<name>:command`."""

INTERNAL = ("keep-idle-rule", "keep-scaling")
"""Subcommands that only Cotenant itself calls: they are not listed."""

OF_KUBECTL = (
    "status",
    "explain",
    "plan",
    "recommend",
    "doctor",
    "drain",
    "undrain",
    "wake",
    "uninstall",
    "settings",
)
"""What `kubectl cotenant` offers: the others are about one machine, or run in a pod."""

PLUGIN = "kubectl cotenant"
"""The program's name in --help when it is called as a kubectl plugin."""

_PLUGIN_HELP = """\
Show and operate the GPUs that the pods of this cluster share.

\b
kubectl cotenant status                 what is granted of each GPU
kubectl cotenant explain POD            where it runs, or why it is pending
kubectl cotenant explain -A             everybody who waits, in order
kubectl cotenant doctor                 what is wrong in the cluster, and what to do

The cluster is that of kubectl: $KUBECONFIG, ~/.kube/config, --context. Options come after `cotenant`: kubectl
itself refuses those before a plugin's name.
"""


class _Table(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        offered = OF_KUBECTL if _is_plugin(ctx) else COMMANDS
        return [name for name in offered if _module(name) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = _module(cmd_name)
        if module is None:
            return None
        if _is_plugin(ctx) and cmd_name not in OF_KUBECTL:
            raise BadInput(f"`{cmd_name}` is not about a cluster: call it as `cotenant {cmd_name}`")
        command: click.Command = importlib.import_module(module).command
        if _is_plugin(ctx) and command.help:
            command.help = re.sub(r"(?<!kubectl )\bcotenant (?=[a-z]+\b)", f"{PLUGIN} ", command.help)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BadInput as error:
            raise self._by_option(ctx, error) from None

    def _by_option(self, ctx: click.Context, error: BadInput) -> BadInput:
        """Names the field as it was typed: `gpus: ...` of a demand is `--gpus: ...` on the command line."""
        command = self.get_command(ctx, ctx.invoked_subcommand or "")
        field = str(error).partition(":")[0]
        commands = [*command.commands.values(), command] if isinstance(command, click.Group) else [command]
        typed = {name for each in commands if each for param in each.params for name in param.opts}
        return BadInput(f"--{error}") if f"--{field}" in typed else error

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        return [each for each in params if each.name != "simulate"] if _is_plugin(ctx) else params

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not _is_plugin(ctx):
            super().format_help_text(ctx, formatter)
            return
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(_PLUGIN_HELP)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not _is_plugin(ctx):
            super().format_epilog(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Offers commands by the table above, without loading every one of them."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [CompletionItem(name, help=COMMANDS[name]) for name in names]


def _is_plugin(ctx: click.Context) -> bool:
    return ctx.find_root().info_name == PLUGIN


def _module(name: str) -> str | None:
    module = f"cotenant.cli.{name.replace('-', '_')}"
    return module if name in (*COMMANDS, *INTERNAL) and importlib.util.find_spec(module) else None


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"cotenant {version('cotenant')}")
        ctx.exit()


@click.group(
    cls=_Table,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": None},
    epilog="Environment: COTENANT_SIMULATE, COTENANT_HOME (folder of the ledger), COTENANT_PATIENCE (60s), "
    "COTENANT_CONTEXT_MEMORY (512Mi), NO_COLOR.",
)
@click.option(
    "--simulate",
    metavar="SPEC",
    envvar="COTENANT_SIMULATE",
    help="Use simulated GPUs, such as 2x16GiB or 2xA100-80GB,1xT4; for commands about this machine.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(),
    metavar="PATH",
    help="For commands about a cluster; this and the next three may also come after the command.",
)
@click.option("--context", metavar="NAME", help="A context of the kubeconfig.", shell_complete=contexts)
@click.option("-n", "--namespace", metavar="NAME", help="The namespace.", shell_complete=namespaces)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="All namespaces.")
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version."
)
@click.pass_context
def group(ctx: click.Context, /, simulate: str | None = None, **where: Any) -> None:
    """Share GPUs among containers and processes, on one machine or in a Kubernetes cluster.

    \b
    cotenant gpus                                           what is free
    cotenant run --gpu-memory 4Gi -- python train.py        4 GiB of a GPU
    cotenant run --whole 1 -- python train.py               a whole GPU
    cotenant ps                                             what runs and what waits
    cotenant --simulate 2x16GiB gpus                        try it without a GPU
    cotenant status                                         the GPUs of a cluster, also as `kubectl cotenant`
    """  # noqa: D301 -- \b keeps the lines below it as they are
    ctx.obj = simulate
    if terminal.is_dumb() or os.environ.get("NO_COLOR"):
        ctx.color = False
    given = {name: value for name, value in where.items() if value}
    if ctx.invoked_subcommand is not None:
        _refuse_what_it_does_not_take(ctx, ctx.invoked_subcommand, given)


def _refuse_what_it_does_not_take(ctx: click.Context, name: str, where: dict[str, Any]) -> None:
    """Refuses options before the command that would have no effect on it."""
    command = group.get_command(ctx, name)
    if command is None:
        return
    commands = [*command.commands.values(), command] if isinstance(command, click.Group) else [command]
    takes = {param.name for each in commands for param in each.params}
    asked = ctx.get_parameter_source("simulate") is click.core.ParameterSource.COMMANDLINE
    if asked and "simulate" not in takes:
        raise BadInput(f"--simulate: `{name}` does not use this machine's GPUs: leave it out")
    if where and "kubeconfig" not in takes:
        option = next(iter(where)).replace("everywhere", "all-namespaces")
        raise BadInput(f"--{option}: `{name}` is not about a cluster: leave it out")


def main() -> None:
    """Runs the command and exits by os._exit: closing SQLite would write and sync the whole ledger."""
    streams.guard()
    _leave_the_grant()
    os._exit(call())


def program() -> str:
    own = os.path.basename(sys.argv[0]).replace("_", "-").removesuffix(".py")
    return PLUGIN if own == "kubectl-cotenant" else "cotenant"


def call() -> int:
    """Runs what the command line asks for and returns its exit code; every error has the same form."""
    try:
        code = group.main(standalone_mode=False, prog_name=program())
        sys.stdout.flush()
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        click.echo(f"cotenant: {sentence(error)}", err=True)
        return error.exit_code
    except streams.ReaderGone as error:
        return error.exit_code
    except CotenantError as error:
        click.echo(f"cotenant: {error}", err=True)
        return error.exit_code
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
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

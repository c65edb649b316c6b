"""Serves or prints this machine's metrics for Prometheus (`cotenant metrics`)."""

from __future__ import annotations

import contextlib
import os
import tempfile
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import click

from cotenant.cli.compose import machine_of, simulate_option
from cotenant.cli.termination import unwind_on_signal
from cotenant.core.errors import BadInput, CotenantError

LISTEN = "127.0.0.1:8890"


class Address(NamedTuple):
    host: str
    port: int


@click.command()
@click.option(
    "--listen",
    metavar="ADDRESS",
    default=LISTEN,
    show_default=True,
    help="IP address and port to serve /metrics on.",
)
@click.option(
    "--public",
    is_flag=True,
    help="Allow an address that other machines reach: anybody there reads names of users and commands.",
)
@click.option("--once", is_flag=True, help="Print the metrics and exit.")
@click.option(
    "--write",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the metrics to a file, in one step, and exit: for node exporter's textfile collector.",
)
@simulate_option
@click.pass_context
def command(ctx: click.Context, listen: str, *, public: bool, once: bool, write: Path | None) -> None:
    """Serve this machine's GPUs, commands and line as metrics for Prometheus, until Ctrl-C.

    \b
    cotenant metrics                                        http://127.0.0.1:8890/metrics
    cotenant metrics --listen '[::1]:9000'
    cotenant metrics --once | grep cotenant_container
    cotenant metrics --write /var/lib/node_exporter/cotenant.prom

    The names are those of a cluster's nodes (docs/metrics.md). A command is shown as a container: the label
    `namespace` is its user, `pod` its name, `container` is `job`. In `cotenant_container_info`, `workload` is
    its program, or the workload of `cotenant up`, and `version` stands for the command line. Nothing is
    stored: values are read when they are asked for.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    given = ctx.get_parameter_source("listen") is click.core.ParameterSource.COMMANDLINE
    if once and write is not None:
        raise BadInput("--once: prints, and --write writes to a file: leave out one of them")
    if (once or write is not None) and (given or public):
        raise BadInput("--listen: nothing is served with --once or --write: leave it out")
    from cotenant.local.metrics import exposed

    if once:
        click.echo(exposed(machine_of(ctx.obj)), nl=False)
    elif write is not None:
        _write(write, exposed(machine_of(ctx.obj)))
    else:
        _serve(ctx.obj, address(listen, public=public))


def address(text: str, *, public: bool) -> Address:
    """Reads an IP address and a port; BadInput if others could reach it and `public` does not allow that."""
    host, colon, number = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        ip = ip_address(host)
        port = int(number) if number.isascii() and number.isdecimal() and len(number) < 6 else -1
    except ValueError:
        port = -1
    if not colon or not 0 < port < 65536:
        raise BadInput(
            f"listen: {text[:80]!a} is not an IP address and a port, such as {LISTEN} or '[::1]:8890'"
        )
    if not ip.is_loopback and not public:
        raise BadInput(
            f"listen: {host} is not a loopback address: other machines could read the names of users and "
            f"commands. Take {LISTEN}, or add --public if that is what you want"
        )
    return Address(host, port)


def _serve(simulate: str | None, where: Address) -> None:
    from cotenant.local.machine import Machine
    from cotenant.local.metrics import exposed
    from cotenant.local.metrics_server import MetricsServer

    opened: list[Machine] = []

    def read() -> bytes:
        """Opens the machine in the thread that reads it."""
        if not opened:
            opened.append(machine_of(simulate))
        return exposed(opened[0])

    server = MetricsServer(where.host, where.port, read)
    click.echo(f"serving {server.url}", err=True)
    with unwind_on_signal(), contextlib.suppress(KeyboardInterrupt):
        server.run()


def _write(path: Path, text: bytes) -> None:
    """Writes beside the file and renames: a reader sees the old content or the new one, whole."""
    draft = ""
    try:
        descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with open(descriptor, "wb") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        os.replace(draft, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise CotenantError(f"--write: {path} cannot be written: {error.strerror or error}") from None

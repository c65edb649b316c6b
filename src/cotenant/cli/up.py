"""Runs workloads in as many replicas as their queues need (`cotenant up`)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotenant.cli.compose import machine_of, simulate_option
from cotenant.cli.scaling_extra import scaling_extra
from cotenant.core.errors import CotenantError
from cotenant.local.machine import Machine

if TYPE_CHECKING:
    from cotenant.local.scalers.file import Declared
    from cotenant.local.scalers.folder import ScalerFolder

FIRST_DECISIONS = 30.0
"""Seconds that --detach waits for the first decision of each workload."""


@click.command()
@click.argument("file", type=click.Path(), default="workloads.yaml")
@click.option("-d", "--detach", is_flag=True, help="Scale in the background; `cotenant down` ends it.")
@simulate_option
@click.pass_context
def command(ctx: click.Context, file: str, detach: bool) -> int:
    """Run the workloads of FILE, each in as many replicas as its queue needs: to zero and back.

    FILE is workloads.yaml by default. A workload has the fields of a GpuScaler, and instead of a target its
    command and the GPU memory of each replica:

    \b
    workloads:
      room-scene:
        command: [python, worker.py]
        environment: {MODEL: room-scene-v2}
        gpuMemory: 4Gi                       # or whole: 1
        replicas: {min: 0, max: 4}
        backlog:
          target: 5s                         # a message waits no longer than this
          queue:
            redis: {url: "redis://localhost:6379", list: room-scene}
            inFlight: {list: room-scene:working}
          processingTime: {fixed: 800ms}     # learned when absent
        scaleDownThreshold: 15m              # idle that long: to min, the GPU is free
        scaleDownThresholdWhenOthersWait: 1m # somebody in line could start with it

    \b
    cotenant up                              in the foreground; a line for each change
    cotenant up -d other.yaml                in the background
    cotenant scalers                         replicas, backlog, state and reason of each
    cotenant down                            stop all of it

    Each replica is a `cotenant run` of its own, called NAME-1, NAME-2 and so on: it has a grant, waits in
    line (state WaitingForGpu), and is in `ps` and `history`. It finds its number in COTENANT_REPLICA. It is
    ready at its first use of the GPU, or as `ready: {command: [...]}` or `ready: {after: 20s}` says. One
    that fails starts again, at first at once, then after 10 s, 20 s and so on up to 5 minutes. Those without
    a GPU are removed first, then loading, idle and busy ones: SIGTERM, and after terminationGracePeriod
    (30s) SIGKILL.

    Call it again after a change of FILE: the difference is applied, also to one that runs in the background.
    Ctrl-C and SIGTERM end the scaling, and the replicas run on. After that, and after kill -9, `cotenant up`
    goes on where it was: nothing starts again, no time begins anew. docs/up.md has every field.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    with scaling_extra():
        from cotenant.local.scalers import declaring
        from cotenant.local.scalers.file import read_file
        from cotenant.local.scalers.folder import AlreadyScaling, ScalerFolder

        workloads = read_file(Path(file))
        machine = machine_of(ctx.obj)
        declaring.check(machine, workloads, os.environ)
        folder = ScalerFolder(machine.home)
        folder.create()
        for name in declaring.bring_up(folder, Path(file), workloads):
            click.echo(f"{name} is no longer in {file}: its replicas are stopped")
        if folder.only_stops():
            click.echo(f"waiting for process {folder.scaled_by()}, a `cotenant down`")
        while folder.only_stops():
            time.sleep(0.1)
        pid = folder.scaled_by()
        if pid is None and detach:
            return _detach(machine, folder, workloads)
        if pid is None:
            try:
                return scale(machine, folder, _stamped)
            except AlreadyScaling:
                pid = folder.scaled_by()
        click.echo(
            f"{file} is applied by process {pid}, which scales already. `cotenant scalers` shows the result"
        )
        return 0


def scale(machine: Machine, folder: ScalerFolder, tell: Callable[[str], None]) -> int:
    """Scales in this process until it is interrupted or nothing is up."""
    import asyncio

    from cotenant.local.scalers.supervising import supervise

    with folder.scaling():
        tell("scaling; Ctrl-C ends it, and the replicas run on")
        while asyncio.run(supervise(machine, folder, tell)):
            if not folder.declared():  # else a `cotenant up` has left its file to this process meanwhile
                tell("nothing is up any more")
                return 0
        tell("no longer scaling. Replicas run on: `cotenant up` goes on, `cotenant down` stops them")
    return 0


def _detach(machine: Machine, folder: ScalerFolder, workloads: Sequence[Declared]) -> int:
    from cotenant.cli.scalers import show

    began, log = time.time(), folder.path / "up.log"
    log.write_bytes(b"")
    with log.open("ab") as sink:  # so that it can be cut while it is written
        process = subprocess.Popen(
            [*machine.itself, "keep-scaling"],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    end = time.monotonic() + FIRST_DECISIONS
    while any(_polled(folder, each.name) < began for each in workloads) and time.monotonic() < end:
        if process.poll() is not None:
            said = log.read_text(errors="replace").strip().splitlines()
            raise CotenantError(
                f"it has ended again: {said[-1] if said else f'exit code {process.returncode}'}"
            )
        time.sleep(0.05)
    show(machine, folder)
    click.echo(f"scaling in the background: process {process.pid}, log {log}")
    return 0


def _polled(folder: ScalerFolder, name: str) -> float:
    polled: float = folder.record(name).get("status", {}).get("polled", 0.0)
    return polled


def _stamped(line: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {line}")

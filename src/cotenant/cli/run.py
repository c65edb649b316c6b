"""Runs a command with a part of a GPU, or with whole GPUs (`cotenant run`)."""

from __future__ import annotations

import os
import shlex
from typing import Any

import click

from cotenant.cli import table
from cotenant.cli.completing import gpus, programs
from cotenant.cli.compose import machine_of, simulate_option
from cotenant.core.demand import PLACEMENTS, Demand
from cotenant.core.errors import BadInput
from cotenant.core.mode import DEFAULT_MODE, MODES
from cotenant.core.units import check_unit, format_bytes, format_exact, parse_duration, parse_memory
from cotenant.local import containers
from cotenant.local.ended import EndedJob
from cotenant.local.job import IdleRule
from cotenant.local.machine import Machine
from cotenant.local.run import Interrupted, RunRequest, run

LEAST_IDLE = 1.0


def _percent(value: str) -> int:
    """Reads a whole number, with or without its sign."""
    text = value.strip().removesuffix("%").rstrip()
    if not text.removeprefix("-").isdecimal() or len(text) > 9:
        raise click.BadParameter(f"{value[:40]!a} is not a whole number from 1 to 100, such as 30")
    return int(text)


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--gpu-memory", metavar="4Gi", help="GPU memory for the command and all it starts; 50% is of one GPU."
)
@click.option(
    "--gpus", type=int, metavar="N", help="How many GPUs: the memory is split evenly over N.  [default: 1]"
)
@click.option("--whole", type=int, metavar="N", help="N GPUs for this command alone, with all their memory.")
@click.option(
    "--gpu-compute",
    type=_percent,
    metavar="30",
    help="Percent of the GPU's compute; enforced where MPS runs.",
)
@click.option(
    "--mps", is_flag=True, help="With --gpu-compute: start NVIDIA's MPS control daemon where none runs."
)
@click.option("--gpu-model", metavar="A100,H100", help="Only on GPUs of these models.")
@click.option(
    "--gpu",
    "uuids",
    multiple=True,
    metavar="1",
    shell_complete=gpus,
    help="Which GPU: its index in `cotenant gpus`, its UUID or the beginning of it. May be repeated; then on "
    "any of them.",
)
@click.option("--placement", type=click.Choice(PLACEMENTS), default=PLACEMENTS[0], show_default=True)
@click.option(
    "--enforce",
    type=click.Choice(MODES),
    default=DEFAULT_MODE,
    show_default=True,
    help="Allocations beyond the limit: count them, also warn on stderr, or refuse them.",
)
@click.option("--name", metavar="NAME", help="A name for ps, stop and resize; by default the command's.")
@click.option("--no-wait", is_flag=True, help="Without room, exit 75 instead of waiting.")
@click.option(
    "--priority",
    type=click.IntRange(-1000, 1000),
    default=0,
    metavar="N",
    help="Among your own waiting commands: the higher is first. Users take turns.  [default: 0]",
)
@click.option("--wait-timeout", metavar="10m", help="Wait for room at most this long, then exit 75.")
@click.option(
    "--idle-timeout",
    metavar="2h",
    help="Stop the command once it has launched no kernel and allocated no GPU memory for this long.",
)
@click.option(
    "--idle-shrink",
    is_flag=True,
    help="At --idle-timeout first shrink its grant to what is in use; stop it after that time once more.",
)
@click.option("--workload", hidden=True)  # `cotenant up` marks its replicas with it
@click.option("-q", "--quiet", is_flag=True, help="Print no messages but errors, and no summary at the end.")
@click.option(
    "--print",
    "print_",
    is_flag=True,
    help="Print the command instead, with what is added for docker, podman and nerdctl.",
)
@simulate_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, shell_complete=programs)
@click.pass_context
def command(ctx: click.Context, /, command: tuple[str, ...], **options: Any) -> int:
    """Run COMMAND with a part of a GPU, or with whole GPUs.

    It sees only its GPUs (CUDA_VISIBLE_DEVICES) and only the memory granted to it; beyond that, CUDA
    returns "out of memory". Without room it waits in line and starts as soon as there is room. The exit
    code is the command's.

    \b
    cotenant run --gpu-memory 4Gi -- python train.py
    cotenant run --gpu-memory 40Gi --gpus 2 -- torchrun --nproc-per-node 2 train.py
    cotenant run --gpu-memory 50% --gpu-model A100,H100 -- ./serve
    cotenant run --whole 1 --wait-timeout 10m -- python train.py
    cotenant run --gpu-memory 4Gi --enforce observe -- python train.py     first see what it needs
    cotenant run --gpu-memory 4Gi -- docker run --rm -it IMAGE             podman and nerdctl too

    \b
    --gpu 1      which GPU may be used; how much of it, the other options say
    --gpus 2     over how many GPUs the memory is split
    --whole 2    how many GPUs are for this command alone

    The memory includes all that the command's processes hold on the GPU, CUDA contexts too. A context
    counts as COTENANT_CONTEXT_MEMORY (512Mi unless set). Smaller demands may overtake a waiting one for
    COTENANT_PATIENCE (60s unless set); then GPUs are held for it. Users take turns in line.

    With --idle-timeout a forgotten notebook gives its GPU back: no launch and no allocation in any of its
    processes for that time, counted from its grant. All its processes get SIGTERM, and SIGKILL 10 s later.
    With --idle-shrink the grant is first lowered to what is in use, and the line gets the rest at once; a
    later allocation beyond it fails, until `cotenant resize` raises it. If it works again, the time begins
    anew. Both hold also if `cotenant run` is killed with -9.

    \b
    cotenant run --gpu-memory 8Gi --idle-timeout 2h -- jupyter lab
    cotenant run --gpu-memory 8Gi --idle-timeout 30m --idle-shrink -- jupyter lab

    With --gpu-compute NVIDIA's MPS holds each process to that share of the GPU's SMs, and to the memory
    as well, where its control daemon runs. With --mps one is started for you, and ended when no command
    needs it any more. A fault of one process then ends all processes on the same MPS server.

    \b
    cotenant run --gpu-memory 4Gi --gpu-compute 30 --mps -- ./serve

    At the end a line on stderr says what it held and what would do; `cotenant history` keeps it.

    Inside a grant (in a command that `cotenant run` has started) it uses that grant: nothing more is
    charged, and all commands in it share its limit. To ask for more than the grant has is refused.

    Exit codes: the command's own (128+n after signal n), 75 no room, 124 stopped by --idle-timeout, 127 not
    found, 126 not executable, 2 bad input.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    if not command:
        raise BadInput(
            "no command: write it after --, as in `cotenant run --gpu-memory 4Gi -- python train.py`"
        )
    demand = _demand(options)
    timeout = options["wait_timeout"]
    if timeout is not None and options["no_wait"]:
        raise BadInput("--no-wait and --wait-timeout exclude each other")
    machine = machine_of(ctx.obj)
    if options["print_"]:
        click.echo(_printed(command, options, ctx.obj, machine))
        return 0
    request = RunRequest(
        command=command,
        demand=demand,
        sized=any(options[name] is not None for name in ("gpu_memory", "gpus", "whole")),
        mode=options["enforce"],
        name=options["name"],
        wait=not options["no_wait"],
        timeout=None if timeout is None else parse_duration(timeout, "--wait-timeout"),
        priority=options["priority"],
        idle=_idle_rule(options, demand),
        workload=options["workload"],
        mps=_mps(options),
    )
    tell = _ignore if options["quiet"] else _tell
    try:
        ran = run(machine, request, os.environ, tell)
    except Interrupted as stopped:
        tell(str(stopped))
        return 128 + stopped.number
    if ran.ended is not None and (line := summary(ran.ended)):
        tell(line)
    return ran.code


def _tell(line: str) -> None:
    click.echo(f"cotenant: {line}", err=True)


def _ignore(_line: str) -> None:
    pass


def summary(ended: EndedJob) -> str | None:
    """Says what a job held, as in `train: peak 3.1Gi of 4Gi, 2 refused, 41m00s; 3.5Gi would do`; None for one
    that never used its GPU.
    """
    peak, limit, wants = ended.peak, ended.limit, ended.would_do
    if not peak and not ended.denied:
        return None
    parts = [f"peak {format_bytes(peak or 0)} of {format_bytes(limit)}{' whole' if ended.whole else ''}"]
    if ended.denied:
        parts.append(f"{ended.denied} refused")
    if ended.over:
        parts.append(f"{ended.over} let through")
    parts.append(table.duration(ended.seconds))
    advice = ""
    if ended.denied and (ended.code or wants is None or wants >= limit):
        advice = "; to see what it needs: --enforce observe"
    elif wants is not None and (wants < limit or ended.over):
        advice = f"; {format_exact(wants)} would do"
    return f"{ended.name}: {', '.join(parts)}{advice}"


def _demand(options: dict[str, Any]) -> Demand:
    memory = options["gpu_memory"]
    if memory is not None:
        check_unit(memory, "--gpu-memory")
    return Demand(
        memory=None if memory is None else parse_memory(memory, "--gpu-memory"),
        gpus=1 if options["gpus"] is None else options["gpus"],
        whole=0 if options["whole"] is None else _whole(options["whole"]),
        compute=options["gpu_compute"],
        models=_words(options["gpu_model"], "--gpu-model"),
        uuids=tuple(uuid for text in options["uuids"] for uuid in _words(text, "--gpu")),
        placement=options["placement"],
    )


def _mps(options: dict[str, Any]) -> bool:
    if options["mps"] and options["gpu_compute"] is None:
        raise BadInput("--mps: which share of compute? Add it, as in --gpu-compute 30 --mps")
    return bool(options["mps"])


def _idle_rule(options: dict[str, Any], demand: Demand) -> IdleRule | None:
    text, shrink = options["idle_timeout"], options["idle_shrink"]
    if text is None:
        if shrink:
            raise BadInput("--idle-shrink: at which time? Add it, as in --idle-timeout 2h --idle-shrink")
        return None
    seconds = parse_duration(text, "--idle-timeout")
    if seconds < LEAST_IDLE:
        raise BadInput(
            f"--idle-timeout: {text} is too short: idleness is noted to the second, take 1s or more"
        )
    if shrink and demand.memory is None:
        raise BadInput(
            "--idle-shrink: whole GPUs cannot shrink: leave it out, or ask for a part with --gpu-memory"
        )
    return IdleRule(seconds, shrink)


def _whole(cards: int) -> int:
    if cards < 1:
        raise BadInput(f"--whole: {cards} is not a number of GPUs: take 1 or more")
    return cards


def _words(text: str | None, option: str) -> tuple[str, ...]:
    if text is None:
        return ()
    words = tuple(word.strip() for word in text.split(","))
    if not all(words):
        raise BadInput(f"{option}: {text!r} has an empty name")
    return words


def _printed(
    command: tuple[str, ...], options: dict[str, Any], simulate: str | None, machine: Machine
) -> str:
    container = containers.find(command)
    typed = [*(["--simulate", simulate] if simulate else []), *_spelled(options)]
    if container is None:
        return shlex.join(["cotenant", "run", *typed, "--", *command])
    return containers.as_script(container, typed, machine.shim.library, simulated=bool(simulate))


def _spelled(options: dict[str, Any]) -> list[str]:
    """Renders the options of this call as arguments, for messages that suggest a command line."""
    typed: list[str] = []
    for name, value in options.items():
        if name == "print_":
            continue
        option = "--gpu" if name == "uuids" else f"--{name.replace('_', '-')}"
        if (name, value) in (("placement", PLACEMENTS[0]), ("enforce", DEFAULT_MODE), ("priority", 0)):
            continue
        for each in value if isinstance(value, tuple) else (value,):
            if each is True:
                typed.append(option)
            elif each is not None and each is not False:
                typed += [option, str(each)]
    return typed

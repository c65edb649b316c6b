"""Plans changes of a cluster before they are made (`cotenant plan`)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from cotenant.cli import table
from cotenant.cli.cluster import Where, ask, require_libraries, scope_options
from cotenant.cli.completing import pods
from cotenant.cli.compose import output_option
from cotenant.cli.progress import ShownProgress
from cotenant.cli.termination import unwind_on_signal
from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput, NoRoom
from cotenant.core.units import parse_duration, parse_memory

if TYPE_CHECKING:
    from cotenant.kube.api.client import Client
    from cotenant.kube.operating.defrag.applying import Outcome
    from cotenant.kube.operating.defrag.planning import Plan
    from cotenant.kube.operating.defrag.state import State
    from cotenant.kube.operating.defrag.wish import Wish

MOST_MOVES = 64
LONGEST = 24 * 3600.0
"""Seconds that one step may be given."""


@dataclass(frozen=True)
class _Asked:
    """What the command line asks for."""

    pod: str | None
    demand: Demand | None
    namespace: str | None
    """Only pods in line of this namespace; None: of all."""
    moves: int
    apply: bool
    timeout: float


@click.group(invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Plan a change of a cluster, and look at it before it is made.

    \b
    cotenant plan defrag
    cotenant plan defrag --whole-card --apply
    """  # noqa: D301 -- \b keeps the lines below it as they are
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command.command("defrag", short_help="which pods to move so that room opens on GPUs")
@click.option("--for", "pod", metavar="POD", help="For this pod, which waits.", shell_complete=pods)
@click.option("--whole-card", is_flag=True, help="Open a whole GPU, or as many as --gpus says.")
@click.option(
    "--gpu-memory", metavar="SIZE", help="Open this much on one GPU; over --gpus it is split evenly."
)
@click.option("--gpus", type=int, metavar="N", help="On how many GPUs of one node.  [default: 1]")
@click.option("--model", metavar="NAMES", help="Only on these models: A100 or A100,H100.")
@click.option(
    "--max-moves",
    type=click.IntRange(1, MOST_MOVES),
    default=16,
    show_default=True,
    help="Pods to move at most.",
)
@click.option("--apply", is_flag=True, help="Carry out the plan: evict one pod after another.")
@click.option(
    "--timeout",
    default="5m",
    show_default=True,
    metavar="TIME",
    help="With --apply: for each step to be done.",
)
@output_option
@scope_options
def defrag(
    where: Where,
    pod: str | None,
    whole_card: bool,
    gpu_memory: str | None,
    gpus: int | None,
    model: str | None,
    max_moves: int,
    apply: bool,
    timeout: str,
    output: str,
) -> None:
    """Plan which pods to move, in which order, so that room opens on GPUs: the fewest moves.

    Without an option that says what to open, it is for the first pod in line that cannot start.

    \b
    cotenant plan defrag                                  for whoever waits first
    cotenant plan defrag --for big -n team                for this pod
    cotenant plan defrag --whole-card --model A100        for one that is to come
    cotenant plan defrag --gpu-memory 40Gi
    cotenant plan defrag --gpus 4                         four whole GPUs of one node
    cotenant plan defrag --apply                          and do it

    To move a pod is to evict it: its controller makes another one, which is placed by the same policy as
    every pod. The plan says where. Pods stay that have no controller, belong to a DaemonSet, have the
    annotation cluster-autoscaler.kubernetes.io/safe-to-evict: "false", or are protected by a
    PodDisruptionBudget. Nothing is changed without --apply.

    --apply drains the GPUs that are to be opened until it is done. It reads the cluster before every eviction
    and stops at the first thing that is not as planned.

    \b
    exit code 0   the plan is printed, or done with --apply; or nothing is to be done
              3   --apply stopped: something was not as planned
              75  no moves open the room, or another --apply is at work
    """  # noqa: D301 -- \b keeps the lines below it as they are
    require_libraries()
    asked = _Asked(
        pod,
        _demand(whole_card, gpu_memory, gpus, model),
        where.namespace,
        max_moves,
        apply,
        _seconds(timeout),
    )
    if asked.pod is not None and asked.demand is not None:
        raise BadInput("--for: the pod says what it needs: leave out --whole-card, --gpu-memory and --gpus")
    with unwind_on_signal():
        plan, outcome = ask(where, lambda client, namespace: _work(client, namespace, asked, output))
    if output == "json":
        table.show_json(outcome.to_json() if outcome is not None else plan.to_json())
    elif outcome is not None:
        click.echo(click.style(table.printable(outcome.sentence), fg="green"))
    elif not apply:
        _show(plan)
    if plan.state == "none":
        raise SystemExit(NoRoom.exit_code)


def _demand(whole: bool, memory: str | None, gpus: int | None, model: str | None) -> Demand | None:
    models = tuple(each.strip() for each in model.split(",")) if model is not None else ()
    if not whole and memory is None and gpus is None:
        if models:
            raise BadInput("--model: say what to open of it: --whole-card or --gpu-memory 40Gi")
        return None
    if whole and memory is not None:
        raise BadInput("--whole-card: a whole GPU brings all its memory: leave out --gpu-memory, or this")
    if memory is not None:
        return Demand(parse_memory(memory, "gpu-memory"), gpus=1 if gpus is None else gpus, models=models)
    return Demand(gpus=1 if gpus is None else gpus, models=models)


def _seconds(text: str) -> float:
    seconds = parse_duration(text, "--timeout")
    if not 0 < seconds <= LONGEST:
        raise BadInput("--timeout: from 1s to 24h")
    return seconds


async def _work(client: Client, namespace: str, asked: _Asked, output: str) -> tuple[Plan, Outcome | None]:
    from cotenant.kube.operating.defrag.applying import Applying
    from cotenant.kube.operating.defrag.planning import make_plan
    from cotenant.kube.operating.defrag.state import read_state

    progress = ShownProgress()

    def tell(text: str) -> None:
        progress.clear()
        click.echo(table.printable(text), err=output == "json")

    async def read() -> State:
        return await read_state(client, time.time())

    applying = Applying(client, read, tell, time.monotonic, time.time, asked.timeout)
    if asked.apply:
        await applying.clean_up()
    progress(0.0, "reading the cluster")
    state = await read()
    plan = make_plan(
        state,
        _wishes(state, namespace, asked),
        asked.moves,
        lambda moves, holes: progress(0.0, f"searching plans with {moves} moves among {holes} places"),
    )
    progress.clear()
    if not asked.apply:
        return plan, None
    if output != "json":
        _show(plan)
    if plan.state != "plan":
        return plan, None
    return plan, await applying.run(plan)


def _wishes(state: State, namespace: str, asked: _Asked) -> list[Wish]:
    from cotenant.kube.operating.defrag.wish import wish_for_demand, wish_for_pod, wishes_of_line

    if asked.demand is not None:
        return [wish_for_demand(state, asked.demand)]
    if asked.pod is not None:
        return [wish_for_pod(state, namespace, asked.pod)]
    return wishes_of_line(state, asked.namespace)


def _show(plan: Plan) -> None:
    first, *rest = plan.lines()
    colour = {"plan": "green", "open": "green", "none": "yellow"}.get(plan.state)
    click.echo(click.style(table.printable(first), fg=colour, bold=True))
    for line in rest:
        click.echo(table.printable(line))

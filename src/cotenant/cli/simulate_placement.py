"""Replays pods through a cluster's ledger and policy (`cotenant simulate placement`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cotenant.cli import table, terminal
from cotenant.cli.cluster import require_libraries
from cotenant.cli.compose import output_option
from cotenant.cli.progress import ShownProgress
from cotenant.cli.svg_file import check_svg, write_svg
from cotenant.cli.table import Column
from cotenant.core.demand import PLACEMENTS
from cotenant.core.errors import BadInput
from cotenant.core.units import check_unit, format_bytes, parse_bytes

if TYPE_CHECKING:
    from cotenant.core.loss import Spare
    from cotenant.simulate.placement.arriving import Coming
    from cotenant.simulate.placement.comparing import Row, Variant
    from cotenant.simulate.placement.workload import Recording

MOST_SEEDS = 32
MOST_CHANGES = 32
LARGEST_LOAD = 1000.0
STRANDED = {
    "remainder": "remainder too small",
    "cards": "too few such GPUs on the node",
    "cpu": "no CPU",
    "memory": "no memory",
    "pods": "no place for a pod",
    "model": "another model is named",
    "cordoned": "node cordoned",
}
BLOCKED = {
    "room": "no room on a GPU",
    "cpu": "GPU free, no CPU",
    "memory": "GPU free, no memory",
    "pods": "GPU free, no place for a pod",
    "model": "none of the models named",
    "cordoned": "only cordoned nodes have room",
    "size": "larger than any node",
}


@click.command("placement", short_help="how full a cluster gets, and what is stranded")
@click.option(
    "--cluster", metavar="FILE", help="What `cotenant status -o json` printed; - for standard input."
)
@click.option("--nodes", metavar="FILE", help="CSV of nodes, in place of --cluster.")
@click.option("--pods", metavar="FILE", help="CSV of pods. [default: those of --cluster]")
@click.option(
    "--policy",
    default=PLACEMENTS[0],
    show_default=True,
    metavar="NAMES",
    help="Of frag, binpack, spread: one or more, separated by commas.",
)
@click.option(
    "--add",
    "added",
    multiple=True,
    metavar="SPEC",
    help="A node with such cards: 4xA100-80GB; 10x8xH100-80GB are ten nodes with 8. May be repeated.",
)
@click.option("--node-cpu", metavar="CPU", help="CPU of each added node. [default: for each card as others]")
@click.option("--node-memory", metavar="SIZE", help="Memory of each added node. [default: the same]")
@click.option(
    "--advice",
    metavar="FILE",
    help="Pods ask for what `cotenant recommend -o json` advised there.",
)
@click.option("--keep-running", is_flag=True, help="Pods of --cluster stay where they are; others come.")
@click.option(
    "--arrivals",
    type=click.Choice(["random", "trace"]),
    default="random",
    show_default=True,
    help="In random order, then random ones again; or as recorded, each once.",
)
@click.option(
    "--load",
    type=float,
    metavar="PERCENT",
    help="Pods come until they ask for so much of the GPU memory. [default: 130, with departures 100]",
)
@click.option("--count", type=int, metavar="N", help="So many pods come, whatever they ask for.")
@click.option("--departures", is_flag=True, help="Pods leave: after random times, or as recorded.")
@click.option(
    "--without-gpu",
    type=click.Choice(["kube-scheduler", "policy"]),
    default="kube-scheduler",
    show_default=True,
    help="Who places pods without GPU: kube-scheduler's defaults, which spread them, or the policy.",
)
@click.option(
    "--seed",
    "seeds",
    type=click.IntRange(min=0),
    multiple=True,
    default=(1,),
    show_default=True,
    help="The same seed gives the same figures. May be repeated: then the means are shown.",
)
@click.option("--plot", metavar="FILE.svg", help="Write a picture.")
@output_option
def placement(
    cluster: str | None,
    nodes: str | None,
    pods: str | None,
    policy: str,
    added: tuple[str, ...],
    node_cpu: str | None,
    node_memory: str | None,
    advice: str | None,
    keep_running: bool,
    arrivals: str,
    load: float | None,
    count: int | None,
    departures: bool,
    without_gpu: str,
    seeds: tuple[int, ...],
    plot: str | None,
    output: str,
) -> None:
    """Replay pods through a cluster's ledger and policy: what fits, what is blocked, what is stranded.

    \b
    cotenant status -o json > cluster.json
    cotenant simulate placement --cluster cluster.json
    cotenant simulate placement --cluster cluster.json --add 4xA100-80GB --keep-running
    cotenant simulate placement --cluster cluster.json --policy frag,binpack,spread
    cotenant simulate placement --cluster cluster.json --advice advice.json --departures
    cotenant simulate placement --nodes nodes.csv --pods pods.csv --seed 42 --seed 43 --plot filled.svg

    The decisions are those of the server: the same code. Nothing of Kubernetes is needed. ALLOCATED is the
    part of the GPU memory that is granted when all pods have come, with --departures on average. BLOCKED is
    the part of the GPU memory that was asked for in vain. STRANDED is free memory that a typical pod cannot
    use, with the first reason why; a typical pod is drawn from all by the GPU memory that they ask for. With
    --add or --advice the cluster as it is stands beside it, and the same pods come to both.

    Nodes and pods have the columns name,cpu,memory,gpus,gpu_memory,model. Amounts are written as in
    Kubernetes: 500m, 4Gi. Of a node gpu_memory is the size of each card; of a pod it is what it asks for in
    all, over so many gpus, and without it the cards are whole. The columns of the openb trace will do, too:
    sn,cpu_milli,memory_mib,gpu,model and name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec.
    docs/simulate-placement.md has the rest.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    require_libraries("cotenant.simulate.placement.comparing")
    from cotenant.simulate.placement.comparing import Question, compare, to_json

    policies = _policies(policy)
    check_svg(plot)
    if not 1 <= len(set(seeds)) <= MOST_SEEDS:
        raise BadInput(f"seed: {len(set(seeds))} seeds: give at most {MOST_SEEDS}")
    coming = _coming(arrivals, load, count, keep_running=keep_running, departures=departures)
    has = _has(node_cpu, node_memory, given=bool(added))
    recording = _recording(cluster, nodes, pods, keep_running=keep_running)
    variants, notes = _variants(recording, added, has, advice)
    progress = ShownProgress()
    question = Question(
        recording,
        variants,
        policies,
        tuple(dict.fromkeys(seeds)),
        coming,
        plain_by_policy=without_gpu == "policy",
    )
    try:
        rows = compare(question, progress)
    finally:
        progress.clear()
    if output == "json":
        table.show_json(
            {"seeds": list(question.seeds), "sized": recording.sized, "notes": notes, "rows": to_json(rows)}
        )
    else:
        _show(rows, recording, notes)
    if plot is not None:  # last: figures that took long are not lost to a full disk
        _write_plot(plot, rows)


def _policies(text: str) -> list[str]:
    names = list(dict.fromkeys(each.strip() for each in text.split(",")))
    for name in names:
        if name not in PLACEMENTS:
            raise BadInput(f"policy: {name[:40]!a} is not known; there are {', '.join(PLACEMENTS)}")
    return names


def _coming(
    arrivals: str, load: float | None, count: int | None, *, keep_running: bool, departures: bool
) -> Coming:
    from cotenant.simulate.placement.arriving import MOST_ARRIVALS, Coming

    if load is not None and not 1 <= load <= LARGEST_LOAD:
        raise BadInput(f"load: {load:g} is not between 1 and {LARGEST_LOAD:g} percent of the GPU memory")
    if count is not None and not 1 <= count <= MOST_ARRIVALS:
        raise BadInput(f"count: {count} is not between 1 and {MOST_ARRIVALS}")
    if load is not None and arrivals == "trace":
        raise BadInput("load: with --arrivals trace each recorded pod comes once: leave one of them out")
    if load is not None and count is not None and not departures:
        raise BadInput("load: --count says how many pods come: leave one of them out")
    return Coming(arrivals == "trace", None if load is None else load / 100, count, departures, keep_running)


def _has(cpu: str | None, memory: str | None, *, given: bool) -> Spare:
    from cotenant.core.loss import PLENTY, Spare
    from cotenant.core.quantity import parse_quantity

    for option, text in (("node-cpu", cpu), ("node-memory", memory)):
        if text is not None and not given:
            raise BadInput(
                f"{option}: it is about nodes that are added: add some with --add, or leave it out"
            )
    amount = None if cpu is None else parse_quantity(cpu)
    if cpu is not None and (amount is None or not 0 < amount <= 100_000):
        raise BadInput(f"node-cpu: {cpu[:40]!a} is not an amount of CPU: write it like 64 or 63500m")
    if memory is not None:
        check_unit(memory, "node-memory")
    return Spare(
        PLENTY if amount is None else round(amount * 1000),
        PLENTY if memory is None else parse_bytes(memory, "node-memory"),
    )


def _recording(cluster: str | None, nodes: str | None, pods: str | None, *, keep_running: bool) -> Recording:
    from cotenant.simulate.placement.dump import read_dump
    from cotenant.simulate.placement.trace import read_pods_for, read_trace
    from cotenant.simulate.placement.workload import Recording

    if (cluster is None) == (nodes is None):
        raise BadInput(
            "cluster: give either --cluster, a dump of `cotenant status -o json`, or --nodes, a CSV"
        )
    if [cluster, nodes, pods].count("-") > 1:
        raise BadInput("pods: only one file can be standard input: name the other")
    if nodes is not None:
        if keep_running:
            raise BadInput("keep-running: only a dump of a cluster (--cluster) has pods that run")
        if pods is None:
            raise BadInput("pods: is missing: a CSV of nodes says nothing of pods")
        return read_trace(nodes, pods)
    dump = read_dump(cluster or "")
    if pods is None:
        if not any(each.pod.demands for each in dump.pods):
            raise BadInput("pods: no pod of the cluster asks for GPU: give a CSV of pods")
        return dump
    running = tuple(each for each in dump.pods if each.node) if keep_running else ()
    return Recording(dump.nodes, (*running, *read_pods_for(pods, sized=True)), like_running=False)


def _variants(
    recording: Recording, added: Sequence[str], has: Spare, advice: str | None
) -> tuple[list[Variant], list[str]]:
    """Returns the cluster as it is, and with all changes together if there are any, with notes about them."""
    from cotenant.simulate.placement.adding import add, parse_added
    from cotenant.simulate.placement.advised import advised, read_advice
    from cotenant.simulate.placement.comparing import Variant

    if len(added) > MOST_CHANGES:
        raise BadInput(f"add: given {len(added)} times: give it at most {MOST_CHANGES} times")
    asked = tuple(each.pod for each in recording.pods)
    variants, notes = [Variant("", recording.nodes, asked)], list[str]()
    more = add(recording, [parse_added(each) for each in added], _known_models(), has) if added else []
    pods, names = asked, [f"+{each.strip()}" for each in added]
    if more:
        first = more[0].has
        notes.append(f"added: {len(more)} nodes, the first with {_beside(first)}")
    if advice is not None:
        if not recording.sized:
            raise BadInput("advice: it is in bytes, and --nodes has no column gpu_memory: add it")
        changed, count = advised(recording.pods, read_advice(advice))
        if not count:
            raise BadInput(
                f"advice: none of the {len(recording.pods)} pods is of a workload that is named there: pods "
                "need the same workload (and container), as `cotenant status -o json` writes them"
            )
        notes.append(f"advised sizes: for {count} of {len(recording.pods)} recorded pods")
        pods, names = tuple(changed), [*names, "advised sizes"]
    if names:
        variants.append(Variant(" ".join(names), (*recording.nodes, *more), pods))
    return variants, notes


def _beside(has: Spare) -> str:
    from cotenant.core.loss import PLENTY

    cpu = "CPU not limited" if has.cpu >= PLENTY else f"{has.cpu / 1000:g} CPUs"
    memory = "memory not limited" if has.memory >= PLENTY else f"{format_bytes(has.memory)} of memory"
    return f"{cpu} and {memory}"


def _known_models() -> dict[str, tuple[str, int]]:
    """Returns the driver's name and the size of a card, by the short name in lower case."""
    from cotenant.hardware.standin.models import MODELS

    return {
        name.lower(): (model.name, model.total - model.reserved)
        for name, model in MODELS.items()
        if not model.unified
    }


def _show(rows: list[Row], recording: Recording, notes: Sequence[str]) -> None:
    from cotenant.kube.scheduling.stranded import Cause
    from cotenant.simulate.placement import plot
    from cotenant.simulate.placement.refused import Lack

    first = rows[0].runs[0]
    cards = sum(len(node.gpus) for node in recording.nodes)
    memory = f" ({format_bytes(first.room)} can be granted)" if recording.sized else ""
    seeds = ", ".join(str(each.seed) for each in rows[0].runs)
    click.echo(f"{len(recording.nodes)} nodes with {cards} GPUs{memory}; {len(recording.pods)} pods recorded")
    click.echo(f"{first.timeline[-1].pods} pods come, {first.pods} of them count; seed {seeds}")
    for note in notes:
        click.echo(table.printable(note))
    click.echo()
    table.show(
        (
            "POLICY",
            Column("CHANGE", least=12),
            "ALLOCATED",
            "BLOCKED",
            Column("BLOCKED PODS", rank=1),
            "STRANDED",
        ),
        [
            (
                row.policy,
                row.variant.name or "as it is",
                _percent(row.allocated),
                _percent(row.refused),
                f"{row.mean(lambda each: each.refused_pods):.0f}",
                _percent(row.stranded),
            )
            for row in rows
        ],
    )
    heads = [Column(row.name, least=8, rank=at) for at, row in enumerate(rows)]
    stranded = [
        [STRANDED[cause.value], *(_percent(row.stranded_by(cause)) for row in rows)]
        for cause in Cause
        if any(row.stranded_by(cause) for row in rows)
    ]
    if stranded:
        click.echo("\nfree GPU memory that typical pods cannot use, in % of all:")
        table.show(["WHY", *heads], stranded)
    blocked = [
        [
            BLOCKED[reason.value],
            *(f"{_percent(row.refused_by(reason))} ({_pods(row.refused_pods_by(reason))})" for row in rows),
        ]
        for reason in Lack
        if any(row.refused_pods_by(reason) for row in rows)
    ]
    if blocked:
        click.echo("\nGPU memory that was asked for in vain, in % of what was asked for:")
        table.show(["WHY", *heads], blocked)
    click.echo("\nwhile pods come, in %:")
    for line in plot.text(rows, terminal.width() or 100, unicode=terminal.encodes(plot.BLOCKS)):
        click.echo(table.printable(line))


def _pods(count: float) -> str:
    return "1 pod" if round(count) == 1 else f"{count:.0f} pods"


def _percent(value: float) -> str:
    return f"{value:.2f} %"


def _write_plot(path: str, rows: list[Row]) -> None:
    from cotenant.simulate.placement import plot

    run = rows[0].runs[0]
    title = f"{run.timeline[-1].pods} pods come to {len(rows[0].variant.nodes)} nodes, seed {run.seed}"
    write_svg(path, plot.svg(rows, title))

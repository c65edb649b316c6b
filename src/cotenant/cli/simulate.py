"""Replays recorded load against decisions, without a cluster (`cotenant simulate`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cotenant.cli import table, terminal
from cotenant.cli.compose import output_option
from cotenant.cli.progress import ShownProgress
from cotenant.cli.simulate_placement import placement
from cotenant.cli.svg_file import check_svg, write_svg
from cotenant.cli.table import Column
from cotenant.core.errors import BadInput

if TYPE_CHECKING:
    from cotenant.simulate.scaling.comparing import Row
    from cotenant.simulate.scaling.running import Conditions

POLICIES = "ours,seed,hpa,keda,knative"
MOST_ROWS = 400
MOST_VALUES = 32
LARGEST_POOL = 100_000
UNREMARKABLE = ("", "Active", "NoMetric")
"""States in which nothing changed; only JSON has them."""


@click.group(invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Replay recorded load, to judge a decision before it meets a cluster.

    \b
    cotenant simulate scaling --trace requests.csv
    cotenant simulate placement --cluster cluster.json
    """  # noqa: D301 -- \b keeps the lines below it as they are
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


command.add_command(placement)


@command.command("scaling", short_help="compare scaling policies on a trace of requests")
@click.option("--trace", required=True, metavar="FILE", help="CSV of requests, also gzip.")
@click.option(
    "--policy",
    default=POLICIES,
    show_default=True,
    metavar="NAMES",
    help="Of ours, seed, hpa, keda, knative, erlang. An oracle is always added.",
)
@click.option(
    "--service",
    metavar="TIMES",
    help="Mean service times; the trace's are scaled to each. [default: the trace's]",
)
@click.option("--cold-start", default="45s", show_default=True, metavar="TIMES", help="From GPU to ready.")
@click.option("--target", default="5s", show_default=True, metavar="TIMES", help="A later start is late.")
@click.option(
    "--overlay", metavar="N", help="Lay the trace over itself N times, within 5 s; one, or one a service."
)
@click.option("--min", "minimum", type=int, help="Fewest replicas. [default: 1, with a threshold 0]")
@click.option("--max", "maximum", type=int, default=128, show_default=True, help="Most replicas.")
@click.option(
    "--concurrency", type=int, default=1, show_default=True, help="Requests at once in one replica."
)
@click.option("--cards", type=int, metavar="N", help="GPUs in the cluster; further replicas wait.")
@click.option(
    "--scale-down-threshold",
    "threshold",
    metavar="TIME",
    help="Release after so much idleness (15m or auto; for ours).",
)
@click.option("--poll", default="5s", show_default=True, metavar="TIME", help="How often ours decides.")
@click.option(
    "--staleness", default="2s", show_default=True, metavar="TIME", help="Figures are up to so old."
)
@click.option(
    "--missing", type=float, default=1.0, show_default=True, metavar="PERCENT", help="Polls without figures."
)
@click.option(
    "--told-service",
    type=float,
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Policies are told a service time that is wrong by this factor.",
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="KIND@START[+FOR]",
    help="missing, stuck, reset, poison, crash-loop or full; may be repeated. Lasts 5m unless said.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same figures.")
@click.option("--changes", is_flag=True, help="Also list each change that the first policy made, and why.")
@click.option("--plot", metavar="FILE.svg", help="Write a picture of the first row.")
@output_option
def scaling(
    trace: str,
    policy: str,
    service: str | None,
    cold_start: str,
    target: str,
    overlay: str | None,
    told_service: float,
    seed: int,
    changes: bool,
    plot: str | None,
    output: str,
    **conditions: Any,
) -> None:
    """Compare scaling policies on a trace, request by request, with cold starts, drains and late figures.

    \b
    cotenant simulate scaling --trace requests.csv
    cotenant simulate scaling --trace requests.csv.gz --cold-start 90s --target 3s --cards 8
    cotenant simulate scaling --trace azure.csv --service 0.1,0.8,5 --cold-start 10,45,180 --target 3,5
    cotenant simulate scaling --trace requests.csv --fault poison@10m+5m --fault full@30m --changes

    The trace has the columns timestamp[,service_seconds], or those of the Azure LLM traces (TIMESTAMP,
    ContextTokens, GeneratedTokens: a request then takes a time in proportion to context/10 + generated + 5).
    Timestamps are seconds or ISO 8601. TIMES are one or more, separated by commas: 45, 800ms, 2m.

    LATE is the share of requests that waited longer than the target for their start. TURNS are changes of
    direction of the wanted number, an hour. HOURS are replica-hours: from the GPU until the replica is
    drained. The bound is about the least that does each minute's work in that minute; the oracle knows the
    whole trace. `ours` is the function that the cluster's controller calls; docs/simulate-scaling.md
    describes the others.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    from cotenant.simulate.scaling.comparing import compare, make_loads, to_json
    from cotenant.simulate.scaling.policies.table import check
    from cotenant.simulate.scaling.trace import read_trace

    names = check(_words(policy, "policy"))
    world = _conditions(seed=seed, **conditions)
    services = _times(service, "service", least=1e-4) if service is not None else []
    cold_starts, targets = _times(cold_start, "cold-start"), _times(target, "target", least=1e-3)
    copies = _counts(overlay, len(services)) if overlay is not None else None
    if max(1, len(services)) * len(cold_starts) * len(targets) > MOST_ROWS:
        raise BadInput(
            f"service: more than {MOST_ROWS} combinations with --cold-start and --target: give fewer"
        )
    if not 0.01 <= told_service <= 100:
        raise BadInput(f"told-service: {told_service:g} is not between 0.01 and 100: 1 is the true time")
    check_svg(plot)
    read = read_trace(trace)
    if not read.timed and not services:
        services = [0.8]
    loads = make_loads(read, services, copies, seed)
    progress = ShownProgress()
    rows = compare(
        loads,
        cold_starts,
        targets,
        names,
        world,
        wrong=told_service,
        progress=progress if progress.shown else None,
    )
    progress.clear()
    if output == "json":
        table.show_json({"seed": seed, **to_json(rows, changes=changes)})
    else:
        _show(rows, trace)
        if changes:
            _show_changes(rows[0], names[0])
    if plot is not None:  # last: figures that took long are not lost to a full disk
        _write_plot(plot, rows[0])


def _show(rows: list[Row], trace: str) -> None:
    from cotenant.simulate.scaling import plot
    from cotenant.simulate.scaling.comparing import mean

    first, names = rows[0], list(rows[0].outcomes)
    requests = (
        f"{len(first.load.workload.arrivals)} requests in {table.duration(first.load.workload.duration)}"
    )
    click.echo(f"{table.printable(Path(trace).name)}: {requests}")
    for load in dict.fromkeys((row.load.service, row.load.copies) for row in rows):
        if load[1] > 1:
            click.echo(
                f"service {_seconds(load[0])}: the trace is laid over itself {load[1]} times, within 5 s"
            )
    click.echo()
    if len(rows) > 1:
        columns = [Column("SERVICE"), Column("COLD"), Column("TARGET")]
        columns += [Column(name.upper(), rank=number) for number, name in enumerate(names)]
        cells = [
            [_seconds(row.load.service), _seconds(row.cold_start), _seconds(row.target)]
            + [
                f"{each.late_percent:.2f} / {each.turns_per_hour:.0f} / {each.replica_hours:.1f}"
                for each in row.outcomes.values()
            ]
            + [f"{row.bound_hours:.1f}"]
            for row in rows
        ]
        table.show([*columns, "BOUND"], cells)
        click.echo("late % / turns an hour / replica-hours\n")
        means = {name: mean(rows, name) for name in names}
        table.show(
            ("MEAN", "LATE", "TURNS/H", "HOURS/BOUND"),
            [
                (name, f"{each.late_percent:.2f} %", f"{each.turns_per_hour:.1f}", f"{each.times_bound:.2f}")
                for name, each in means.items()
            ],
        )
    else:
        table.show(
            (
                "POLICY",
                "LATE",
                "TURNS/H",
                "HOURS",
                Column("HOURS/BOUND", rank=1),
                Column("MEAN WAIT", rank=4),
                Column("P99 WAIT", rank=3),
                Column("WORST", rank=2),
            ),
            [
                (
                    name,
                    f"{each.late_percent:.2f} %",
                    f"{each.turns_per_hour:.1f}",
                    f"{each.replica_hours:.2f}",
                    f"{each.replica_hours / first.bound_hours:.2f}",
                    _seconds(each.mean_wait),
                    _seconds(each.p99_wait),
                    _seconds(each.worst_wait),
                )
                for name, each in first.outcomes.items()
            ],
        )
        click.echo(f"bound {first.bound_hours:.2f} replica-hours")
    click.echo(
        f"\nreplicas over time, service {_seconds(first.load.service)}, cold start "
        f"{_seconds(first.cold_start)}, target {_seconds(first.target)}:"
    )
    for line in plot.text(first, terminal.width() or 100, unicode=terminal.encodes(plot.BLOCKS + plot.LATE)):
        click.echo(line)
    unserved = {name: each.unserved for row in rows for name, each in row.outcomes.items() if each.unserved}
    if unserved:
        click.echo(f"still waiting an hour after the last arrival (counted as late): {', '.join(unserved)}")


def _show_changes(row: Row, name: str) -> None:
    click.echo()
    table.show(
        ("AT", Column("WANTED"), Column("STATE", rank=1), Column("WHY", least=20, wraps=True)),
        [
            (table.duration(each.at), f"{each.before} -> {each.wanted}", each.state, each.reason)
            for each in row.outcomes[name].changes
            if each.before != each.wanted or each.state not in UNREMARKABLE
        ],
    )


def _write_plot(path: str, row: Row) -> None:
    from cotenant.simulate.scaling import plot

    title = (
        f"service {_seconds(row.load.service)}, cold start {_seconds(row.cold_start)}, "
        f"target {_seconds(row.target)}"
    )
    write_svg(path, plot.svg(row, title))


def _conditions(
    minimum: int | None,
    maximum: int,
    concurrency: int,
    cards: int | None,
    threshold: str | None,
    poll: str,
    staleness: str,
    missing: float,
    seed: int,
    faults: tuple[str, ...],
) -> Conditions:
    from cotenant.simulate.scaling.duration import parse_seconds
    from cotenant.simulate.scaling.faults import parse_fault
    from cotenant.simulate.scaling.running import Conditions

    _between("max", maximum, 1, LARGEST_POOL)
    least = minimum if minimum is not None else 1 if threshold is None else 0
    _between("min", least, 0, maximum)
    _between("concurrency", concurrency, 1, 4096)
    if cards is not None:
        _between("cards", cards, 1, LARGEST_POOL)
    _between("missing", missing, 0, 100)
    idle: Any = None
    if threshold is not None:
        idle = "auto" if threshold == "auto" else parse_seconds(threshold, "scale-down-threshold")
        if idle == 0:
            raise BadInput("scale-down-threshold: 0 is no time: write a duration such as 15m, or auto")
    pace = parse_seconds(poll, "poll")
    if not 0.1 <= pace <= 3600:
        raise BadInput(f"poll: {poll} is not between 100ms and 1h")
    return Conditions(
        minimum=least,
        maximum=maximum,
        concurrency=concurrency,
        cards=cards,
        idle=idle,
        poll=pace,
        staleness=parse_seconds(staleness, "staleness"),
        missing=missing / 100,
        seed=seed,
        faults=tuple(map(parse_fault, faults)),
    )


def _between(field: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise BadInput(f"{field}: {value:g} is not between {least:g} and {most:g}")


def _words(text: str, field: str) -> list[str]:
    words = [each.strip() for each in text.split(",")]
    if not all(words):
        raise BadInput(f"{field}: {text[:60]!r} has an empty part: separate values by single commas")
    if len(words) > MOST_VALUES:
        raise BadInput(f"{field}: more than {MOST_VALUES} values: give fewer")
    return list(dict.fromkeys(words))


def _times(text: str, field: str, least: float = 0.0) -> list[float]:
    from cotenant.simulate.scaling.duration import parse_seconds

    times = [parse_seconds(each, field) for each in _words(text, field)]
    for each in times:
        if each < least:
            raise BadInput(f"{field}: {each:g} is too short: write at least {least:g} seconds")
    return times


def _counts(text: str, services: int) -> list[int]:
    parts = text.split(",")
    if not all(each.strip().isdecimal() and len(each) < 20 and 1 <= int(each) <= 1000 for each in parts):
        raise BadInput(
            f"overlay: {text[:40]!r} is not a whole number from 1 to 1000, or one for each service"
        )
    if len(parts) not in {1, services}:
        raise BadInput(
            f"overlay: {len(parts)} numbers for {services} service times: give one, or one for each"
        )
    return [int(each) for each in parts]


def _seconds(value: float) -> str:
    return f"{value:.3g} s"

"""Advises how much GPU memory containers should ask for (`cotenant recommend`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cotenant.cli import table
from cotenant.cli.cluster import Where, scope_options
from cotenant.cli.compose import simulate_option
from cotenant.core.errors import BadInput, CotenantError
from cotenant.core.rightsizing.strategies import DEFAULT, STRATEGIES
from cotenant.core.units import parse_duration

if TYPE_CHECKING:
    from cotenant.cli.recommend_sources import Found
    from cotenant.core.gpu import GPU
    from cotenant.core.rightsizing.advice import Report, Rules

SINCE, LONGEST_SINCE = "14d", 400 * 86400.0
MIN_HISTORY = "1d"
MOST_HEADROOM = 10.0
MOST_CARDS = 10_000
PLOTS = (".html", ".svg", ".png")
NOTHING_ADVISED, MUST_BE_RAISED = 3, 4
"""Exit codes."""


@click.command()
@click.argument("workload", required=False)
@click.option(
    "--from-csv",
    metavar="FILE",
    help="Samples in a file, also gzip, or - for standard input; or a log of nvidia-smi.",
)
@click.option(
    "--prometheus",
    metavar="URL",
    help="Series of Cotenant's agents or of the DCGM exporter there; with --context or --kubeconfig the "
    "cluster is read too.",
)
@click.option("--local", is_flag=True, help="The history of `cotenant run` on this machine.")
@click.option(
    "--min-history",
    metavar="TIME",
    help=f"Advise nothing from less. [default: {MIN_HISTORY}; with --local 0s]",
)
@click.option(
    "--min-starts",
    type=click.IntRange(0, 1000),
    default=2,
    show_default=True,
    help="Cold starts that must be seen, where the source shows them.",
)
@click.option(
    "--strategy",
    type=click.Choice(list(STRATEGIES)),
    default=DEFAULT,
    show_default=True,
    help="How a figure is made; docs/recommend.md compares them.",
)
@click.option("--headroom", metavar="PERCENT", help="Above the peak, instead of what is learned; 15 or more.")
@click.option(
    "--lower-by",
    metavar="PERCENT",
    default="25",
    show_default=True,
    help="Lower a figure by at most so much of it at once.",
)
@click.option(
    "--since", metavar="TIME", default=SINCE, show_default=True, help="How far back to ask Prometheus."
)
@click.option(
    "--series",
    type=click.Choice(["auto", "cotenant", "dcgm"]),
    default="auto",
    show_default=True,
    help="Which series of Prometheus.",
)
@click.option(
    "--prometheus-token-file", type=click.Path(path_type=Path), metavar="FILE", help="A bearer token for it."
)
@click.option(
    "--prometheus-ca-file", type=click.Path(path_type=Path), metavar="FILE", help="Its authority, in PEM."
)
@click.option(
    "--containers",
    type=click.Choice(["auto", "name", "instance"]),
    default="auto",
    show_default=True,
    help="What the column `container` of a file is.",
)
@click.option(
    "--time-unit",
    type=click.Choice(["auto", "s", "ms", "us", "ns"]),
    default="auto",
    show_default=True,
    help="Of a file's timestamps that are numbers.",
)
@click.option("--cards", metavar="SPEC", help="GPUs to fill, such as 8x80GiB. [default: the cluster's]")
@click.option("--plot", metavar="FILE", help="Write a picture: .html, .svg or .png.")
@click.option("--check", is_flag=True, help="Exit with 4 if a container asks for less than is advised.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default="table",
    show_default=True,
    help="json has stable names, and bytes as integers; yaml are patches for kubectl.",
)
@simulate_option
@scope_options
@click.pass_context
def command(
    ctx: click.Context,
    where: Where,
    workload: str | None,
    from_csv: str | None,
    prometheus: str | None,
    local: bool,
    min_history: str | None,
    min_starts: int,
    strategy: str,
    headroom: str | None,
    lower_by: str,
    since: str,
    series: str,
    prometheus_token_file: Path | None,
    prometheus_ca_file: Path | None,
    containers: Any,
    time_unit: str,
    cards: str | None,
    plot: str | None,
    check: bool,
    output: str,
) -> int:
    """Advise how much GPU memory each container should ask for, from what it used; WORKLOAD: only that one.

    \b
    cotenant recommend                                   Prometheus of the cluster, or this machine's history
    cotenant recommend --prometheus http://localhost:9090 --since 30d
    cotenant recommend --from-csv samples.csv --min-history 12h
    cotenant recommend -n team web -o yaml > patch.yaml

    The figure is the highest peak of all replicas of one version, start-up included, and headroom that is
    learned from how peaks grew in the same history. It is never a percentile. Beside it is what this rule
    would have done in the past: MISSES is the part of containers that later passed their figure, SLACK what
    the figure was above their later peak. Too little history is refused, with the reason. More is advised at
    once, less in steps.

    A file has the columns timestamp,workload,container,bytes. A timestamp is Unix time or ISO 8601. The
    column `container` may be the name of a container in a pod: then each (workload, container) gets a figure.
    Or it may be a running container, such as an id or a pod: then those of one workload share a figure if
    their peaks are alike, and otherwise each has its own, with more headroom where others used more. Which
    it is, is guessed from the values; --containers says it. Further columns: version, pod, gpu, namespace,
    limit. With `pod`, `container` is a name. Rows that cannot be used are counted and left out.

    Exit codes: 3 if there are samples and nothing can be advised, 4 with --check.
    """  # noqa: D301 -- \b keeps the lines below it as they are
    from cotenant.cli.progress import ShownProgress
    from cotenant.cli.recommend_sources import Wanted, gather

    _check_plot(plot)
    rules = _rules(min_history, min_starts, strategy, headroom, lower_by)
    back = parse_duration(since, "since")
    if not 3600 <= back <= LONGEST_SINCE:
        raise BadInput(f"since: {since} is not between 1h and 400d")
    wanted = Wanted(
        from_csv,
        containers,
        time_unit,
        prometheus,
        prometheus_token_file,
        prometheus_ca_file,
        series,
        back,
        local,
        where,
    )
    machines = _machines(cards)
    progress = ShownProgress()
    try:
        found = gather(wanted, ctx.obj, progress)
        progress(0.0, "learning from the history")
        report = _advise(found, rules, min_history, workload)
    finally:
        progress.clear()
    _show(report, found, machines or found.machines, output)
    if plot is not None:  # last: what took long is not lost to a full disk
        _write(plot, report, found)
    if all(each.advised is None for each in report.advice):
        return NOTHING_ADVISED
    low = [each for each in report.advice if each.now is not None and (each.target or 0) > each.now]
    return MUST_BE_RAISED if check and low else 0


def _rules(
    min_history: str | None, min_starts: int, strategy: str, headroom: str | None, lower_by: str
) -> Rules:
    from cotenant.core.rightsizing.advice import Rules
    from cotenant.core.rightsizing.headroom import FLOOR

    wanted = None if headroom is None else _percent(headroom, "headroom")
    if wanted is not None and not FLOOR <= wanted <= MOST_HEADROOM:
        raise BadInput(f"headroom: {headroom} is not between 15 and 1000: less than 15 % is passed too often")
    lowered = _percent(lower_by, "lower-by")
    if not 0 < lowered <= 1:
        raise BadInput(f"lower-by: {lower_by} is not above 0 and at most 100")
    return Rules(
        min_history=parse_duration(MIN_HISTORY if min_history is None else min_history, "min-history"),
        min_starts=min_starts,
        strategy=strategy,
        headroom=wanted,
        lower_by=lowered,
    )


def _percent(text: str, field: str) -> float:
    try:
        number = float(text.strip().removesuffix("%"))
    except ValueError:
        raise BadInput(f"{field}: {text[:40]!a} is not a percentage: write it like 30") from None
    return number / 100


def _machines(cards: str | None) -> tuple[tuple[GPU, ...], ...]:
    """Makes the GPUs of --cards: one machine has them all."""
    if cards is None:
        return ()
    from cotenant.core.gpu import GPU
    from cotenant.hardware.standin.spec import parse_spec

    found: list[tuple[str, int]] = []
    for part in cards.split(","):
        count, _, kind = part.strip().rpartition("x")
        many = int(count) if count.isdecimal() and len(count) < 6 else None
        try:
            specs = parse_spec(part.strip() if many is None else kind)
        except BadInput as error:
            raise BadInput(f"cards: {str(error).removeprefix('simulated GPUs: ')}") from None
        for each in specs * (1 if many is None else many):
            sizes = [size.memory for _, size in each.instances] or [each.model.total - each.model.reserved]
            found += [(each.model.name, size) for size in sizes]
        if not 0 < len(found) <= MOST_CARDS:
            raise BadInput(f"cards: {cards[:60]!a} is not between 1 and {MOST_CARDS} GPUs")
    return (tuple(GPU(f"card-{at}", at, model, size) for at, (model, size) in enumerate(found)),)


def _advise(found: Found, rules: Rules, min_history: str | None, workload: str | None) -> Report:
    from dataclasses import replace

    from cotenant.core.rightsizing.advice import advise

    gathered = found.gathered
    rules = replace(rules, starts_are_seen=gathered.starts_are_seen)
    if found.local and min_history is None:
        rules = replace(rules, min_history=0.0)
    if gathered.whole:  # nobody has a limit yet that could be lowered in steps
        rules = replace(rules, lower_by=1.0)
    report = advise(gathered.groups, gathered.step, rules, gathered.past, gathered.began)
    if workload is None:
        return report
    asked = workload.strip("/")
    shown = tuple(
        each
        for each in report.advice
        if asked == each.group.owner.workload or each.group.owner.workload.endswith(f"/{asked}")
    )
    if not shown:
        raise CotenantError(
            f"WORKLOAD: {workload!a} is not among the {len(report.advice)} that have samples: leave it out "
            "to see all"
        )
    return replace(report, advice=shown)


def _show(report: Report, found: Found, machines: Any, output: str) -> None:
    from cotenant.advice.document import document
    from cotenant.advice.needed import cards_needed
    from cotenant.cli.recommend_table import show

    needed = cards_needed(report, found.gathered, machines, found.others)
    total = sum(map(len, machines))
    if output == "json":
        table.show_json(document(report, found.gathered, needed, total))
    elif output == "yaml":
        from cotenant.advice.patches import patches

        click.echo(patches(report.advice, found.spellings), nl=False)
    else:
        show(report, found.gathered, needed, total)


def _check_plot(path: str | None) -> None:
    if path is None:
        return
    if not path.lower().endswith(PLOTS):
        raise BadInput(f"plot: {path!r} does not end with {', '.join(PLOTS[:-1])} or {PLOTS[-1]}")
    if not Path(path).absolute().parent.is_dir():
        raise BadInput(f"plot: {path!r}: its folder does not exist: create it, or name another")


def _write(path: str, report: Report, found: Found) -> None:
    from cotenant.advice import plot

    gathered = found.gathered
    title = f"GPU memory of {len(report.advice)} containers, from {gathered.source}"
    kind = path.lower().rpartition(".")[2]
    try:
        if kind == "png":
            from cotenant.advice.png import picture

            Path(path).write_bytes(picture(report, gathered.step, title))
        else:
            draw = plot.page if kind == "html" else plot.svg
            Path(path).write_text(draw(report, gathered.step, title), encoding="utf-8")
    except OSError as error:
        raise CotenantError(f"plot: cannot write {path}: {error.strerror or error}") from None

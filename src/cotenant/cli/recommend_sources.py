"""Reads samples for `cotenant recommend` from where the command line says, or from where there are some."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cotenant.advice.gathered import Gathered, Progress
from cotenant.advice.patches import Spelling
from cotenant.cli.cluster import Where, ask
from cotenant.core.errors import BadInput, CotenantError
from cotenant.core.gpu import GPU
from cotenant.core.rightsizing.cards import Asked as Held
from cotenant.core.rightsizing.groups import Group, Meaning

if TYPE_CHECKING:
    from cotenant.kube.api.client import Client
    from cotenant.kube.operating.recommend.cluster import ClusterNow
    from cotenant.observe.prometheus import Transport


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says about sources."""

    from_csv: str | None
    containers: Meaning
    time_unit: str
    prometheus: str | None
    token_file: Path | None
    ca_file: Path | None
    series: str
    since: float
    local: bool
    where: Where


@dataclass(frozen=True, slots=True)
class Found:
    """Samples, and what else the source knows."""

    gathered: Gathered
    local: bool = False
    machines: tuple[tuple[GPU, ...], ...] = ()
    others: tuple[Held, ...] = ()
    """What containers hold that no advice is about."""
    spellings: Mapping[tuple[str, str], Spelling] = field(default_factory=dict)


def gather(wanted: Wanted, simulate: str | None, progress: Progress) -> Found:
    """Reads the samples. Without a source it is the cluster's Prometheus, or else this machine's history."""
    given = [
        option
        for option, value in (
            ("--from-csv", wanted.from_csv),
            ("--prometheus", wanted.prometheus),
            ("--local", wanted.local),
        )
        if value
    ]
    if len(given) > 1:
        raise BadInput(f"{given[0]} and {given[1]} exclude each other: name one source")
    _refuse_misplaced(given[0] if given else None)
    if wanted.from_csv is not None:
        from cotenant.advice.csv_file import read_csv

        found = read_csv(wanted.from_csv, wanted.containers, wanted.time_unit, progress)
        return Found(_only(found, wanted.where.namespace))
    if wanted.prometheus is not None:
        from cotenant.observe.prometheus_http import HttpTransport

        transport = HttpTransport(wanted.prometheus, wanted.token_file, wanted.ca_file)
        if wanted.where.named or _is_plugin():
            return _cluster(wanted, progress, transport)
        return Found(asyncio.run(_read(transport, wanted, None, progress)))
    if wanted.local:
        return _local(simulate)
    asked = wanted.where.named or wanted.where.namespace or wanted.where.everywhere
    if asked or _is_plugin():
        return _cluster(wanted, progress)
    if simulate is None and _has_cluster():
        try:
            return _cluster(wanted, progress)
        except CotenantError as error:
            raise CotenantError(
                f"{error}. Name another source: --prometheus URL, --from-csv FILE, or --local for the "
                "history of this machine"
            ) from None
    return _local(simulate)


OF_A_FILE = ("containers", "time_unit")
OF_PROMETHEUS = ("since", "series", "prometheus_token_file", "prometheus_ca_file")


def _refuse_misplaced(source: str | None) -> None:
    """Refuses options that another source than the named one has: ignored, they would seem to be obeyed."""
    context = click.get_current_context()
    other = {"--from-csv": OF_PROMETHEUS, "--local": OF_PROMETHEUS + OF_A_FILE, "--prometheus": OF_A_FILE}
    for name in other.get(source or "", ()):
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            whose = "a file's" if name in OF_A_FILE else "Prometheus'"
            raise BadInput(
                f"--{name.replace('_', '-')} is {whose}, and the source is {source}: leave out one of them"
            )


def _is_plugin() -> bool:
    from cotenant.cli.main import PLUGIN

    return click.get_current_context().find_root().info_name == PLUGIN


def _has_cluster() -> bool:
    try:
        from cotenant.kube.api.auth.kubeconfig import find
    except ModuleNotFoundError:  # the extra `cluster` is not installed
        return False
    try:
        find()
    except CotenantError:
        return False
    return True


def _local(simulate: str | None) -> Found:
    from cotenant.cli.compose import machine_of
    from cotenant.local.line import ended_jobs
    from cotenant.local.past_runs import past_runs

    machine = machine_of(simulate)
    found = past_runs(ended_jobs(machine), f"the history in {machine.home.folder}")
    if not found.groups:
        raise CotenantError(
            "no command that used a GPU has ended here yet: run some with `cotenant run`, or name another "
            "source: --prometheus URL, --from-csv FILE, or --context for a cluster"
        )
    return Found(found, local=True)


def _only(gathered: Gathered, namespace: str | None) -> Gathered:
    if namespace is None:
        return gathered
    groups = tuple(each for each in gathered.groups if each.owner.workload.startswith(f"{namespace}/"))
    if not groups:
        raise BadInput(
            f"namespace: no workload of {gathered.source} begins with {namespace}/: leave out -n, or add a "
            "column `namespace`"
        )
    return replace(gathered, groups=groups)


async def _read(
    transport: Transport, wanted: Wanted, cluster: ClusterNow | None, progress: Progress
) -> Gathered:
    from cotenant.advice import container_series, dcgm
    from cotenant.advice.prometheus_reading import Asked

    end = time.time()
    asked = Asked(end - wanted.since, end, wanted.where.namespace, progress)
    pods = None if cluster is None else cluster.pods
    if wanted.series in ("auto", "cotenant") and await container_series.present(transport, asked):
        found = await container_series.read_containers(transport, asked, pods)
        if found.groups:
            return found
        where = f" of namespace {asked.namespace}" if asked.namespace else ""
        raise CotenantError(
            f"{transport.name} has no samples{where} in this time (those of the last five minutes are not "
            "counted yet): look further back with --since, or name another namespace"
        )
    if wanted.series in ("auto", "dcgm") and await dcgm.present(transport, asked):
        return await dcgm.read_dcgm(transport, asked, pods)
    names = {"cotenant": container_series.PEAK, "dcgm": dcgm.USED[0]}
    looked = names.get(wanted.series) or " and no ".join(names.values())
    raise CotenantError(
        f"{transport.name} has no {looked} of the last day: does it scrape Cotenant's agents "
        "(docs/sizing.md) or the DCGM exporter?"
    )


def _cluster(wanted: Wanted, progress: Progress, named: Transport | None = None) -> Found:
    """Reads the cluster and its Prometheus, or the one that is named."""

    async def work(client: Client, _: str) -> Found:
        from cotenant.advice import container_series, dcgm
        from cotenant.kube.api.errors import Forbidden
        from cotenant.kube.operating.recommend.cluster import read_cluster
        from cotenant.kube.operating.recommend.finding import find_prometheus

        progress(0.0, "looking for Prometheus")
        wanted_metrics = (container_series.PEAK, *dcgm.USED)
        transport = named or await find_prometheus(client, wanted_metrics, time.time())
        try:
            cluster = await read_cluster(client)
        except Forbidden:
            cluster = None
        gathered = await _read(transport, wanted, cluster, progress)
        if cluster is None:
            note = "nodes and pods of the cluster may not be read: workloads are guessed from names of pods"
            return Found(replace(gathered, notes=(*gathered.notes, note)))
        return _with_cluster(gathered, cluster)

    return ask(wanted.where, work)


def _with_cluster(gathered: Gathered, cluster: ClusterNow) -> Found:
    """Adds what the cluster knows: present demands, GPUs, and how each container writes its demand."""
    groups: list[Group] = []
    covered: set[tuple[str, str, str]] = set()
    spellings: dict[tuple[str, str], Spelling] = {}
    for group in gathered.groups:
        namespace, container = group.owner.workload.partition("/")[0], group.owner.container
        keys = [(namespace, pod, container) for pod in group.instances]
        covered.update(keys)
        asked = [cluster.asked[key] for key in keys if key in cluster.asked]
        groups.append(replace(group, now=max(asked)) if group.now is None and asked else group)
        spelled = next((cluster.spellings[key] for key in keys if key in cluster.spellings), None)
        if spelled is not None:
            resource, unit, removed = spelled
            spellings[group.owner.workload, container] = Spelling(resource, unit, removed)
    others = tuple(held for key, held in cluster.held.items() if key not in covered)
    return Found(
        replace(gathered, groups=tuple(groups)), machines=cluster.machines, others=others, spellings=spellings
    )

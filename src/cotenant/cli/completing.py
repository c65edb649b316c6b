"""Completes job names, GPUs, pods and nodes on the command line: what a shell calls while somebody types.

It changes nothing, and never fails: without an answer there is nothing to choose from.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from cotenant.kube.api.client import Client
    from cotenant.observe.view import NodeView

Choice = tuple[str, str]
"""A word and what it is."""
Complete = Callable[[click.Context, click.Parameter, str], list["CompletionItem[str]"]]

MOST = 200
"""Words that are offered at most: more cannot be read."""
WITHIN = 2.0
"""Seconds in which the API server has to answer."""


def _completion(choices: Callable[[click.Context], Iterable[Choice]]) -> Complete:
    @functools.wraps(choices)
    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        from click.shell_completion import CompletionItem

        try:
            found = list(choices(ctx))
        except Exception:  # noqa: BLE001 -- a message would land in the line that is being typed
            return []
        fitting = [CompletionItem(word, help=help) for word, help in found if word.startswith(incomplete)]
        return fitting[:MOST]

    return complete


@_completion
def jobs(ctx: click.Context) -> Iterable[Choice]:
    """Names of what runs or waits on this machine."""
    from cotenant.cli.compose import ledger_file, machine_of
    from cotenant.cli.table import command_line

    simulate = _simulate(ctx)
    if not ledger_file(simulate).exists():
        return []
    return [(job.name, command_line(job.command)) for job in machine_of(simulate).store.jobs()]


@_completion
def workloads(ctx: click.Context) -> Iterable[Choice]:
    """Names of the workloads of `cotenant up`."""
    from cotenant.cli.compose import ledger_file

    folder = ledger_file(_simulate(ctx)).parent / f"scalers-{os.getuid()}"
    return [(file.stem, "") for file in sorted(folder.glob("*.json")) if file.stem != "declared"]


@_completion
def gpus(ctx: click.Context) -> Iterable[Choice]:
    """Indices and UUIDs of this machine's GPUs."""
    simulate = _simulate(ctx)
    if simulate:
        from cotenant.cli.compose import machine_of

        cards = machine_of(simulate).cards.read().cards
    else:
        from cotenant.hardware.nvml import Nvml

        cards = Nvml().read().cards
    by_index = [(str(card.gpu.index), card.gpu.model) for card in cards]
    return [*by_index, *((card.gpu.uuid, f"{card.gpu}, {card.gpu.model}") for card in cards)]


def programs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """The command that is to be run and its arguments: the shell completes files."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


@_completion
def contexts(ctx: click.Context) -> Iterable[Choice]:
    """Contexts of the kubeconfig."""
    from cotenant.cli.cluster import where_of
    from cotenant.kube.api.auth.kubeconfig import files, read

    own = where_of(ctx).kubeconfig
    return [(name, "") for name in sorted(read([own] if own else files(os.environ)).contexts)]


@_completion
def namespaces(ctx: click.Context) -> Iterable[Choice]:
    async def work(client: Client, _: str) -> list[Choice]:
        from cotenant.kube.api.resources import NAMESPACES

        found = await client.list(NAMESPACES, newest=False, within=WITHIN)
        return [(each.metadata.name, "") for each in found.items]

    return _ask(ctx, work)


@_completion
def pods(ctx: click.Context) -> Iterable[Choice]:
    """Pods of the namespace that use or wait for a GPU, then the others."""

    async def work(client: Client, namespace: str) -> list[Choice]:
        from cotenant.cli.cluster import where_of
        from cotenant.kube.api.client import Selection
        from cotenant.kube.api.resources import PODS

        chosen = Selection() if where_of(ctx).everywhere else Selection(namespace=namespace)
        found = (await client.list(PODS, chosen, newest=False, within=WITHIN)).items
        ordered = sorted(found, key=lambda pod: not _has_grant(pod.metadata.annotations))
        return [(pod.metadata.name, pod.metadata.namespace) for pod in ordered]

    return _ask(ctx, work)


@_completion
def nodes(ctx: click.Context) -> Iterable[Choice]:
    """Nodes that report GPUs."""

    async def work(client: Client, _: str) -> list[Choice]:
        return [(node.name, f"{len(node.gpus)} GPUs") for node in await _gpu_nodes(client) if node.gpus]

    return _ask(ctx, work)


@_completion
def cluster_gpus(ctx: click.Context) -> Iterable[Choice]:
    """GPUs of a cluster, as NODE/INDEX and by UUID."""

    async def work(client: Client, _: str) -> list[Choice]:
        found = [(node.name, card.gpu) for node in await _gpu_nodes(client) for card in node.gpus]
        by_index = [(f"{name}/{gpu.index}", gpu.model) for name, gpu in found]
        return [*by_index, *((gpu.uuid, f"{gpu} of {name}, {gpu.model}") for name, gpu in found)]

    return _ask(ctx, work)


async def _gpu_nodes(client: Client) -> tuple[NodeView, ...]:
    from cotenant.kube.api.resources import NODES
    from cotenant.kube.operating.status.snapshot import snapshot

    return snapshot((await client.list(NODES, newest=False, within=WITHIN)).items, ()).nodes


def _has_grant(annotations: Mapping[str, str]) -> bool:
    from cotenant.dialects.names import GRANT

    return GRANT in annotations


def _ask(ctx: click.Context, work: Callable[[Client, str], Awaitable[list[Choice]]]) -> list[Choice]:
    from cotenant.cli.cluster import ask, where_of

    return ask(where_of(ctx), work)


def _simulate(ctx: click.Context) -> str | None:
    """The spec of the command line or the environment; nothing has been run that would have kept it."""
    given: str | None = ctx.obj or ctx.find_root().params.get("simulate")
    return given or os.environ.get("COTENANT_SIMULATE")

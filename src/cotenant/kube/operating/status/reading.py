"""Lists or watches all nodes and pods, for the commands that show them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

from cotenant.kube.api.client import Client
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.api.resources import NODES, PODS
from cotenant.kube.api.watcher import Watcher
from cotenant.kube.binding.learned_view import view_learned
from cotenant.kube.operating.explain.line_view import ledger_of_cluster
from cotenant.kube.operating.installed import find_installed
from cotenant.kube.operating.statistics import read_ended, teach
from cotenant.kube.operating.status.snapshot import snapshot
from cotenant.observe.view import LearnedView, View


@dataclass(frozen=True, slots=True)
class Seen:
    """Nodes and pods of the whole cluster."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    learned: LearnedView | None = None

    @property
    def view(self) -> View:
        return snapshot(self.nodes, self.pods)

    @property
    def full_view(self) -> View:
        """The same with all pods of nodes with GPUs, those that wait for one, and what was learned."""
        return replace(snapshot(self.nodes, self.pods, all_pods=True), learned=self.learned)


async def read_all(client: Client) -> Seen:
    nodes, pods = await asyncio.gather(client.list(NODES), client.list(PODS))
    return Seen(tuple(nodes.items), tuple(pods.items))


async def with_learned(client: Client, seen: Seen) -> Seen:
    """Adds what the leader judges placements by."""
    installed = await find_installed(client)
    ended, trouble = await read_ended(client, installed.namespace)
    cluster = ledger_of_cluster(seen.nodes, seen.pods)
    statistics = teach(cluster, ended, seen.pods, installed.settings.dialects)
    return replace(seen, learned=view_learned(cluster.learned, statistics, trouble))


async def follow(client: Client) -> AsyncGenerator[Seen, None]:
    """Yields the present state, and a new one after every change, when the caller asks for it."""
    nodes, pods = Watcher(client, NODES), Watcher(client, PODS)
    changed = asyncio.Event()
    nodes.store.subscribe(lambda _: changed.set())
    pods.store.subscribe(lambda _: changed.set())
    tasks = [asyncio.create_task(watcher.run()) for watcher in (nodes, pods)]
    try:
        await nodes.wait_until_synced(within=30.0)
        await pods.wait_until_synced(within=30.0)
        while True:
            changed.clear()
            yield Seen(tuple(nodes.store), tuple(pods.store))
            await changed.wait()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

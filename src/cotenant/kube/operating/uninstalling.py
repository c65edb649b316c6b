"""Removes what agents and servers wrote, once they are gone.

Nodes lose our annotations, our condition and what agents put into their capacity; the server's Secrets,
ConfigMaps, Leases and EndpointSlice are deleted, and the Leases of agents. No pod is touched: running pods
keep running, and their annotations and their condition go with them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cotenant.core.errors import CotenantError
from cotenant.dialects import names
from cotenant.kube.api.client import Client, Selection
from cotenant.kube.api.errors import NotFound
from cotenant.kube.api.objects import Node
from cotenant.kube.api.resources import CONFIG_MAPS, ENDPOINT_SLICES, LEASES, NODES, PODS, SECRETS, Resource
from cotenant.kube.binding.statistics_map import NAME as STATISTICS
from cotenant.kube.certificates.distribution import AGENT_SECRET, CA_CONFIG_MAP
from cotenant.kube.certificates.keeper import SECRET
from cotenant.kube.nodes.agent_reports import is_agents
from cotenant.kube.nodes.condition import removal
from cotenant.kube.nodes.gpus import read_gpus

AGENTS = "app.kubernetes.io/name=cotenant,app.kubernetes.io/component in (agent,server)"
OWN: tuple[tuple[Resource[Any], str], ...] = (
    (SECRETS, SECRET),
    (SECRETS, AGENT_SECRET),
    (CONFIG_MAPS, CA_CONFIG_MAP),
    (CONFIG_MAPS, STATISTICS),
    (ENDPOINT_SLICES, "cotenant-extender"),
    (LEASES, "cotenant-server"),
    (LEASES, "cotenant-scheduler"),
)
PAUSE = 1.0


class StillRunning(CotenantError):
    """Agents or servers run: they would write again what is removed."""


@dataclass
class Removed:
    """What was removed."""

    nodes: list[str] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        what = [f"{len(self.nodes)} node{'' if len(self.nodes) == 1 else 's'} cleared", *self.objects]
        return f"{', '.join(what)}: nothing of Cotenant is left but what running pods carry"


def traces(node: Node) -> dict[str, Any] | None:
    """Returns the strategic merge patch of the node's status that removes them; None if there are none."""
    there = node.metadata.annotations
    annotations = [key for key in (names.GPUS, names.DRAINED, names.DEFRAG) if key in there]
    try:
        put = set(read_gpus(there.get(names.GPUS)).resources)
    except CotenantError:
        put = set()
    changes: dict[str, Any] = {}
    if annotations:
        changes["metadata"] = {"annotations": dict.fromkeys(annotations)}
    status: dict[str, Any] = {
        kind: dict.fromkeys(ours)
        for kind, amounts in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable))
        if (ours := [key for key in amounts if key in put or key.startswith(f"{names.DOMAIN}/")])
    }
    condition = removal(node)
    if condition is not None:
        status["conditions"] = [condition]
    if status:
        changes["status"] = status
    return changes or None


async def uninstall(
    client: Client, namespace: str, within: float, clock: Callable[[], float] = time.monotonic
) -> Removed:
    """Waits until agents and servers have terminated. May be repeated."""
    await _wait_until_ended(client, namespace, clock() + within, clock)
    removed = Removed()
    for node in (await client.list(NODES)).items:
        changes = traces(node)
        if changes is not None:
            try:
                await client.merge_patch(
                    NODES, node.metadata.name, changes, subresource="status", strategic=True
                )
            except NotFound:
                continue
            removed.nodes.append(node.metadata.name)
    leases = (await client.list(LEASES, Selection(namespace))).items
    of_agents = [(LEASES, each.metadata.name) for each in leases if is_agents(each)]
    for resource, name in (*OWN, *of_agents):
        try:
            await client.delete(resource, name, namespace)
        except NotFound:
            continue
        removed.objects.append(f"{resource.kind} {name}")
    return removed


async def _wait_until_ended(client: Client, namespace: str, ends: float, clock: Callable[[], float]) -> None:
    while True:
        running = (await client.list(PODS, Selection(namespace, labels=AGENTS))).items
        if not running:
            return
        if clock() >= ends:
            some = ", ".join(pod.metadata.name for pod in running[:3])
            raise StillRunning(
                f"{len(running)} agents or servers still run in {namespace} ({some}): uninstall the chart "
                "first (helm uninstall cotenant, or kubectl delete -f cotenant.yaml), then try again"
            )
        await asyncio.sleep(PAUSE)

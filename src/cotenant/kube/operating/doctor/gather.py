"""Reads the facts. What may not be read is noted, and everything else is examined nevertheless."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from cotenant.kube.api.client import Client, Listing, Selection
from cotenant.kube.api.errors import Forbidden, KubeError, NotFound, Undecodable, Unreachable
from cotenant.kube.api.objects import Generic, Lease, Secret
from cotenant.kube.api.resources import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    SECRETS,
)
from cotenant.kube.binding import statistics_map
from cotenant.kube.certificates.keeper import SECRET
from cotenant.kube.operating.doctor.facts import COMPONENT, NAME, Facts, ImagePod
from cotenant.kube.operating.doctor.scheduler_configmaps import configurations, own_places
from cotenant.kube.operating.installed import LABELS, find_installed
from cotenant.kube.scaler.conflicts import HPAS, SCALED_OBJECTS
from cotenant.kube.scaler.resource import GPU_SCALERS
from cotenant.kube.scheduling.pod_statistics import EndedPods
from cotenant.observe.state import LARGEST_STATE, AgentState, ServerState

T = TypeVar("T")
IMAGE_PODS = PODS.read_as(ImagePod)
POLICIES = ADMISSION_POLICIES.raw
BINDINGS = ADMISSION_POLICY_BINDINGS.raw
SLICES = ENDPOINT_SLICES.raw
_DEFINITIONS = DEFINITIONS.raw
_AT_ONCE = 16
"""Requests for `/state` at a time."""
_STATE_TIMEOUT = 5.0


async def gather(client: Client, now: datetime, version: str) -> Facts:
    reader = _Reader(client)
    installed = await find_installed(client)
    space, settings = installed.namespace, installed.settings
    service = f"kubernetes.io/service-name={settings.extender.service}"
    nodes, pods, images, namespaces = await asyncio.gather(
        reader.all("nodes", client.list(NODES)),
        reader.all("pods", client.list(PODS)),
        reader.all("pods", client.list(IMAGE_PODS)),
        reader.all("namespaces", client.list(NAMESPACES)),
    )
    quotas, maps, policies, bindings, slices = await asyncio.gather(
        reader.all("quotas", client.list(RESOURCE_QUOTAS)),
        reader.all("configmaps", client.list(CONFIG_MAPS)),
        reader.all("policies", client.list(POLICIES)),
        reader.all("policy bindings", client.list(BINDINGS)),
        reader.all("endpointslices", client.list(SLICES, Selection(space, labels=service))),
    )
    lease: Lease | None = await reader.one("lease", client.get(LEASES, settings.leader.lease, space))
    secret: Secret | None = await reader.one(f"secret {SECRET}", client.get(SECRETS, SECRET, space))
    deployments, daemon_sets, failures = await asyncio.gather(
        reader.all("deployments", client.list(DEPLOYMENTS.raw, Selection(space, labels=LABELS))),
        reader.all("daemonsets", client.list(DAEMON_SETS.raw, Selection(space, labels=LABELS))),
        reader.all("events", client.list(EVENTS, Selection(space, fields="reason=FailedCreate"))),
    )
    named = f"{GPU_SCALERS.plural}.{GPU_SCALERS.group}"
    definition: dict[str, Any] | None = await reader.one("definition", client.get(_DEFINITIONS, named))
    scalers, hpas, scaled_objects = await asyncio.gather(
        reader.all("gpuscalers", client.list(GPU_SCALERS)),
        reader.all("horizontalpodautoscalers", client.list(HPAS)),
        reader.all("scaledobjects", client.list(SCALED_OBJECTS)),
    )
    own = tuple(
        each
        for each in images or ()
        if each.metadata.namespace == space and each.metadata.labels.get(NAME) == "cotenant"
    )
    agents = await reader.states(own, "agent", settings.agent.port, AgentState)
    servers = await reader.states(own, "server", settings.webhook.port, ServerState)
    troubles = (installed.trouble, installed.webhook_trouble)
    return Facts(
        now=now,
        installed=installed,
        nodes=tuple(nodes or ()),
        pods=tuple(pods or ()),
        images=tuple(images or ()),
        own=own,
        namespaces=tuple(each.metadata for each in namespaces or ()),
        quotas=tuple(quotas or ()),
        lease=lease,
        slices=_by_name(slices),
        certificates=None if secret is None else secret.data,
        policies=_by_name(policies),
        bindings=_by_name(bindings),
        definition=definition,
        scalers=tuple(scalers or ()),
        hpas=tuple(hpas or ()),
        scaled_objects=tuple(scaled_objects or ()),
        workloads=_workloads(deployments, daemon_sets),
        not_created={
            each.involved_object.uid: each.message
            for each in sorted(failures or (), key=lambda event: event.last_seen)
        },
        schedulers=dict(configurations(maps or (), reader.unread.append)),
        own_schedulers=frozenset(own_places(maps or (), space)),
        states={pod.spec.node_name: told for pod, told in agents},
        ledgers={pod.metadata.name: told for pod, told in servers},
        ended_pods=_ended_pods(maps or (), space),
        version=version,
        unread=tuple(dict.fromkeys([*reader.unread, *filter(None, troubles)])),
    )


def _ended_pods(maps: Iterable[Generic], namespace: str) -> EndedPods | None:
    """Returns None also if it is not valid: the leader overwrites it."""
    for each in maps:
        if (each.metadata.namespace, each.metadata.name) == (namespace, statistics_map.NAME):
            with suppress(statistics_map.NotStatistics):
                return statistics_map.decode(each.data.get(statistics_map.KEY))
    return None


def _by_name(objects: list[dict[str, Any]] | None) -> dict[str, dict[str, Any]] | None:
    return None if objects is None else {each["metadata"]["name"]: each for each in objects}


def _workloads(
    deployments: list[dict[str, Any]] | None, daemon_sets: list[dict[str, Any]] | None
) -> tuple[dict[str, Any], ...] | None:
    """Returns both with their kinds, which items of a list lack; None if one of them may not be read."""
    if deployments is None or daemon_sets is None:
        return None
    return (
        *({**each, "kind": DEPLOYMENTS.kind} for each in deployments),
        *({**each, "kind": DAEMON_SETS.kind} for each in daemon_sets),
    )


class _Reader:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.unread: list[str] = []

    async def all(self, what: str, listing: Awaitable[Listing[T]]) -> list[T] | None:
        found = await self.one(what, listing)
        return None if found is None else found.items

    async def one(self, what: str, reading: Awaitable[T]) -> T | None:
        """None if it does not exist or may not be read. Raises Unreachable if there is no API server."""
        try:
            return await reading
        except NotFound:
            return None
        except Unreachable:
            raise
        except KubeError as error:
            self.unread.append(f"{what}: {error}")
            return None

    async def states(
        self, own: tuple[ImagePod, ...], component: str, port: int, type: type[T]
    ) -> list[tuple[ImagePod, T]]:
        """What pods of a component report at `/state`; read through the API server, which reaches them all.

        Pods that do not answer are left out.
        """
        turn = asyncio.Semaphore(_AT_ONCE)

        async def ask(pod: ImagePod) -> tuple[ImagePod, T] | None:
            meta = pod.metadata
            path = f"/api/v1/namespaces/{meta.namespace}/pods/https:{meta.name}:{port}/proxy/state"
            async with turn:
                try:
                    return pod, await self.client.get_path(
                        path, type, within=_STATE_TIMEOUT, limit=LARGEST_STATE
                    )
                except Forbidden as error:
                    self.unread.append(f"/state of {component}s: {error}")
                except Undecodable as error:
                    self.unread.append(f"/state of {meta.name}: {error}")
                except KubeError:
                    pass  # other checks find pods that are not ready
            return None

        asked = [each for each in own if each.metadata.labels.get(COMPONENT) == component]
        return [found for found in await asyncio.gather(*map(ask, asked)) if found is not None]

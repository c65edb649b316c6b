"""The part of the server that scales and releases, on a real API server."""

import asyncio
import contextlib
import time
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from aiohttp import web
from kube.apiserver import unused_ports

from cotenant.dialects import names
from cotenant.kube.api.errors import AlreadyExists, KubeError
from cotenant.kube.api.objects import Generic
from cotenant.kube.api.resources import DEPLOYMENTS, LEASES, PODS, REPLICATION_CONTROLLERS, Resource
from cotenant.kube.nodes.agent_reports import lease_of
from cotenant.kube.operating.waking import wake
from cotenant.kube.parts.settings import settings_type
from cotenant.kube.scaler.conflicts import HPAS
from cotenant.kube.scaler.definition import definition
from cotenant.kube.scaler.resource import GPU_SCALERS
from cotenant.kube.server.parts import PARTS
from cotenant.kube.server.server import Server
from cotenant.settings.loading import read_settings

pytestmark = pytest.mark.asyncio

DEFINITIONS = Resource(
    Generic,
    "CustomResourceDefinition",
    "customresourcedefinitions",
    group="apiextensions.k8s.io",
    namespaced=False,
)


@pytest_asyncio.fixture
async def start(client, namespace):
    """Starts a server; the returned function stops it as an upgrade does."""
    with contextlib.suppress(AlreadyExists):
        body = {"metadata": {"name": "gpuscalers.cotenant.dev"}, "spec": definition()}
        await client.create(DEFINITIONS, body)
    running: list[asyncio.Task[None]] = []

    async def stop():
        while running:
            task = running.pop()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def started():
        webhook, extender = unused_ports(2)
        data = {
            "namespace": namespace,
            "server": {"address": "127.0.0.1"},
            "leader": {"duration": "9s"},
            "webhook": {"port": webhook},
            "extender": {"port": extender},
            "scaler": {"poll": "1s", "allow_loopback": True},
        }
        server = Server(read_settings(settings_type(PARTS), data, {}), client, {}, PARTS)
        running.append(asyncio.create_task(server.run()))
        return stop

    yield started
    await stop()


@pytest_asyncio.fixture
async def queue():
    """A queue that answers over HTTP; a test sets its figures."""
    figures = {"depth": 0, "work": 0}
    (port,) = unused_ports(1)

    async def answer(_):
        return web.json_response(figures)

    app = web.Application()
    app.add_routes([web.get("/", answer)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield figures, {"http": {"url": f"http://127.0.0.1:{port}/", "path": "depth", "inFlight": "work"}}
    await runner.cleanup()


async def until(read, holds, within=90.0):
    async with asyncio.timeout(within):
        while True:
            with contextlib.suppress(KubeError):
                found = await read()
                if holds(found):
                    return found
            await asyncio.sleep(0.2)


def template(name):
    container = {"name": "main", "image": "x", "resources": {"limits": {names.GPU_MEMORY: "1Gi"}}}
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}


async def test_a_message_wakes_a_deployment_a_new_leader_goes_on_and_an_hpa_stops_it(
    start, client, namespace, queue
):
    figures, written = queue
    selector = {"matchLabels": {"app": "a"}}
    spec = {"replicas": 0, "selector": selector, "template": template("a")}
    await client.create(DEPLOYMENTS, {"metadata": {"name": "a"}, "spec": spec}, namespace)
    scaler = {
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
        "replicas": {"min": 0, "max": 3},
        "backlog": {"queue": written, "processingTime": {"fixed": "1s"}},
        "scaleDownThreshold": "1h",
    }
    stop = await start()
    await until(
        lambda: client.create(GPU_SCALERS, {"metadata": {"name": "a"}, "spec": scaler}, namespace),
        lambda _: True,
    )

    def read():
        return client.get(GPU_SCALERS, "a", namespace)

    def deployment():
        return client.get(DEPLOYMENTS, "a", namespace)

    idle = await until(read, lambda one: one.status.state == "Idle" and one.status.memory.get("idle"))
    assert (await deployment()).spec["replicas"] == 0
    await asyncio.sleep(4)
    assert (await read()).metadata.resource_version == idle.metadata.resource_version, "idle costs no write"

    figures["depth"] = 1
    await until(deployment, lambda one: one.spec["replicas"] == 1)
    woken = await until(read, lambda one: one.status.replicas == 1)
    conditions = {each.type: each for each in woken.status.conditions}
    assert conditions["Reconciling"].status == "True", "no pod of it is ready"
    assert woken.status.observed_generation == woken.metadata.generation

    await stop()
    before = await deployment()
    await start()
    await until(read, lambda one: one.status.message != woken.status.message)
    assert (await deployment()).spec["replicas"] == before.spec["replicas"]
    memory = (await read()).status.memory["decision"]
    assert memory["clock"] > 0, "what was learned is still there"

    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    hpa = {"scaleTargetRef": ref, "minReplicas": 1, "maxReplicas": 3, "metrics": [metric]}
    await client.create(HPAS, {"metadata": {"name": "h"}, "spec": hpa}, namespace)
    stalled = await until(
        read,
        lambda one: any(each.type == "Stalled" and each.status == "True" for each in one.status.conditions),
    )
    assert "HorizontalPodAutoscaler h scales Deployment a too" in stalled.status.message


async def test_an_idle_replication_controller_is_released_and_woken(start, client, namespace, node):
    note = {names.SCALE_DOWN_THRESHOLD: "20s"}
    body = {
        "metadata": {"name": "a", "annotations": note},
        "spec": {"replicas": 1, "selector": {"app": "a"}, "template": template("a")},
    }
    await client.create(REPLICATION_CONTROLLERS, body, namespace)
    at = (datetime.now(UTC) - timedelta(seconds=60)).strftime("%Y-%m-%dT%H:%M:%SZ")
    pod = template("a")
    pod["metadata"]["name"] = "a-1"
    pod["spec"]["nodeName"] = node.metadata.name
    await client.create(PODS, pod, namespace)
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": at}
        for kind in ("PodScheduled", "Ready", names.GPU_IDLE)
    ]
    status = {"phase": "Running", "conditions": conditions}
    await client.merge_patch(PODS, "a-1", {"status": status}, namespace, subresource="status")
    began = time.monotonic()
    await start()

    async def renew():
        while True:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            lease = {"metadata": {"name": lease_of(node.metadata.name)}, "spec": {"renewTime": now}}
            await client.apply(LEASES, lease, "test", namespace, force=True)
            await asyncio.sleep(2)

    agent = asyncio.create_task(renew())

    def read():
        return client.get(REPLICATION_CONTROLLERS, "a", namespace)

    try:
        released = await until(read, lambda one: one.spec["replicas"] == 0)
    finally:
        agent.cancel()
    assert time.monotonic() - began >= 5, "agents may have been unable to write that it works"
    assert released.metadata.annotations[names.RELEASED_REPLICAS] == "1"
    assert (await wake(client, "rc/a", namespace)).replicas == 1
    assert names.RELEASED_REPLICAS not in (await read()).metadata.annotations

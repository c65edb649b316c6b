"""The first list of a big cluster, page by page: the scheduler cannot start before it is read."""

import asyncio
import json
import threading

import pytest
from aiohttp import web

from cotenant.kube.api.auth.access import Access
from cotenant.kube.api.client import PAGE, Client
from cotenant.kube.api.resources import PODS
from cotenant.kube.api.watcher import Watcher

PODS_IN_CLUSTER = 10_000


def realistic_pod(n):
    """As an API server lists it: 5 KB, most of which nobody here reads."""
    moment = "2030-01-01T00:00:00Z"
    managed = {
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:status": {f"f:{i}": {"f:lastProbeTime": {}, "f:type": {}, ".": {}} for i in range(24)}
        },
        "manager": "kubelet",
        "operation": "Update",
        "subresource": "status",
        "time": moment,
    }
    container = {
        "name": "main",
        "image": "registry.example/team/model-server:v1.2.3",
        "command": ["python", "-m", "serve", "--port", "8080"],
        "env": [{"name": f"SETTING_{i}", "value": f"value {i}"} for i in range(8)],
        "resources": {
            "limits": {"cotenant.dev/gpu-memory": "4Gi", "cpu": "2", "memory": "8Gi"},
            "requests": {"cotenant.dev/gpu-memory": "4Gi", "cpu": "500m", "memory": "8Gi"},
        },
        "volumeMounts": [
            {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "kube-api-access"}
        ],
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    conditions = [
        {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": moment}
        for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]
    return {
        "metadata": {
            "name": f"model-server-{n}",
            "namespace": f"team-{n % 50}",
            "uid": f"00000000-0000-0000-0000-{n:012d}",
            "resourceVersion": str(1000 + n),
            "creationTimestamp": moment,
            "labels": {"app": "model-server", "pod-template-hash": "5d4f8c7b9"},
            "annotations": {
                "cotenant.dev/grant": json.dumps({"uid": n, "containers": {"main": {"GPU-1": 4 << 30}}})
            },
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
            ],
            "managedFields": [managed, managed],
        },
        "spec": {
            "nodeName": f"node-{n % 500}",
            "schedulerName": "cotenant",
            "priority": 0,
            "containers": [container],
            "volumes": [
                {"name": "kube-api-access", "projected": {"sources": [{"configMap": {"name": "ca"}}]}}
            ],
            "tolerations": [
                {"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists"}
            ],
        },
        "status": {
            "phase": "Running",
            "conditions": conditions,
            "containerStatuses": [
                {
                    "name": "main",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": moment}},
                }
            ],
            "podIPs": [{"ip": "10.0.0.1"}],
        },
    }


@pytest.fixture(scope="module")
def big_cluster():
    """Served from a thread of its own, so that only the client's work is measured."""
    pages = [
        json.dumps(
            {
                "metadata": {
                    "resourceVersion": "99999",
                    "continue": str(first + PAGE) if first + PAGE < PODS_IN_CLUSTER else "",
                },
                "items": [realistic_pod(n) for n in range(first, first + PAGE)],
            }
        ).encode()
        for first in range(0, PODS_IN_CLUSTER, PAGE)
    ]
    started, stopping, address = threading.Event(), threading.Event(), []

    async def handle(request):
        while "watch" in request.query and not stopping.is_set():  # noqa: ASYNC110 -- set by another thread
            await asyncio.sleep(0.05)
        return web.Response(
            body=pages[int(request.query.get("continue", "0")) // PAGE], content_type="application/json"
        )

    async def serve():
        app = web.Application()
        app.router.add_get("/api/v1/pods", handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        started.set()
        while not stopping.is_set():  # noqa: ASYNC110 -- set by another thread
            await asyncio.sleep(0.05)
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(10)
    assert 4_000 < len(pages[0]) / PAGE < 8_000
    yield address[0]
    stopping.set()
    thread.join(10)


@pytest.mark.asyncio
async def test_ten_thousand_pods_are_listed_and_told_once_each(big_cluster):
    async with Client(Access(big_cluster)) as client:
        watcher, told = Watcher(client, PODS), []
        watcher.store.subscribe(told.append)
        task = asyncio.create_task(watcher.run())
        await watcher.wait_until_synced(30)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(told) == len(watcher.store) == PODS_IN_CLUSTER
        assert watcher.store.named("model-server-9999", "team-49").spec.node_name == "node-499"

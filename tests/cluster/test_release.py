"""An idle worker gives its card to a colleague who waits, and comes back when there is work: on a real kubelet.

Two cards. A's worker holds one and idles; B needs both. The server that leads is killed in the middle: nothing
wakes, and no timer begins anew.
"""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import container, pod, pods_of, running
from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.cluster import Cluster

from cotenant.kube.scaler.definition import definition

pytestmark = pytest.mark.timeout(400)
THRESHOLD = 20


@pytest.fixture(scope="module")
def cotenant(start_cotenant, cluster: Cluster) -> Installation:
    started: Installation = start_cotenant(servers=2, settings={"scaler": {"poll": "1s"}})
    started.start_agent(cluster.node.name, "2x16GiB", idle="3s")
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gpuscalers.cotenant.dev"},
        "spec": definition(),
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    try:
        started.api.create(path, crd)
    except Refused as refused:
        if refused.code != 409:
            raise
    return started


@pytest.fixture
def queue() -> Iterator[dict[str, Any]]:
    """A queue that answers over HTTP; a test sets its figures."""
    figures: dict[str, Any] = {"depth": 0, "work": 0}

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(figures).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    figures["port"] = server.server_port
    yield figures
    server.shutdown()
    server.server_close()


def template(cluster: Cluster, name: str) -> Object:
    body = pod(name, container(image=cluster.python_image(), program="worker.py", whole=1))
    return {"metadata": {"labels": {"app": name}}, "spec": {**body["spec"], "restartPolicy": "Always"}}


def replicas_of(api: Api, namespace: str, name: str) -> list[Object]:
    return api.items(pods_of(namespace), labelSelector=f"app={name}")


def until_one_runs(api: Api, namespace: str, name: str) -> Object:
    api.until(
        f"{pods_of(namespace)}?labelSelector=app={name}",
        lambda seen: any(each["status"].get("phase") == "Running" for each in seen["items"]),
        90,
    )
    return replicas_of(api, namespace, name)[0]


def waits(api: Api, cluster: Cluster, namespace: str) -> None:
    api.create(
        pods_of(namespace), pod("b", container(image=cluster.python_image(), program="worker.py", whole=2))
    )
    api.until(
        f"/api/v1/namespaces/{namespace}/events",
        lambda seen: any(
            each["involvedObject"]["name"] == "b" and "1st in line" in each.get("message", "")
            for each in seen["items"]
        ),
        60,
    )


def kill_leader(cotenant: Installation) -> None:
    leader = cotenant.leader()
    assert leader is not None
    leader.kill()
    leader.start()


def events(api: Api, namespace: str) -> list[tuple[str, str, str]]:
    return [
        (each["involvedObject"]["name"], each["reason"], each.get("message", ""))
        for each in api.items(f"/api/v1/namespaces/{namespace}/events")
    ]


def seen_idle_for(pod_: Object) -> float:
    from datetime import datetime

    found = next(each for each in pod_["status"]["conditions"] if each["type"] == "cotenant.dev/GPUIdle")
    assert found["status"] == "True"
    return time.time() - datetime.fromisoformat(found["lastTransitionTime"]).timestamp()


@pytest.mark.parametrize("wanted", [False, True])
def test_by_the_annotation_on_a_replication_controller(
    cotenant: Installation, cluster: Cluster, api: Api, namespace: str, wanted: bool
):
    """Also by the shorter threshold alone, which counts because B could start."""
    notes = {"cotenant.dev/scale-down-threshold": "1h" if wanted else f"{THRESHOLD}s"}
    if wanted:
        notes["cotenant.dev/scale-down-threshold-when-others-wait"] = f"{THRESHOLD}s"
    path = f"/api/v1/namespaces/{namespace}/replicationcontrollers"
    spec = {"replicas": 1, "selector": {"app": "a"}, "template": template(cluster, "a")}
    body = {"apiVersion": "v1", "kind": "ReplicationController"}
    api.create(path, {**body, "metadata": {"name": "a", "annotations": notes}, "spec": spec})
    until_one_runs(api, namespace, "a")
    waits(api, cluster, namespace)
    kill_leader(cotenant)
    last = replicas_of(api, namespace, "a")[0]
    while api.get(f"{path}/a")["spec"]["replicas"]:
        last = (replicas_of(api, namespace, "a") or [last])[0]
        time.sleep(0.2)
    assert seen_idle_for(last) >= THRESHOLD - 1
    running(api, namespace, "b", 120)
    assert api.get(f"{path}/a")["metadata"]["annotations"]["cotenant.dev/released-replicas"] == "1"
    if wanted:
        told = events(api, namespace)
        assert any(who == "b" and "ReplicationController" in text for who, _, text in told)
        assert any(who.startswith("a-") and f"{namespace}/b" in text for who, _, text in told)
    time.sleep(5)
    assert api.get(f"{path}/a")["spec"]["replicas"] == 0, "nothing wakes it"


def test_by_a_gpu_scaler_and_a_message_brings_it_back_when_there_is_room(
    cotenant: Installation, cluster: Cluster, api: Api, namespace: str, queue: dict[str, Any]
):
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    scalers = f"/apis/cotenant.dev/v1alpha1/namespaces/{namespace}/gpuscalers"
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template(cluster, "a")}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}
    api.create(path, body)
    url = f"http://127.0.0.1:{queue['port']}/"
    scaler = {
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
        "replicas": {"min": 0, "max": 2},
        "backlog": {"queue": {"http": {"url": url, "path": "depth", "inFlight": "work"}}},
        "scaleDownThreshold": f"{THRESHOLD}s",
    }
    meta = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "GpuScaler", "metadata": {"name": "a"}}
    api.create(scalers, {**meta, "spec": scaler})
    until_one_runs(api, namespace, "a")
    waits(api, cluster, namespace)
    kill_leader(cotenant)
    api.until(f"{path}/a", lambda seen: seen["spec"]["replicas"] == 0, 120)
    running(api, namespace, "b", 120)
    queue["depth"] = 1
    api.until(f"{path}/a", lambda seen: seen["spec"]["replicas"] == 1, 60)
    api.until(f"{scalers}/a", lambda seen: "1st in line" in seen["status"]["message"], 60)
    api.delete(f"{pods_of(namespace)}/b", gracePeriodSeconds=1)
    until_one_runs(api, namespace, "a")

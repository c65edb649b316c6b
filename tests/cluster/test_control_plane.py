"""The control plane stands, schedules on hollow nodes, obeys an extender, and lives on when a part of it is killed."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cluster.testbed import binaries, hollow, places
from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.component import Component, answers
from cluster.testbed.controlplane import ControlPlane
from cluster.testbed.hollowkubelet import HollowKubelet

GPU_MEMORY = "cotenant.dev/gpu-memory"


def pod(name: str, gpu_memory: str | None = None) -> Object:
    container: Object = {"name": "main", "image": "none"}
    if gpu_memory:
        container["resources"] = {"limits": {GPU_MEMORY: gpu_memory}}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 30},
    }


def test_the_api_server_is_the_version_that_was_asked_for(api: Api):
    assert api.get("/version")["gitVersion"] == f"v{places.version()}"


def test_a_pod_is_scheduled_on_a_hollow_node_and_runs(api: Api, namespace: str, hollow_nodes):
    hollow_nodes([hollow.node("hollow-small"), hollow.node("hollow-gpu", {GPU_MEMORY: "80Gi"})])
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api.create(pods, pod("trainer", "4Gi"))
    running = api.until(f"{pods}/trainer", lambda seen: seen["status"]["phase"] == "Running")
    assert running["spec"]["nodeName"] == "hollow-gpu"
    assert running["status"]["containerStatuses"][0]["ready"]


def test_a_pod_that_fits_nowhere_waits(api: Api, namespace: str, hollow_nodes):
    hollow_nodes([hollow.node("hollow-gpu", {GPU_MEMORY: "80Gi"})])
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api.create(pods, pod("giant", "81Gi"))
    api.until(
        f"{pods}/giant", lambda seen: "Insufficient" in json.dumps(seen["status"].get("conditions", []))
    )


def test_a_deleted_pod_of_a_hollow_node_is_gone(api: Api, namespace: str, hollow_nodes):
    hollow_nodes([hollow.node("hollow-one")])
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api.create(pods, pod("short"))
    api.until(f"{pods}/short", lambda seen: seen["status"]["phase"] == "Running")
    api.delete(f"{pods}/short")
    api.until_gone(f"{pods}/short", seconds=10)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_the_hollow_kubelet_never_sets_a_pod_that_has_ended_back_to_running(
    api: Api, namespace: str, hollow_nodes, phase: str
):
    """It had seen the pod Pending, and comes to it late."""
    hollow_nodes([hollow.node("hollow-one")])
    pods = f"/api/v1/namespaces/{namespace}/pods"
    seen = api.create(pods, pod("short"))
    api.until(f"{pods}/short", lambda seen: seen["status"]["phase"] == "Running")
    api.patch(f"{pods}/short/status", {"status": {"phase": phase}})
    with pytest.raises(Refused) as refused:
        HollowKubelet(api)._act(seen)
    assert refused.value.code == 409
    assert api.get(f"{pods}/short")["status"]["phase"] == phase


def test_hundreds_of_hollow_nodes_are_ready_at_once(api: Api, hollow_nodes):
    names = {f"hollow-{number}" for number in range(300)}
    hollow_nodes([hollow.node(name, {GPU_MEMORY: "640Gi"}) for name in names])
    found = [each for each in api.items("/api/v1/nodes") if each["metadata"]["name"] in names]
    assert len(found) == 300
    assert not any(each["spec"].get("taints") for each in found)
    assert {each["status"]["allocatable"][GPU_MEMORY] for each in found} == {"640Gi"}


def test_the_capacity_of_a_hollow_node_changes_through_its_status(api: Api, namespace: str, hollow_nodes):
    hollow_nodes([hollow.node("hollow-late")])
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api.create(pods, pod("early", "4Gi"))
    api.until(f"{pods}/early", lambda seen: seen["status"].get("conditions"))
    hollow.set_capacity(api, "hollow-late", {GPU_MEMORY: "80Gi"})
    api.until(f"{pods}/early", lambda seen: seen["spec"].get("nodeName") == "hollow-late")


class OnlyTheLast(BaseHTTPRequestHandler):
    """An extender that leaves the node whose name sorts last."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        names = sorted(asked["NodeNames"])
        refused = dict.fromkeys(names[:-1], "not the last")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"NodeNames": names[-1:], "FailedNodes": refused}).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def extender(control_plane: ControlPlane) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), OnlyTheLast)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    control_plane.schedule_with()


def test_the_scheduler_asks_the_extender_that_it_is_configured_with(
    control_plane: ControlPlane, api: Api, namespace: str, hollow_nodes, extender: str
):
    control_plane.schedule_with(
        extenders=[{"urlPrefix": extender, "filterVerb": "filter", "nodeCacheCapable": True, "weight": 1}]
    )
    hollow_nodes([hollow.node(f"hollow-{letter}") for letter in "abcde"])
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for number in range(3):
        api.create(pods, pod(f"pod-{number}"))
    for number in range(3):
        seen = api.until(f"{pods}/pod-{number}", lambda each: each["spec"].get("nodeName"))
        assert seen["spec"]["nodeName"] == "hollow-e"


@pytest.fixture
def schedule_with_null_extender(control_plane: ControlPlane) -> Iterator[Callable[[list[str]], None]]:
    started: list[Component] = []

    def start(groups: list[str]) -> None:
        pair = control_plane.credentials("null-extender", groups)
        trusted = control_plane.authority.pair.certificate
        flags = [f"-ca={trusted}", f"-certificate={pair.certificate}", f"-key={pair.key}"]
        ready = answers(http.client.HTTPConnection("127.0.0.1:8888"), "/healthz")
        started.append(Component("null-extender", [binaries.null_extender(), *flags], ready=ready))
        started[0].start()
        started[0].wait()
        verbs = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "bindVerb": "bind"}
        extender = {"urlPrefix": "http://127.0.0.1:8888", "nodeCacheCapable": True, "weight": 1, **verbs}
        control_plane.schedule_with(extenders=[extender])

    yield start
    started[0].stop()
    control_plane.schedule_with()


def test_the_null_extender_binds(api: Api, namespace: str, hollow_nodes, schedule_with_null_extender):
    schedule_with_null_extender(["system:masters"])
    hollow_nodes([hollow.node(f"hollow-{letter}") for letter in "ab"])
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api.create(pods, pod("bound"))
    api.until(f"{pods}/bound", lambda seen: seen["status"]["phase"] == "Running")


def test_without_rights_the_null_extender_cannot_bind_so_nobody_else_does(
    api: Api, namespace: str, hollow_nodes, schedule_with_null_extender
):
    schedule_with_null_extender([])
    hollow_nodes([hollow.node("hollow-a")])
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api.create(pods, pod("unbound"))
    seen = api.until(f"{pods}/unbound", lambda each: "null-extender" in " ".join(_conditions(each)))
    assert "cannot create resource" in " ".join(_conditions(seen))
    assert "nodeName" not in seen["spec"]


def _conditions(seen: Object) -> list[str]:
    return [each.get("message", "") for each in seen["status"].get("conditions", [])]


def test_a_killed_api_server_comes_back_with_all_it_knew(
    control_plane: ControlPlane, api: Api, namespace: str
):
    api.create(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "kept"}})
    control_plane.apiserver.kill()
    with pytest.raises(OSError, match="refused"):
        api.get("/readyz")
    control_plane.apiserver.start()
    control_plane.apiserver.wait()
    assert api.get(f"/api/v1/namespaces/{namespace}/configmaps/kept")["metadata"]["name"] == "kept"


def test_a_user_without_rights_is_refused(control_plane: ControlPlane):
    with pytest.raises(Refused, match="403"):
        control_plane.client("someone").get("/api/v1/nodes")


def test_kubectl_reads_what_the_api_server_has(control_plane: ControlPlane, namespace: str):
    assert f"namespace/{namespace}" in control_plane.kubectl("get", "namespaces", "-o", "name")

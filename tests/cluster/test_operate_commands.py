"""status, explain and drain on a real API server, with a server of Cotenant's and hollow nodes."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from cluster.cotenant.commands import Commands, published_settings
from cluster.cotenant.gpunodes import GIB, gpu_node, uuid_of
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import bound, container, deployment, from_guide, pod, pods_of, running
from cluster.testbed.api import Api, Object
from cluster.testbed.controlplane import ControlPlane

pytestmark = pytest.mark.timeout(180)
MIB = 2**20
SETTINGS: dict[str, Any] = {"line": {"patience": "3s"}, "dialects": {"aliyun": {"unit": "MiB"}}}

GUIDE = """\
NAME           IPADDRESS     GPU0(Allocated MiB/Total MiB)  GPU Memory
i-2ze0gl97vw1  192.168.0.72  7606/7606                      7606/7606
i-2ze0gl97vw2  192.168.0.73  3803/7606                      3803/7606
i-2ze0gl97vw3  192.168.0.71  7606/7606                      7606/7606
---------------------------------------------------------------------------------------
Allocated/Total GPU Memory In Cluster:
19015/22818 (83%)
"""


@pytest.fixture(scope="module")
def cotenant(start_cotenant, control_plane: ControlPlane) -> Iterator[Installation]:
    started: Installation = start_cotenant(servers=1, settings=SETTINGS)
    with published_settings(control_plane, SETTINGS):
        yield started


@pytest.fixture(autouse=True)
def _leaves_nobody_in_line(api: Api, namespace: str) -> Iterator[None]:
    """The line is everybody's: a namespace that is deleted keeps its pods for a while."""
    yield
    api.request("DELETE", f"/apis/apps/v1/namespaces/{namespace}/deployments")
    api.request("DELETE", pods_of(namespace), {"gracePeriodSeconds": 0})
    api.until(pods_of(namespace), lambda seen: not seen["items"])


def with_address(node: Object, address: str) -> Object:
    node["status"]["addresses"] = [{"type": "InternalIP", "address": address}]
    return node


def scheduled(api: Api, name: str, *, possible: bool) -> None:
    api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": not possible}})


def refused(api: Api, namespace: str, name: str) -> None:
    api.until(
        f"{pods_of(namespace)}/{name}",
        lambda seen: any(
            each["type"] == "PodScheduled" and each["status"] == "False"
            for each in seen["status"].get("conditions", [])
        ),
    )


def explained(commands: Commands, namespace: str, what: str) -> Object:
    found: Object = commands.json("explain", what, "-n", namespace)[0]
    return found


def test_the_guides_nodes_and_deployment_give_the_guides_table(
    cotenant: Installation, commands: Commands, api: Api, namespace: str, hollow_nodes
):
    names = [f"hollow-97vw-{number}" for number in (1, 2, 3)]
    addresses = ["192.168.0.72", "192.168.0.73", "192.168.0.71"]
    hollow_nodes(
        with_address(gpu_node(name, [7606 * MIB], dialects=cotenant.dialects), address)
        for name, address in zip(names, addresses, strict=True)
    )
    (deployment,) = from_guide("aliyun-gpushare.yaml", "none")
    for open_, replicas in ((names[0], 2), (names[2], 4), (names[1], 5)):
        for name in names:
            scheduled(api, name, possible=name == open_)
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        if replicas == 2:
            deployment["spec"]["replicas"] = replicas
            api.create(path, deployment)
        else:
            api.patch(f"{path}/binpack-1", {"spec": {"replicas": replicas}})
        api.until(f"{path}/binpack-1", lambda seen, n=replicas: seen["status"].get("readyReplicas") == n)
    printed = commands.says("status")
    for name, theirs in zip(names, ("i-2ze0gl97vw1", "i-2ze0gl97vw2", "i-2ze0gl97vw3"), strict=True):
        printed = printed.replace(name, theirs)
    assert printed == GUIDE
    one = commands.says("status", names[1])
    assert "3803/7606 (50%)" in one
    assert names[0] not in one
    found = commands.json("status")
    assert found["granted"] == 5 * 3803 * MIB
    assert len(found["nodes"][0]["gpus"][0]["pods"]) == 2
    assert namespace in commands.says("status", "-d")


def test_nodes_of_1_2_and_8_cards_are_aligned_and_kubectl_finds_the_program(
    commands: Commands, hollow_nodes, tmp_path
):
    hollow_nodes(
        [
            gpu_node("hollow-one", [80 * GIB]),
            gpu_node("hollow-two-cards", [80 * GIB] * 2),
            gpu_node("hollow-eight", [24 * GIB] * 8),
        ]
    )
    done = commands.as_plugin(tmp_path, "status")
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()[:4]
    for at in range(8):
        column = head.index(f"GPU{at}(")
        assert all(row[column - 1] == " " and row[column] != " " for row in rows)
    help_ = commands.as_plugin(tmp_path, "status", "--help").stdout
    assert "Usage: kubectl cotenant status" in help_


def test_a_watch_shows_what_changes(
    commands: Commands, control_plane: ControlPlane, api: Api, hollow_nodes, namespace
):
    import os
    import subprocess
    import sys

    hollow_nodes([gpu_node("hollow-w", [16 * GIB])])
    environ = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig())}
    line = [sys.executable, "-m", "cotenant.cli.main", "status", "-w"]
    with subprocess.Popen(line, env=environ, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        try:
            assert any("0/16 (0%)" in each for each in iter(watching.stdout.readline, ""))
            api.create(pods_of(namespace), pod("p", container(memory="4Gi")))
            assert any("4/16 (25%)" in each for each in iter(watching.stdout.readline, ""))
        finally:
            watching.terminate()


def test_no_card_is_big_enough_anywhere(commands: Commands, api: Api, namespace: str, hollow_nodes):
    hollow_nodes([gpu_node("hollow-a", [16 * GIB] * 2)])
    api.create(pods_of(namespace), pod("giant", container(memory="24Gi")))
    refused(api, namespace, "giant")
    said = explained(commands, namespace, "giant")
    assert said["reason"] == "too-big"
    assert said["sentence"].startswith("24Gi asked, the largest GPU has 16Gi (GPU 0 of hollow-a")
    assert "gpu-count.cotenant.dev" in said["sentence"]
    assert "create the pod anew" in said["next"]


def test_room_comes_only_when_pods_end(commands: Commands, api: Api, namespace: str, hollow_nodes):
    # Those of the tests before it leave the line when their namespace is gone.
    api.until("/api/v1/pods?fieldSelector=status.phase%3DPending", lambda seen: not seen["items"])
    hollow_nodes([gpu_node("hollow-a", [16 * GIB])])
    api.create(pods_of(namespace), pod("first", container(memory="12Gi")))
    running(api, namespace, "first")
    api.create(pods_of(namespace), pod("second", container(memory="8Gi")))
    refused(api, namespace, "second")
    said = explained(commands, namespace, "second")
    assert said["reason"] == "no-room"
    assert "8Gi asked, largest free room 4Gi on GPU 0 of hollow-a" in said["sentence"]
    assert said["sentence"].endswith("waiting, 1st in line")
    assert said["next"] == f"wait: it is placed by itself when {namespace}/first ends on hollow-a"
    assert "if it asked for at most 4Gi, on hollow-a" in said["openings"]
    assert commands.says("explain", "-n", namespace).splitlines()[1].split()[:2] == [
        "1",
        f"{namespace}/second",
    ]
    api.delete(f"{pods_of(namespace)}/first")
    bound(api, namespace, "second", 20)
    ran = explained(commands, namespace, "second")
    assert (ran["state"], ran["node"], ran["enforcer"]) == ("running", "hollow-a", "shim")
    assert ran["grant"][0]["gpus"][0]["uuid"] == uuid_of("hollow-a", 0)


def test_the_line_is_explained_by_where_each_pod_may_go(
    commands: Commands, api: Api, namespace: str, hollow_nodes
):
    """Node selectors, affinity and taints count for the whole line as they do for one pod."""
    hollow_nodes([gpu_node("hollow-a", [16 * GIB]), gpu_node("hollow-b", [16 * GIB])])
    api.patch("/api/v1/nodes/hollow-a", {"metadata": {"labels": {"zone": "a"}}})
    api.create(pods_of(namespace), pod("first", container(memory="12Gi"), nodeSelector={"zone": "a"}))
    running(api, namespace, "first")
    taint = {"key": "team", "value": "other", "effect": "NoSchedule"}
    api.patch("/api/v1/nodes/hollow-b", {"spec": {"taints": [taint]}})
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    everywhere = [{"operator": "Exists"}]
    bodies = {
        "selects": {"nodeSelector": {"zone": "a"}, "tolerations": everywhere},
        "prefers": {"affinity": affinity, "tolerations": everywhere},
        "repelled": {},
    }
    for name, spec in bodies.items():
        api.create(pods_of(namespace), pod(name, container(memory="8Gi"), **spec))
        refused(api, namespace, name)
    line = {each["target"]: each for each in commands.json("explain", "-A")}
    for name in bodies:
        alone = explained(commands, namespace, name)
        of_line = line[f"pod {namespace}/{name}"]
        assert (of_line["reason"], of_line["sentence"]) == ("no-room", alone["sentence"])


def test_room_is_held_for_the_head_of_the_line(commands: Commands, api: Api, namespace: str, hollow_nodes):
    hollow_nodes([gpu_node("hollow-a", [16 * GIB])])
    api.create(pods_of(namespace), pod("first", container(memory="10Gi")))
    running(api, namespace, "first")
    api.create(pods_of(namespace), pod("big", container(memory="16Gi")))
    refused(api, namespace, "big")
    time.sleep(6)  # its patience, and a look of the server's
    api.create(pods_of(namespace), pod("small", container(memory="2Gi")))
    refused(api, namespace, "small")
    said = explained(commands, namespace, "small")
    assert said["reason"] == "held"
    assert f"GPU 0 of hollow-a has room but is held for {namespace}/big, 1st in line" in said["sentence"]
    assert said["place"] == 2
    assert f"{namespace}/big runs" in said["next"]
    assert "held for a pod ahead in the line" in said["scheduler"], "as the server itself sees it"


def test_the_model_is_not_there(commands: Commands, api: Api, namespace: str, hollow_nodes):
    hollow_nodes([gpu_node("hollow-a", [16 * GIB])])
    wish = {"cotenant.dev/gpu-model": "H200"}
    api.create(pods_of(namespace), pod("picky", container(memory="2Gi"), annotations=wish))
    refused(api, namespace, "picky")
    said = explained(commands, namespace, "pod/picky")
    assert said["reason"] == "model-missing"
    assert "model H200 asked" in said["sentence"]
    assert "there is NVIDIA A100-SXM4-80GB" in said["sentence"]
    assert "cotenant.dev/gpu-model" in said["next"]


def test_the_node_with_room_is_not_ready(commands: Commands, api: Api, namespace: str, hollow_nodes):
    hollow_nodes([gpu_node("hollow-a", [16 * GIB])])
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "KubeletNotReady",
        "message": "PLEG is not healthy",
    }
    api.patch("/api/v1/nodes/hollow-a/status", {"status": {"conditions": [condition]}}, "strategic")
    api.until("/api/v1/nodes/hollow-a", lambda seen: seen["spec"].get("taints"))
    api.create(pods_of(namespace), pod("p", container(memory="2Gi")))
    refused(api, namespace, "p")
    said = explained(commands, namespace, "p")
    assert said["reason"] == "not-ready"
    assert "node hollow-a has the room, but it is not Ready" in said["sentence"]
    assert "PLEG is not healthy" in said["sentence"]
    assert "kubectl describe node hollow-a" in said["next"]


def until_reason(commands: Commands, namespace: str, what: str, reason: str, seconds: float = 30) -> Object:
    end = time.monotonic() + seconds
    while True:
        said = explained(commands, namespace, what)
        if said["reason"] == reason or time.monotonic() > end:
            assert said["reason"] == reason, said
            return said
        time.sleep(0.5)


def test_a_quota_keeps_pods_from_being_created(commands: Commands, api: Api, namespace: str, hollow_nodes):
    hollow_nodes([gpu_node("hollow-a", [16 * GIB])])
    quota = {"metadata": {"name": "gpu"}, "spec": {"hard": {"requests.cotenant.dev/gpu-memory": "10Gi"}}}
    api.create(f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
    api.until(f"/api/v1/namespaces/{namespace}/resourcequotas/gpu", lambda seen: seen["status"].get("hard"))
    api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment("web", 2, "8Gi"))
    said = until_reason(commands, namespace, "deployment/web", "quota")
    assert f"the quota gpu of namespace {namespace} is used up" in said["sentence"]
    assert "8Gi of requests.cotenant.dev/gpu-memory asked, 8Gi of 10Gi in use" in said["sentence"]
    assert f"kubectl edit quota -n {namespace} gpu" in said["next"]
    assert explained(commands, namespace, "web")["reason"] == "quota", "a bare name finds the workload"
    raised = {"spec": {"hard": {"requests.cotenant.dev/gpu-memory": "12Gi"}}}
    api.patch(f"/api/v1/namespaces/{namespace}/resourcequotas/gpu", raised)
    api.until(
        f"/api/v1/namespaces/{namespace}/resourcequotas/gpu",
        lambda seen: seen["status"]["hard"]["requests.cotenant.dev/gpu-memory"] == "12Gi",
    )
    assert "8Gi of 12Gi in use" in explained(commands, namespace, "web")["sentence"], "as it is now"


def test_the_webhook_is_down(
    cotenant: Installation, commands: Commands, api: Api, namespace: str, hollow_nodes
):
    hollow_nodes([gpu_node("hollow-a", [16 * GIB])])
    cotenant.servers[0].stop()
    try:
        api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment("web", 1, "8Gi"))
        said = until_reason(commands, namespace, "deploy/web", "webhook-down", 60)
        assert "Cotenant's webhook does not answer" in said["sentence"]
        assert "cotenant doctor --cluster" in said["next"]
        assert "status" in commands.says("status", "--help")
        assert "hollow-a" in commands.says("status"), "which needs no server"
    finally:
        cotenant.servers[0].start()
        cotenant.wait()


def test_a_pod_without_gpu_a_gated_one_and_none_at_all(
    commands: Commands, api: Api, namespace: str, hollow_nodes
):
    hollow_nodes([gpu_node("hollow-a", [16 * GIB])])
    api.create(pods_of(namespace), pod("plain", container()))
    assert explained(commands, namespace, "plain")["state"] == "not-gpu"
    api.create(
        pods_of(namespace), pod("gated", container(memory="1Gi"), schedulingGates=[{"name": "e.org/x"}])
    )
    assert explained(commands, namespace, "gated")["reason"] == "gated"
    done = commands.run("explain", "nobody", "-n", namespace)
    assert done.returncode == 1
    assert f"no pod or workload nobody in namespace {namespace}" in done.stderr


def test_a_drained_card_takes_no_new_grant_until_it_is_given_back(
    commands: Commands, api: Api, namespace: str, hollow_nodes
):
    hollow_nodes([gpu_node("hollow-a", [16 * GIB] * 2)])
    api.create(pods_of(namespace), pod("there", container(memory="16Gi")))
    card = json.loads(running(api, namespace, "there")["metadata"]["annotations"]["cotenant.dev/grant"])
    used = card["slots"][0]["shares"][0]["uuid"]
    free = next(uuid_of("hollow-a", index) for index in (0, 1) if uuid_of("hollow-a", index) != used)
    assert f"still there until they end: {namespace}/there (16Gi)" in commands.says("drain", used)
    first = commands.says("drain", free)
    assert "nobody is on it" in first
    assert "already drained" in commands.says("drain", free)
    api.create(pods_of(namespace), pod("waits", container(memory="4Gi")))
    refused(api, namespace, "waits")
    said = explained(commands, namespace, "waits")
    assert any("were not drained: cotenant undrain hollow-a/" in each for each in said["openings"])
    assert "is drained and takes no new grant" in commands.says("status", "-d")
    index = 0 if free == uuid_of("hollow-a", 0) else 1
    assert "in service" in commands.says("undrain", f"hollow-a/{index}")
    bound(api, namespace, "waits", 20)
    assert commands.json("undrain", used)["changed"] is True
    node = api.get("/api/v1/nodes/hollow-a")
    assert "cotenant.dev/drained" not in node["metadata"]["annotations"]


def test_who_may_not_see_the_cluster_is_told_what_is_missing(
    cotenant: Installation, control_plane: ControlPlane, api: Api, namespace: str, hollow_nodes
):
    hollow_nodes([gpu_node("hollow-a", [16 * GIB])])
    binding = {
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "viewer"}],
    }
    api.create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding)
    api.create(pods_of(namespace), pod("giant", container(memory="24Gi")))
    refused(api, namespace, "giant")
    viewer = Commands(control_plane, "viewer", ())
    said = explained(viewer, namespace, "giant")
    assert said["sentence"].startswith("0/1 nodes are available")
    assert "cotenant explain" in said["next"]
    done = viewer.run("status")
    assert done.returncode == 1
    assert "not allowed" in done.stderr
    assert "ask an administrator" in done.stderr


def test_a_cluster_that_does_not_answer_is_told_with_the_next_step(
    commands: Commands, control_plane: ControlPlane, tmp_path
):
    config = json.loads(control_plane.kubeconfig().read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    file = tmp_path / "config"
    file.write_text(json.dumps(config))
    done = commands.run("status", "--kubeconfig", str(file))
    assert done.returncode == 1
    assert "is the API server at https://127.0.0.1:1 up?" in done.stderr
    assert commands.run("status", "--context", "nowhere").returncode == 2

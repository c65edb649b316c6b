"""A real kubelet runs real containers from images that no registry ever saw."""

import time
from pathlib import Path

import pytest
from cluster.testbed.api import Object
from cluster.testbed.cluster import Cluster
from cluster.testbed.controlplane import ControlPlane

CALL_THE_API = """
import json, ssl, urllib.request
account = "/var/run/secrets/kubernetes.io/serviceaccount"
request = urllib.request.Request("https://10.96.0.1/version")
request.add_header("Authorization", "Bearer " + open(account + "/token").read())
trusted = ssl.create_default_context(cafile=account + "/ca.crt")
print(json.load(urllib.request.urlopen(request, context=trusted))["gitVersion"])
"""


def pod(cluster: Cluster, name: str, *command: str, **security: object) -> Object:
    container = {
        "name": "main",
        "image": cluster.python_image(),
        "imagePullPolicy": "Never",
        "command": list(command),
        "securityContext": security,
    }
    return {
        "metadata": {"name": name},
        "spec": {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1},
    }


def output(cluster: Cluster, namespace: str, made: Object) -> str:
    """What it said, once it has ended well."""
    name = made["metadata"]["name"]
    cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", made)
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    ended = cluster.api.until(path, lambda seen: seen["status"]["phase"] in ("Succeeded", "Failed"))
    said = cluster.kubectl("logs", "-n", namespace, name)
    assert ended["status"]["phase"] == "Succeeded", said
    return said


def test_a_pod_runs_and_kubectl_shows_what_it_said(cluster: Cluster, namespace: str):
    assert (
        output(cluster, namespace, pod(cluster, "hello", "python", "-c", "print('hello from a pod')"))
        == "hello from a pod\n"
    )


def test_a_pod_reaches_the_api_server_with_its_own_account(cluster: Cluster, namespace: str):
    said = output(cluster, namespace, pod(cluster, "caller", "python", "-c", CALL_THE_API))
    assert said.strip() == cluster.api.get("/version")["gitVersion"]


def test_cotenant_is_installed_in_the_python_image(cluster: Cluster, namespace: str):
    assert "cotenant" in output(cluster, namespace, pod(cluster, "cotenant", "cotenant", "--version"))


def test_a_pod_runs_as_nobody(cluster: Cluster, namespace: str):
    command = ("python", "-c", "import os; print(os.getuid())")
    assert output(cluster, namespace, pod(cluster, "nobody", *command, runAsUser=65534)) == "65534\n"


def test_a_container_is_reached_by_exec_and_outlives_the_kubelet(cluster: Cluster, namespace: str):
    path = f"/api/v1/namespaces/{namespace}/pods/server"
    cluster.api.create(
        f"/api/v1/namespaces/{namespace}/pods",
        pod(cluster, "server", "python", "-c", "import time; time.sleep(600)"),
    )
    before = cluster.api.until(path, lambda seen: seen["status"]["phase"] == "Running")
    cluster.node.kubelet.kill()
    cluster.node.kubelet.start()
    cluster.node.kubelet.wait()
    assert _exec_once_known(cluster, "-n", namespace, "server", "--", "sh", "-c", "echo $((6 * 7))") == "42\n"
    after = cluster.api.get(path)
    assert [each["containerID"] for each in after["status"]["containerStatuses"]] == [
        each["containerID"] for each in before["status"]["containerStatuses"]
    ]


def _exec_once_known(cluster: Cluster, *arguments: str) -> str:
    """A kubelet that has just started does not know its pods at once."""
    for _ in range(50):
        try:
            return cluster.kubectl("exec", *arguments)
        except AssertionError as refused:
            if "pod does not exist" not in str(refused):
                raise
            time.sleep(0.2)
    raise AssertionError("the kubelet did not find its pod again in 10 s")


def test_the_node_has_the_capacity_that_is_patched_into_its_status(
    cluster: Cluster, control_plane: ControlPlane
):
    cluster.api.patch(
        f"{cluster.node.path}/status", {"status": {"capacity": {"cotenant.dev/gpu-memory": "80Gi"}}}
    )
    cluster.api.until(
        cluster.node.path,
        lambda node: node["status"]["allocatable"].get("cotenant.dev/gpu-memory") == "80Gi",
        seconds=30,
    )


@pytest.mark.parametrize("folder", ["/run/cdi", "/var/lib/kubelet/device-plugins"])
def test_folders_of_the_node_belong_to_the_testbed(cluster: Cluster, folder: str):
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    under = max((each[4] for each in mounts if folder.startswith(each[4])), key=len)
    assert under in ("/run", "/var/lib/kubelet")

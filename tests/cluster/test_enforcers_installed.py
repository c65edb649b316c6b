"""The driver's limits with the chart as people install it: the agent is a pod without any capability."""

import base64
import time
from collections.abc import Iterator

import pytest
from cluster import chart, installed
from cluster.cotenant.manifests import container, pod, pods_of
from cluster.testbed.api import Object
from cluster.testbed.cluster import Cluster
from standin.static_program import build

HELD = "cotenant.dev/GPULimitHeld"


@pytest.fixture(scope="module", autouse=True)
def _prepared(cluster: Cluster) -> Iterator[None]:
    installed.prepare(cluster)
    with installed.service_proxy(cluster):
        yield


def state(seen: Object, name: str) -> Object:
    return next(
        (each for each in seen["status"].get("containerStatuses", ()) if each["name"] == name),
        {"state": {}, "lastState": {}},
    )


@pytest.mark.timeout(300)
def test_a_static_program_is_stopped_at_its_containers_limit_by_an_agent_in_a_pod(
    cluster: Cluster, namespace: str, tmp_path
):
    """Its processes and its cgroup are seen from the agent's own namespaces."""
    api = cluster.api
    program = base64.b64encode(build(tmp_path).read_bytes()).decode()
    api.create(
        f"/api/v1/namespaces/{namespace}/configmaps",
        {"metadata": {"name": "static"}, "binaryData": {"holder": program}},
    )
    volumes = [{"name": "static", "configMap": {"name": "static", "defaultMode": 0o755}}]
    static = {
        "command": ["/static/holder", "40", "50"],
        "volumeMounts": [{"name": "static", "mountPath": "/static"}],
    }
    small = {**container("small", installed.IMAGE, memory="1Gi"), **static}
    large = {**container("large", installed.IMAGE, memory="4Gi"), **static}
    with installed.by_helm(cluster, f"--set=settings.agent.simulate={installed.CARDS}@615.20"):
        log = cluster.kubectl(
            "logs", "-n", chart.NAMESPACE, "-l", "app.kubernetes.io/component=agent", "--tail=50"
        )
        assert "enforcer=driver" in log, log
        api.create(pods_of(namespace), pod("two", small, large, volumes=volumes, restartPolicy="Never"))

        def is_settled(seen: Object) -> bool:
            said = [each["message"] for each in seen["status"].get("conditions", ()) if each["type"] == HELD]
            both = bool(said) and "container large: limit of 4Gi on GPU" in said[0]
            return "terminated" in state(seen, "small")["state"] and both

        seen = api.until(f"{pods_of(namespace)}/two", is_settled, 120)
        assert state(seen, "small")["state"]["terminated"]["exitCode"] == 137
        [held] = [each for each in seen["status"]["conditions"] if each["type"] == HELD]
        assert (held["status"], held["reason"]) == ("True", "Driver")
        time.sleep(2)
        assert "running" in state(api.get(f"{pods_of(namespace)}/two"), "large")["state"]
        api.delete(f"{pods_of(namespace)}/two", gracePeriodSeconds=0)

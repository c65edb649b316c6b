"""A real Prometheus sees what runs on a node: sums are the driver's own, every panel has data, and what goes is gone."""

import base64
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from charts.monitoring import NAME, as_grafana_sends_it, panel_queries, rules
from cluster.cotenant.installation import AGENT_PORT, WEBHOOK_PORT, Installation
from cluster.cotenant.manifests import container, pod, pods_of, running
from cluster.cotenant.monitoring import Prometheus, programs
from cluster.cotenant.objects import NAMESPACE
from cluster.cotenant.observed import Observed, define
from cluster.testbed import places
from cluster.testbed.api import Object
from cluster.testbed.cluster import Cluster

from cotenant.hardware.standin.driver import StandIn

pytestmark = pytest.mark.timeout(400)
USED, OUTSIDE = "cotenant_container_memory_used_bytes", "cotenant_gpu_memory_outside_bytes"
SPREAD = {"cotenant.dev/placement": "spread"}
OWN = "/apis/apps/v1/namespaces/{}/{}"
MiB = 2**20


def until(done: Callable[[], bool], what: Callable[[], object], seconds: float = 60) -> float:
    began = time.monotonic()
    while not done():
        assert time.monotonic() - began < seconds, what()
        time.sleep(0.2)
    return time.monotonic() - began


@pytest.fixture(scope="module")
def cotenant(start_cotenant: Any, cluster: Cluster) -> Installation:
    define(cluster.control_plane)
    installation: Installation = start_cotenant(servers=1, settings={"scaler": {"poll": "2s"}})
    folder = places.STATE / "agent-certificate"
    folder.mkdir(parents=True, exist_ok=True)
    secret = f"/api/v1/namespaces/{NAMESPACE}/secrets/cotenant-agent-certificate"
    for name, text in cluster.api.until(secret, lambda seen: seen.get("data"))["data"].items():
        (folder / name).write_bytes(base64.b64decode(text))
    installation.start_agent(cluster.node.name, "3x24GiB", certificate=str(folder), survey="2s")
    return installation


@pytest.fixture(scope="module")
def prometheus(cotenant: Installation, cluster: Cluster) -> Iterator[Prometheus]:
    targets = {
        "cotenant-agent": [f"127.0.0.1:{AGENT_PORT}"],
        "cotenant-server": [f"{each}:{WEBHOOK_PORT}" for each in cotenant.addresses],
    }
    try:
        made = Prometheus(cluster.api, targets)
    except programs.CannotGet as missing:
        pytest.skip(str(missing))
    made.component.start()
    made.component.wait()
    yield made
    made.component.stop()


def workload(cluster: Cluster, name: str, size: str) -> Object:
    made = pod(name, container("main", cluster.python_image(), "tenant.py", memory=size), annotations=SPREAD)
    labels = {"app": name}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": 4,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels, "annotations": SPREAD}, "spec": made["spec"]},
        },
    }


@pytest.fixture
def twelve(cotenant: Installation, cluster: Cluster, namespace: str) -> Iterator[None]:
    """Twelve containers of a Deployment, a StatefulSet and two pods, and one pod that waits."""
    api = cluster.api
    api.create(OWN.format(namespace, "deployments"), workload(cluster, "small", "2Gi"))
    sets = workload(cluster, "state", "3Gi")
    sets["spec"] |= {"serviceName": "state", "podManagementPolicy": "Parallel"}
    api.create(OWN.format(namespace, "statefulsets"), sets)
    for name in ("two-a", "two-b"):
        both = (
            container(each, cluster.python_image(), "tenant.py", memory=size)
            for each, size in (("main", "1Gi"), ("side", "2Gi"))
        )
        api.create(pods_of(namespace), pod(name, *both, annotations=SPREAD))
    for name in ("two-a", "two-b"):
        running(api, namespace, name, 120)
    until(lambda: len(phases(cluster, namespace, "Running")) == 10, lambda: phases(cluster, namespace), 120)
    api.create(
        pods_of(namespace),
        pod("waits", container("main", cluster.python_image(), "tenant.py", memory="23Gi")),
    )
    yield
    remove(cluster, namespace)


def phases(cluster: Cluster, namespace: str, phase: str = "") -> list[str]:
    pods = cluster.api.items(pods_of(namespace))
    return [each["metadata"]["name"] for each in pods if phase in ("", each["status"].get("phase"))]


def remove(cluster: Cluster, namespace: str) -> None:
    for kind in ("deployments", "statefulsets"):
        for each in cluster.api.items(OWN.format(namespace, kind)):
            cluster.api.delete(f"{OWN.format(namespace, kind)}/{each['metadata']['name']}")
    for name in phases(cluster, namespace):
        if name.startswith(("two-", "waits")):
            cluster.api.delete(f"{pods_of(namespace)}/{name}")


def by_gpu(prometheus: Prometheus, expression: str) -> dict[str, float]:
    return {labels["uuid"]: value for labels, value in prometheus.query(f"sum by (uuid) ({expression})")}


def check_sums(prometheus: Prometheus, driver: StandIn) -> None:
    """What containers use on each GPU is the driver's own account, within 1 %; with what is outside, exactly."""

    def truth() -> dict[str, float]:
        return {card.uuid: float(card.used) for card in driver.cards()}

    def close() -> bool:
        found = by_gpu(prometheus, USED)
        whole = by_gpu(prometheus, f"{USED} or {OUTSIDE}")
        return all(
            abs(found.get(uuid, 0) - used) <= 0.01 * used and whole.get(uuid) == used and used > 0
            for uuid, used in truth().items()
        )

    assert len(truth()) == 3
    until(close, lambda: f"the driver: {truth()}, Prometheus: {by_gpu(prometheus, USED)}", 60)


@pytest.mark.usefixtures("twelve")
def test_prometheus_sees_twelve_containers_on_three_gpus_until_they_go(
    cotenant: Installation,
    cluster: Cluster,
    prometheus: Prometheus,
    namespace: str,
    capsys: pytest.CaptureFixture[str],
):
    scaled = Observed(cluster.api, namespace, cotenant.addresses[0])
    driver = StandIn(cotenant.standin())
    until(
        lambda: len(prometheus.query(f'cotenant_container_info{{namespace="{namespace}"}}')) == 12,
        lambda: prometheus.query("cotenant_container_info"),
    )
    expected = {
        f"{NAMESPACE}/cotenant-agent": "up",
        f"{NAMESPACE}/cotenant-server": "up",
        "another-name": "down",
    }
    until(
        lambda: {job: health for job, (health, _) in prometheus.targets().items()} == expected,
        prometheus.targets,
    )
    assert "certificate is valid for" in prometheus.targets()["another-name"][1]
    check_sums(prometheus, driver)

    infos = [labels for labels, _ in prometheus.query("cotenant_container_info")]
    known = {(each["workload_kind"], each["workload"], "version" in each) for each in infos}
    assert known == {
        ("Deployment", "small", True),
        ("StatefulSet", "state", True),
        ("Pod", "two-a", False),
        ("Pod", "two-b", False),
    }

    def enforcers() -> set[tuple[str, str]]:
        found = prometheus.query("cotenant_container_enforcer_info")
        return {(labels["asked"], labels["actual"]) for labels, _ in found}

    until(lambda: enforcers() == {("shim", "shim")}, enforcers, 30)

    empty = list(panel_queries())

    def answered() -> bool:
        empty[:] = [
            each for each in empty if not prometheus.query(as_grafana_sends_it(each.expression, span="30s"))
        ]
        return not empty

    until(answered, lambda: "\n".join(f"{each}: {each.expression}" for each in empty), 60)
    for rule in rules():
        for name in NAME.findall(rule["expr"]):
            assert prometheus.query(f"count({name})"), f"{rule['alert']}: there is no {name}"
    assert prometheus.query('up{job=~"(.+/)?cotenant-agent"} == 1'), "the job of the monitor is the rule's"
    evaluated = prometheus.rules()
    assert {rule["name"] for rule in evaluated} == {rule["alert"] for rule in rules()}
    assert not [rule for rule in evaluated if rule["health"] == "err"]
    denied = next(rule for rule in evaluated if rule["name"] == "CotenantAllocationsDenied")
    assert len(denied["alerts"]) == 12, "each took all that it could get, and was refused more"

    scaled.queue.close()
    remove(cluster, namespace)
    began = time.monotonic()
    until(lambda: not phases(cluster, namespace), lambda: phases(cluster, namespace), 90)
    gone = time.monotonic()
    left = '{__name__=~"cotenant_container_.+"}'
    until(lambda: not prometheus.query(left), lambda: prometheus.query(left), 120)
    until(
        lambda: by_gpu(prometheus, OUTSIDE) == dict.fromkeys(by_gpu(prometheus, OUTSIDE), 0.0),
        lambda: "outside",
    )
    with capsys.disabled():
        print(
            f"\n12 containers on 3 GPUs: {len(list(panel_queries()))} queries answered; no series "
            f"{time.monotonic() - gone:.1f} s after the pods were gone, {time.monotonic() - began:.1f} s after they "
            "were deleted"
        )


def test_a_container_that_no_grant_covers_is_seen_with_its_workload(
    cotenant: Installation, cluster: Cluster, prometheus: Prometheus, namespace: str
):
    """As under time-slicing: the pod asks nothing of us, and finds the driver by itself."""
    folder = cotenant.standin().parent
    body = container("main", cluster.python_image())
    body["command"] = ["python", "-c", HOLD, "1", str(3 * 2**30)]
    body["env"] = [
        {"name": "COTENANT_STANDIN", "value": str(cotenant.standin())},
        {"name": "LD_LIBRARY_PATH", "value": str(folder / "lib")},
    ]
    body["volumeMounts"] = [{"name": "driver", "mountPath": str(folder)}]
    volume = {"name": "driver", "hostPath": {"path": str(folder)}}
    made = pod("sliced", body, volumes=[volume])
    made["metadata"]["labels"] = {"pod-template-hash": "7d9"}
    cluster.api.create(pods_of(namespace), made)
    running(cluster.api, namespace, "sliced", 60)
    whose = f'{{namespace="{namespace}",pod="sliced",container="main"}}'
    until(
        lambda: [value for _, value in prometheus.query(USED + whose)] == [3 * 2**30 + 256 * MiB],
        lambda: prometheus.query(USED),
        30,
    )
    assert not prometheus.query(f"cotenant_container_memory_limit_bytes{whose}")
    ((info, _),) = prometheus.query(f"cotenant_container_info{whose}")
    assert (info["workload"], info["workload_kind"], info["version"]) == ("sliced", "Pod", "7d9")
    assert set(by_gpu(prometheus, OUTSIDE).values()) == {0.0}
    cluster.api.delete(f"{pods_of(namespace)}/sliced")
    until(lambda: not prometheus.query(USED + whose), lambda: prometheus.query(USED + whose), 60)


HOLD = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1"); made = ctypes.c_void_p(); held = ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(made), int(sys.argv[1])) == 0
assert cuda.cuCtxSetCurrent(made) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(held), ctypes.c_size_t(int(sys.argv[2]))) == 0
time.sleep(600)
"""

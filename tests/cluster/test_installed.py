"""A cluster as people get it, by Helm and by kubectl: forty pods in twenty sizes, each with what it asked for."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from cluster import chart, installed
from cluster.cotenant.auditor import Auditor
from cluster.cotenant.manifests import container, pod, pods_of, running
from cluster.cotenant.tenants import account, mismatches, told
from cluster.testbed.api import Api, Object
from cluster.testbed.cluster import Cluster

from cotenant.hardware.standin.driver import StandIn
from cotenant.kube.agent.slots.mounting import has_own_tmpfs

SIZES = [1000 + 250 * step for step in range(20)]
"""MiB."""


@pytest.fixture(scope="module", autouse=True)
def _prepared(cluster: Cluster) -> Iterator[None]:
    installed.prepare(cluster)
    with installed.service_proxy(cluster):
        yield


def make(api: Api, namespace: str, names: list[str]) -> list[Object]:
    """Called by their size, such as 1000mi-a; once they run."""

    def one(name: str) -> None:
        size = name.partition("-")[0].replace("mi", "Mi")
        body = pod(name, container(image=installed.IMAGE, program="tenant.py", memory=size))
        api.create(pods_of(namespace), body)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, names))
    return [running(api, namespace, name, 180) for name in names]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("install", "sizes"), [(installed.by_helm, SIZES), (installed.by_kubectl, SIZES[::5])]
)
def test_an_installation_serves_pods_at_once(
    install: Any, sizes: list[int], cluster: Cluster, namespace: str
):
    """Two of each size. What Helm and kubectl install is the same; the second is there to see that it works."""
    names = [f"{size}mi-{twin}" for size in sizes for twin in "ab"]
    with install(cluster), Auditor(cluster.api) as auditor:
        assert has_own_tmpfs(installed.STANDIN.parents[1]), "the init container mounted it on the host"
        pods = make(cluster.api, namespace, names)
        said = [told(cluster, each) for each in pods]
        counted = account(StandIn(installed.STANDIN))
        wrong = [
            what for each, heard in zip(pods, said, strict=True) for what in mismatches(heard, each, counted)
        ]
        assert wrong == []
        assert len(counted) == len(names)
        assert auditor.violations == []
        cluster.api.request("DELETE", pods_of(namespace))
        for name in names:
            cluster.api.until_gone(f"{pods_of(namespace)}/{name}")


@pytest.mark.timeout(400)
def test_pods_run_through_an_upgrade_and_the_end_of_it_all(cluster: Cluster, namespace: str):
    names = [f"{500 + step}mi-a" for step in range(25)]
    nothing = installed.everything(cluster.api)

    def starts() -> list[tuple[int, str]]:
        seen = [cluster.api.get(f"{pods_of(namespace)}/{name}")["status"] for name in names]
        states = [each["containerStatuses"][0] for each in seen]
        return [(each["restartCount"], each["state"]["running"]["startedAt"]) for each in states]

    with installed.by_helm(cluster):
        make(cluster.api, namespace, names)
        before = starts()
        helm = ("upgrade", "cotenant", str(chart.CHART), "--reuse-values", "--set=settings.log_level=debug")
        chart.helm(*helm, *installed.access(cluster))
        installed.until_ready(cluster.api)
        assert starts() == before
        installed.verify_certificates(cluster.api)
        make(cluster.api, namespace, ["700mi-late"])
        installed.uninstall(cluster)
        left = installed.everything(cluster.api) - nothing
        kept = {f"{cluster.node.name}: cotenant.dev/gpu-slot", *installed.KEPT_BY_HELM}
        assert left <= kept, "the kubelet remembers the plugin, and Helm keeps the definition of GpuScalers"
    assert starts() == before
    cluster.api.request("DELETE", pods_of(namespace))
    for name in names:
        cluster.api.until_gone(f"{pods_of(namespace)}/{name}")

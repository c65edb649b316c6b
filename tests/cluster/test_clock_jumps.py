"""A server whose clock jumps by a day grants no less and no more, and keeps its lease."""

import pytest
from cluster.cotenant.auditor import Auditor
from cluster.cotenant.gpunodes import GIB, gpu_node
from cluster.cotenant.installation import FOLDER, Installation
from cluster.cotenant.manifests import bound, container, pod, pods_of, running
from cluster.testbed.api import Api

pytestmark = pytest.mark.timeout(120)
CLOCK = FOLDER / "clock"
DAY = 86400


@pytest.fixture(scope="module")
def cotenant(start_cotenant) -> Installation:
    installation: Installation = start_cotenant(servers=1)
    (server,) = installation.servers
    server.stop()
    at = server.command.index("server")
    server.command = [
        server.command[0],
        "-m",
        "cluster.cotenant.skewed",
        str(CLOCK),
        "--",
        *server.command[at:],
    ]
    server.start()
    installation.wait()
    return installation


@pytest.mark.parametrize("days", [1, -1])
def test_pods_are_bound_and_those_who_wait_are_served_whatever_the_clock_says(
    days: int, cotenant: Installation, api: Api, namespace: str, hollow_nodes
):
    CLOCK.write_text("0")
    hollow_nodes([gpu_node(f"hollow-{namespace}", [16 * GIB])])
    lease = "/apis/coordination.k8s.io/v1/namespaces/cotenant-system/leases/cotenant-server"
    with Auditor(api) as auditor:
        api.create(pods_of(namespace), pod("first", container(memory="16Gi")))
        running(api, namespace, "first")
        api.create(pods_of(namespace), pod("waits", container(memory="10Gi")))
        api.until(f"{pods_of(namespace)}/waits", lambda seen: seen["status"].get("conditions"))
        before = api.get(lease)["spec"]["leaseTransitions"]
        CLOCK.write_text(str(days * DAY))
        api.create(pods_of(namespace), pod("waits-too", container(memory="6Gi")))
        api.until(f"{pods_of(namespace)}/waits-too", lambda seen: seen["status"].get("conditions"))
        api.delete(f"{pods_of(namespace)}/first")
        assert bound(api, namespace, "waits", 15)
        assert bound(api, namespace, "waits-too", 15)
        CLOCK.write_text("0")
        api.delete(f"{pods_of(namespace)}/waits")
        api.create(pods_of(namespace), pod("last", container(memory="10Gi")))
        assert bound(api, namespace, "last", 15)
        assert api.get(lease)["spec"]["leaseTransitions"] == before
        assert auditor.violations == []

"""What the policy has learned outlives the leader, however that ends, and no pod counts twice. With the rights of the chart."""

import contextlib
import json
from collections.abc import Callable, Iterator

import pytest
from cluster.cotenant.asking import until
from cluster.cotenant.commands import Commands
from cluster.cotenant.gpunodes import GIB, gpu_node
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import bound, container, pod, pods_of
from cluster.cotenant.objects import NAMESPACE
from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.component import Component
from cluster.testbed.controlplane import ControlPlane

pytestmark = pytest.mark.timeout(240)
MAP = f"/api/v1/namespaces/{NAMESPACE}/configmaps/cotenant-statistics"
KEY = "ended-pods.json"


@pytest.fixture(scope="module")
def cotenant(start_cotenant, control_plane: ControlPlane) -> Installation:
    """Knows nothing of the pods of other tests."""
    with contextlib.suppress(Refused):
        control_plane.api.delete(MAP)
    started: Installation = start_cotenant(servers=2, settings={"leader": {"duration": "9s"}}, policies=True)
    return started


@pytest.fixture
def pods(api: Api, namespace: str, hollow_nodes) -> Iterator[str]:
    hollow_nodes([gpu_node(f"hollow-{namespace}", [40 * GIB])])
    yield pods_of(namespace)
    api.request("DELETE", pods_of(namespace), {"gracePeriodSeconds": 0})
    api.until(pods_of(namespace), lambda seen: not seen["items"])


def leader(cotenant: Installation) -> Component:
    found = cotenant.leader()
    assert found is not None
    return found


def kept(api: Api) -> Object | None:
    try:
        found: Object = json.loads(api.get(MAP)["data"][KEY])
    except (Refused, ValueError):
        return None
    return found


def learned(cotenant: Installation) -> Object:
    """What the leader itself reports."""
    found: Object = cotenant.state(leader(cotenant))["learned"]
    return found


def killed(cotenant: Installation, before_the_next: Callable[[], None] = lambda: None) -> None:
    """With -9; then the other one leads, and both run."""
    doomed = leader(cotenant)
    doomed.kill()
    before_the_next()
    until(lambda: cotenant.leader() not in (None, doomed), "the other one leads")
    doomed.start()
    cotenant.wait()


def seen_here(document: Object) -> list[Object]:
    return [each for each in document["typical"] if not each["prior"]]


def test_what_was_learned_outlives_leaders_that_are_killed(
    cotenant: Installation, commands: Commands, api: Api, namespace: str, pods: str
):
    until(lambda: kept(api) is not None, "the first leader notes since when it counts")
    before = learned(cotenant)["pods"]
    for name in ("a", "b", "c"):
        api.create(pods, pod(name, container(memory="4Gi", cpu="1")))
        bound(api, namespace, name)
    until(lambda: learned(cotenant)["pods"] == before + 3, "all three are counted")

    ended = (kept(api) or {})["pods"]
    api.delete(f"{pods}/a", gracePeriodSeconds=0)
    until(lambda: (kept(api) or {})["pods"] == ended + 1, "that one has ended is written", 30)
    written = api.get(MAP)["metadata"]["resourceVersion"]
    for _ in range(2):
        killed(cotenant)
        assert learned(cotenant)["pods"] == before + 3
    assert api.get(MAP)["metadata"]["resourceVersion"] == written, "nothing happened, so nothing is written"

    api.delete(f"{pods}/b", gracePeriodSeconds=0)
    killed(cotenant)
    counted = learned(cotenant)["pods"]
    assert counted in (before + 2, before + 3), (
        "the last moments of a killed leader may be lost, none counts twice"
    )
    shown = commands.json("status")["learned"]
    assert shown["pods"] == counted
    assert shown["trouble"] is None
    (typical,) = seen_here(shown)
    assert (typical["memory"], typical["cpuMilli"], typical["pods"]) == (4 * GIB, 1000, counted - before)
    assert shown["since"] is not None


def test_what_somebody_else_wrote_there_is_overwritten(
    cotenant: Installation, commands: Commands, api: Api, namespace: str, pods: str
):
    api.create(pods, pod("d", container(memory="8Gi")))
    bound(api, namespace, "d")
    server = leader(cotenant)

    def meanwhile() -> None:
        api.patch(MAP, {"data": {KEY: '{"version": 99}', "note": "keep me"}})
        assert "cotenant-statistics" in commands.json("status")["learned"]["trouble"]

    killed(cotenant, meanwhile)
    until(lambda: (kept(api) or {}).get("version") == 1, "it is overwritten", 30)
    assert api.get(MAP)["data"]["note"] == "keep me"
    assert learned(cotenant)["pods"] == 1, "it starts from the pod that runs"
    said = next(each for each in cotenant.servers if each is not server).tail(400)
    assert "statistics of ended pods cannot be read" in said


def test_a_person_who_may_not_read_it_sees_what_runs(
    cotenant: Installation, control_plane: ControlPlane, api: Api, namespace: str, pods: str
):
    role = {
        "metadata": {"name": "sees-nodes-and-pods"},
        "rules": [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]}],
    }
    roles = "/apis/rbac.authorization.k8s.io/v1"
    subject = {"kind": "User", "name": "looker", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {
        "kind": "ClusterRole",
        "name": "sees-nodes-and-pods",
        "apiGroup": "rbac.authorization.k8s.io",
    }
    api.create(f"{roles}/clusterroles", role)
    api.create(
        f"{roles}/clusterrolebindings",
        {"metadata": {"name": "looker"}, "roleRef": reference, "subjects": [subject]},
    )
    try:
        api.create(pods, pod("e", container(memory="2Gi")))
        bound(api, namespace, "e")
        shown = Commands(control_plane, "looker", ()).json("status")["learned"]
    finally:
        api.delete(f"{roles}/clusterrolebindings/looker")
        api.delete(f"{roles}/clusterroles/sees-nodes-and-pods")
    assert "forbidden" in shown["trouble"]
    assert [each["memory"] for each in seen_here(shown)] == [2 * GIB]

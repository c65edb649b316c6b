"""`plan defrag --apply` opens a card by evictions, the pod that waits for it starts, and budgets are kept."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from cluster.cotenant.commands import Commands, published_settings
from cluster.cotenant.gpunodes import GIB, gpu_node, uuid_of
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import container, deployment, pod, pods_of, running
from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.controlplane import ControlPlane

pytestmark = pytest.mark.timeout(240)
CARD = 16 * GIB
SETTINGS = {"line": {"patience": "2s"}}
"""Whoever waits longer has cards held."""
APPLY = ("plan", "defrag", "--whole-card", "--apply")


@pytest.fixture(scope="module")
def cotenant(start_cotenant, control_plane: ControlPlane) -> Iterator[Installation]:
    started: Installation = start_cotenant(servers=2, policies=True, settings=SETTINGS)
    with published_settings(control_plane, SETTINGS):
        yield started


@pytest.fixture(autouse=True)
def _nobody_is_left(api: Api, namespace: str) -> Iterator[None]:
    yield
    api.request("DELETE", f"/apis/apps/v1/namespaces/{namespace}/deployments")
    api.request("DELETE", pods_of(namespace), {"gracePeriodSeconds": 0})
    for each in api.items(pods_of(namespace)):
        try:
            api.patch(f"{pods_of(namespace)}/{each['metadata']['name']}", {"metadata": {"finalizers": None}})
        except Refused as refused:
            if refused.code != 404:  # gone by itself meanwhile
                raise
    api.until(pods_of(namespace), lambda seen: not seen["items"])


class Fragmented:
    """Cards with pods where a test wants them: all other nodes are cordoned while a workload is created."""

    def __init__(self, api: Api, namespace: str, nodes: list[str]) -> None:
        self.api, self.namespace, self.nodes = api, namespace, nodes

    def put(self, node: str, name: str, memory: str, replicas: int = 1) -> None:
        self._cordon(*(each for each in self.nodes if each != node))
        self.api.create(
            f"/apis/apps/v1/namespaces/{self.namespace}/deployments", deployment(name, replicas, memory)
        )
        self.until_running(name, replicas)
        self._cordon()

    def put_bare(self, node: str, name: str, memory: str) -> None:
        self._cordon(*(each for each in self.nodes if each != node))
        self.api.create(pods_of(self.namespace), pod(name, container(memory=memory)))
        running(self.api, self.namespace, name)
        self._cordon()

    def waits(self, name: str, **asked: object) -> None:
        self.api.create(pods_of(self.namespace), pod(name, container(**asked)))
        self.api.until(f"{pods_of(self.namespace)}/{name}", lambda seen: seen["status"].get("conditions"), 30)

    def until_running(self, app: str, replicas: int) -> None:
        self.api.until(pods_of(self.namespace), lambda seen: len(ready(seen["items"], app)) == replicas, 30)

    def pods(self, app: str) -> list[Object]:
        return [each for each in self.api.items(pods_of(self.namespace)) if is_of(each, app)]

    def budget(self, app: str, **spec: object) -> None:
        path = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        selector = {"matchLabels": {"app": app}}
        self.api.create(path, {"metadata": {"name": app}, "spec": {"selector": selector, **spec}})
        self.api.until(f"{path}/{app}", lambda seen: seen.get("status", {}).get("currentHealthy"), 30)

    def annotations(self, node: str) -> dict[str, str]:
        found: dict[str, str] = self.api.get(f"/api/v1/nodes/{node}")["metadata"]["annotations"]
        return found

    def _cordon(self, *nodes: str) -> None:
        for each in self.nodes:
            self.api.patch(f"/api/v1/nodes/{each}", {"spec": {"unschedulable": each in nodes}})


def is_of(seen: Object, app: str) -> bool:
    return bool(seen["metadata"].get("labels", {}).get("app") == app)


def ready(pods: list[Object], app: str) -> list[Object]:
    return [
        each
        for each in pods
        if is_of(each, app)
        and "deletionTimestamp" not in each["metadata"]
        and each["status"].get("phase") == "Running"
    ]


@pytest.fixture
def two(cotenant: Installation, api: Api, namespace: str, hollow_nodes) -> Fragmented:
    """Two nodes with a card each."""
    names = [f"hollow-{namespace}-{number}" for number in range(2)]
    hollow_nodes([gpu_node(name, [CARD]) for name in names])
    return Fragmented(api, namespace, names)


def card_of(seen: Object) -> str:
    (slot,) = json.loads(seen["metadata"]["annotations"]["cotenant.dev/grant"])["slots"]
    return str(slot["shares"][0]["uuid"])


def test_one_pod_is_moved_and_the_one_that_waits_for_a_whole_card_starts(
    two: Fragmented, commands: Commands, api: Api, namespace: str
):
    two.put(two.nodes[0], "a", "4Gi")
    two.put(two.nodes[1], "b", "4Gi")
    two.waits("big", whole=1)
    before = {each["metadata"]["uid"] for app in "ab" for each in two.pods(app)}
    plan = commands.json("plan", "defrag")
    assert plan["state"] == "plan"
    assert plan["for"] == f"{namespace}/big"
    assert len(plan["steps"]) == 1
    assert plan["fewest"]
    assert plan["sentence"].startswith(f"moving 1 pod opens a whole A100-SXM4-80GB for {namespace}/big")
    assert {each["metadata"]["uid"] for app in "ab" for each in two.pods(app)} == before, "only a plan"
    done = commands.json("plan", "defrag", "--apply", "--timeout", "30s")
    big = running(api, namespace, "big", 5)
    assert done["started"]["node"] == big["spec"]["nodeName"]
    assert [gpu["uuid"] for gpu in done["started"]["gpus"]] == [card_of(big)]
    assert [each["placed"] for each in done["done"]] == [each["to"] for each in plan["steps"]]
    two.until_running("a", 1)
    two.until_running("b", 1)
    for node in two.nodes:
        assert not two.annotations(node).keys() & {"cotenant.dev/drained", "cotenant.dev/defrag"}
    assert commands.json("plan", "defrag")["state"] == "nobody"


def test_one_that_has_cards_held_for_it_by_now_gets_others_if_fewer_have_to_move_there(
    two: Fragmented, commands: Commands, api: Api, namespace: str
):
    """Least is missing on the first card, with two pods of 1Gi: that is held. The other has one pod, of 4Gi, which
    could go nowhere if the line did not let go of the first card.
    """
    two.put(two.nodes[0], "a", "1Gi", replicas=2)
    two.put(two.nodes[1], "b", "4Gi")
    two.waits("big", whole=1)
    time.sleep(4)
    plan = commands.json("plan", "defrag")
    assert [each["workload"] for each in plan["steps"]] == ["deployment/b"]
    commands.says("plan", "defrag", "--apply", "--timeout", "30s")
    assert running(api, namespace, "big", 5)["spec"]["nodeName"] == two.nodes[1]
    assert two.pods("b")[0]["spec"]["nodeName"] == two.nodes[0]


def test_what_a_budget_protects_stays_and_another_card_is_opened(
    two: Fragmented, commands: Commands, api: Api, namespace: str
):
    two.put(two.nodes[0], "a", "4Gi")
    two.put(two.nodes[1], "b", "4Gi", replicas=2)
    two.budget("a", minAvailable=1)
    two.waits("big", whole=1)
    kept = two.pods("a")[0]["metadata"]["uid"]
    plan = commands.json("plan", "defrag")
    assert [each["workload"] for each in plan["steps"]] == ["deployment/b"] * 2
    commands.says("plan", "defrag", "--apply", "--timeout", "30s")
    assert running(api, namespace, "big", 5)["spec"]["nodeName"] == two.nodes[1]
    assert [each["metadata"]["uid"] for each in two.pods("a")] == [kept]


def test_pods_under_one_budget_are_moved_one_after_another_and_never_fewer_are_ready_than_it_says(
    two: Fragmented, commands: Commands, api: Api, namespace: str
):
    two.put(two.nodes[0], "a", "4Gi", replicas=2)
    two.put_bare(two.nodes[1], "stays", "2Gi")
    two.budget("a", maxUnavailable=1)
    two.waits("big", whole=1)
    fewest, end = [2], threading.Event()

    def look() -> None:
        while not end.is_set():
            fewest.append(len(ready(api.items(pods_of(namespace)), "a")))
            time.sleep(0.02)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        commands.says("plan", "defrag", "--apply", "--timeout", "30s")
    finally:
        end.set()
        looking.join()
    assert running(api, namespace, "big", 5)["spec"]["nodeName"] == two.nodes[0]
    assert min(fewest) == 1
    assert {each["spec"]["nodeName"] for each in two.pods("a")} == {two.nodes[1]}


def test_where_everybody_is_protected_nobody_is_evicted(
    two: Fragmented, commands: Commands, api: Api, namespace: str
):
    for node, name in zip(two.nodes, "ab", strict=True):
        two.put(node, name, "4Gi")
        two.budget(name, minAvailable=1)
    two.waits("big", whole=1)
    before = {each["metadata"]["uid"] for each in api.items(pods_of(namespace))}
    done = commands.run("plan", "defrag", "--apply", "-o", "json")
    assert done.returncode == 75
    assert json.loads(done.stdout)["state"] == "none"
    assert any("allows no eviction now" in note for note in json.loads(done.stdout)["notes"])
    assert {each["metadata"]["uid"] for each in api.items(pods_of(namespace))} == before


def test_a_place_opens_only_after_another_move(
    cotenant: Installation, commands: Commands, api: Api, namespace: str, hollow_nodes
):
    """`wide` needs 10Gi, and nobody has them until `small` has left the middle card for the last one."""
    names = [f"hollow-{namespace}-{number}" for number in range(3)]
    hollow_nodes([gpu_node(name, [CARD]) for name in names])
    three = Fragmented(api, namespace, names)
    three.put(names[0], "wide", "10Gi")
    three.put(names[1], "small", "6Gi")
    three.put_bare(names[1], "stays-1", "1Gi")
    three.put_bare(names[2], "stays-2", "8Gi")
    three.waits("big", whole=1)
    plan = commands.json("plan", "defrag")
    assert [each["workload"] for each in plan["steps"]] == ["deployment/small", "deployment/wide"]
    commands.says("plan", "defrag", "--apply", "--timeout", "30s")
    assert running(api, namespace, "big", 5)["spec"]["nodeName"] == names[0]
    assert three.pods("wide")[0]["spec"]["nodeName"] == names[1]
    assert three.pods("small")[0]["spec"]["nodeName"] == names[2]


def test_it_stops_if_an_evicted_pod_does_not_end_and_cards_are_in_service_again(
    two: Fragmented, commands: Commands, api: Api, namespace: str
):
    two.put(two.nodes[0], "a", "4Gi")
    two.put_bare(two.nodes[1], "stays", "4Gi")
    name = two.pods("a")[0]["metadata"]["name"]
    api.patch(f"{pods_of(namespace)}/{name}", {"metadata": {"finalizers": ["cotenant.test/slow"]}})
    done = commands.run("plan", "defrag", "--whole-card", "--apply", "--timeout", "3s")
    assert done.returncode == 3
    assert f"{namespace}/{name} was evicted and has been terminating for 3s" in done.stderr
    assert "stopped after 1 of 1 evictions" in done.stderr
    for node in two.nodes:
        assert not two.annotations(node).keys() & {"cotenant.dev/drained", "cotenant.dev/defrag"}


@pytest.fixture
def begun(
    two: Fragmented, control_plane: ControlPlane, api: Api, namespace: str
) -> Iterator[subprocess.Popen[str]]:
    """A command that waits for the end of the pod that it has evicted."""
    two.put(two.nodes[0], "a", "4Gi")
    two.put_bare(two.nodes[1], "stays", "4Gi")
    own = f"{pods_of(namespace)}/{two.pods('a')[0]['metadata']['name']}"
    api.patch(own, {"metadata": {"finalizers": ["cotenant.test/slow"]}})
    environ = {**os.environ, "KUBECONFIG": str(control_plane.kubeconfig("admin", ("system:masters",)))}
    with subprocess.Popen(
        [sys.executable, "-m", "cotenant.cli.main", *APPLY], env=environ, text=True
    ) as begun:
        api.until(own, lambda seen: "deletionTimestamp" in seen["metadata"], 30)
        assert two.annotations(two.nodes[0])["cotenant.dev/drained"] == uuid_of(two.nodes[0], 0)
        yield begun
        begun.kill()
        begun.wait()


@pytest.mark.parametrize(("by", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_that_is_interrupted_puts_the_card_back(
    two: Fragmented, begun: subprocess.Popen[str], by: signal.Signals, code: int
):
    begun.send_signal(by)
    assert begun.wait(20) == code
    assert not two.annotations(two.nodes[0]).keys() & {"cotenant.dev/drained", "cotenant.dev/defrag"}


def test_after_kill_9_the_next_one_puts_the_card_back(
    two: Fragmented, begun: subprocess.Popen[str], commands: Commands, api: Api, namespace: str
):
    begun.kill()
    begun.wait()
    node = two.nodes[0]
    assert two.annotations(node)["cotenant.dev/drained"] == uuid_of(node, 0)
    for each in two.pods("a"):
        api.patch(f"{pods_of(namespace)}/{each['metadata']['name']}", {"metadata": {"finalizers": None}})
    two.until_running("a", 1)
    done = commands.run(*APPLY)
    assert done.returncode == 75
    assert "another `plan defrag --apply`" in done.stderr
    mark = json.loads(two.annotations(node)["cotenant.dev/defrag"])
    past = json.dumps({**mark, "until": "2020-01-01T00:00:00Z"})
    api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {"cotenant.dev/defrag": past}}})
    said = commands.says(*APPLY)
    assert f"GPUs of {node}, left drained by a command that was killed, are in service again" in said
    assert "cotenant.dev/drained" not in two.annotations(node)

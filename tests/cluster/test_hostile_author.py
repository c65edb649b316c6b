"""Somebody with the role `edit` in one namespace against grants, cards and another namespace's pods, all on real parts.

Policies are tried one by one in policies/; here the whole product stands against an author who means harm.
COTENANT_FLOOD sends more requests to a server than the 1,000 of every run; COTENANT_WISHES=all tries twice as many pods.
"""

import contextlib
import json
import os
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from cluster import chart
from cluster.cotenant.accounts import amount, holds_of
from cluster.cotenant.auditor import Auditor
from cluster.cotenant.flooding import (
    NOWHERE,
    edits,
    ends,
    long_quantity,
    longest_answer,
    makes_anew,
    nonsense,
    resident,
    sends_to_server,
    tries,
)
from cluster.cotenant.gpunodes import GIB, gpu_node, uuid_of
from cluster.cotenant.hostile_wishes import (
    COUNTED,
    GATED,
    KINDS,
    Attempt,
    attempts,
    counted_amounts,
    granted_amounts,
)
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import MEMORY, WHOLE, bound, container, pod, pods_of, running
from cluster.policies.pods import as_account, may, plain
from cluster.testbed import hollow
from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.controlplane import ControlPlane

pytestmark = pytest.mark.timeout(120)
FLOOD = int(os.environ.get("COTENANT_FLOOD", "1000"))
"""Requests, of up to 150 KB, that are sent straight to a server."""
PATIENCE = 3.0
SOON = 30.0
"""Seconds in which a pod that has room is bound, on a machine that does many other things: alone it takes a few tenths."""
GRANT = "cotenant.dev/grant"
SHOWS_CARDS = "nvidia"
NO_CARDS = '{"version": 1, "cards": []}'


@pytest.fixture(scope="module")
def cotenant(start_cotenant) -> Iterator[Installation]:
    started: Installation = start_cotenant(
        servers=1, settings={"line": {"patience": f"{PATIENCE:.0f}s"}}, policies=True
    )
    api = started.api
    documents = chart.render(policies__cards__runtimeClasses=[SHOWS_CARDS])
    chart.apply(started.control_plane, chart.policies(documents))
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    api.create(classes, {"metadata": {"name": SHOWS_CARDS}, "handler": "nvidia"})
    peeping, dry = plain("peeping", runtimeClassName=SHOWS_CARDS), {"dryRun": "All"}
    chart.until_refused(lambda: api.request("POST", pods_of("default"), peeping, query=dry))
    yield started
    api.delete(f"{classes}/{SHOWS_CARDS}")


@pytest.fixture
def node(api: Api, namespace: str, hollow_nodes, cotenant: Installation) -> str:
    name = f"hollow-{namespace}"
    hollow_nodes([gpu_node(name, [16 * GIB, 16 * GIB])])
    return name


@pytest.fixture
def author(control_plane: ControlPlane, api: Api, namespace: str) -> Api:
    """May edit in `namespace`, and nowhere else."""
    binding = {
        "metadata": {"name": "author"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "hostile"}],
    }
    api.create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding)
    client = control_plane.client("hostile")
    while not may(client, "create", "pods", namespace):
        time.sleep(0.05)
    return client


@pytest.fixture
def innocent(api: Api) -> Iterator[str]:
    """The other namespace."""
    name: str = api.create("/api/v1/namespaces", {"metadata": {"generateName": "innocent-"}})["metadata"][
        "name"
    ]
    api.until(f"/api/v1/namespaces/{name}/serviceaccounts/default", lambda _: True)
    yield name
    api.empty(name)


@pytest.fixture
def granted(author: Api, api: Api, namespace: str, node: str) -> Object:
    """A pod of the author's own that asked for 4Gi, and has them."""
    author.create(pods_of(namespace), pod("own", container(memory="4Gi")))
    return running(api, namespace, "own")


class TestCannotForgeOrChangeAGrant:
    def test_by_the_pod(self, author: Api, granted: Object, namespace: str, node: str):
        share = {"uuid": uuid_of(node, 0), "memory": 16 * GIB}
        lie = {"version": 1, "uid": "mine", "slots": [{"container": "main", "shares": [share]}]}
        forged = {GRANT: json.dumps(lie), "devices.cotenant.dev/main": "all"}
        made = author.create(
            pods_of(namespace), pod("forger", container(memory="1Gi"), annotations=forged, **GATED)
        )
        assert not forged.keys() & made["metadata"].get("annotations", {}).keys()
        for name in ("own", "forger"):
            for changed in (forged, {"cotenant.dev/retry": "1"}):
                with pytest.raises(Refused, match=r"403.*a grant is written by Cotenant's server alone"):
                    author.patch(f"{pods_of(namespace)}/{name}", {"metadata": {"annotations": changed}})
        with pytest.raises(Refused, match=r"403.*a grant ends with its pod"):
            author.patch(f"{pods_of(namespace)}/own", {"metadata": {"annotations": {GRANT: None}}})

    def test_by_its_status(self, author: Api, granted: Object, namespace: str):
        """Nor may an end be feigned, which would free the card for others while the containers run on."""
        for body in ({"status": {"phase": "Succeeded"}}, {"metadata": {"annotations": {GRANT: "{}"}}}):
            with pytest.raises(Refused, match="403"):
                author.patch(f"{pods_of(namespace)}/own/status", body)

    def test_by_a_binding(self, author: Api, namespace: str, node: str):
        author.create(pods_of(namespace), pod("waits", container(memory="4Gi"), **GATED))
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "waits", "annotations": {GRANT: "{}"}},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        for path in (f"{pods_of(namespace)}/waits/binding", f"/api/v1/namespaces/{namespace}/bindings"):
            with pytest.raises(Refused, match="403"):
                author.create(path, body)


class TestCannotGetMoreThanAsked:
    @pytest.mark.parametrize(
        "wishes",
        [
            {"gpu-count.cotenant.dev/main": "2"},
            {"cotenant.dev/gpu-uuid": "all", "cotenant.dev/gpu-model": "H100"},
            {"cotenant.dev/placement": "spread"},
        ],
        ids=lambda wishes: next(iter(wishes)),
    )
    def test_by_wishes_that_change_when_it_runs(
        self, author: Api, cotenant: Installation, granted: Object, namespace: str, wishes: dict[str, str]
    ):
        """They may be written, and change nothing."""
        before = cotenant.inspect()
        changed = author.patch(f"{pods_of(namespace)}/own", {"metadata": {"annotations": wishes}})
        assert changed["metadata"]["annotations"][GRANT] == granted["metadata"]["annotations"][GRANT]
        assert list(holds_of(changed)) == list(holds_of(granted))
        assert cotenant.inspect() == before

    def test_by_wishes_that_change_while_it_waits(self, author: Api, api: Api, namespace: str, node: str):
        """They count, and what is charged is what the quota counted: the same bytes on other cards."""
        author.create(pods_of(namespace), pod("waits", container(memory="6Gi"), **GATED))
        wishes = {"gpu-count.cotenant.dev/main": "2"}
        changes = {"metadata": {"annotations": wishes}, "spec": {"schedulingGates": None}}
        author.patch(f"{pods_of(namespace)}/waits", changes)
        holds = list(holds_of(bound(api, namespace, "waits", SOON)))
        assert [hold.memory for _, hold in holds] == [3 * GIB, 3 * GIB]

    @pytest.mark.parametrize("part", ["", "/resize"])
    def test_by_other_resources(self, author: Api, api: Api, granted: Object, namespace: str, part: str):
        more = {MEMORY: "16Gi"}
        body = {"spec": {"containers": [{"name": "main", "resources": {"limits": more, "requests": more}}]}}
        for who in (author, api):
            with pytest.raises(Refused, match=r"403|422"):
                who.patch(f"{pods_of(namespace)}/own{part}", body, kind="strategic")

    @pytest.mark.parametrize(
        "more",
        [
            {},
            {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]},
            {"resources": {"limits": {MEMORY: "4Gi"}}},
        ],
        ids=["as it is", "all cards", "a demand"],
    )
    def test_by_a_container_added_later(
        self, author: Api, api: Api, granted: Object, namespace: str, more: Object
    ):
        """The role `edit` gives no right to; whoever has it besides is stopped by the policy, or by Kubernetes."""
        body = {"spec": {"ephemeralContainers": [{"name": "later", "image": "none", **more}]}}
        for who, words in ((author, "403.*cannot patch"), (api, "403.*sees no card|422.*resources")):
            with pytest.raises(Refused, match=words):
                who.patch(f"{pods_of(namespace)}/own/ephemeralcontainers", body, kind="strategic")


class TestCannotGetMoreThanWasCounted:
    @pytest.mark.timeout(300)
    @pytest.mark.parametrize("kind", KINDS)
    def test_by_any_wish_in_any_container_before_or_after_admission(
        self, author: Api, api: Api, namespace: str, hollow_nodes, cotenant: Installation, kind: str
    ):
        """Each pod's grant against its own requests, and all of them against what the quota has counted."""
        nodes = [f"hollow-{namespace}-{number}" for number in range(3)]
        hollow_nodes([gpu_node(name, [80 * GIB] * 8) for name in nodes])
        quota = f"/api/v1/namespaces/{namespace}/resourcequotas"
        hard = {f"requests.{name}": "100Ti" for name in COUNTED}
        api.create(quota, {"metadata": {"name": "gpu"}, "spec": {"hard": hard}})
        api.until(f"{quota}/gpu", lambda seen: seen.get("status", {}).get("hard"))
        tried = list(attempts(kind, "A100", ",".join(uuid_of(nodes[0], at) for at in range(8))))
        with ThreadPoolExecutor(8) as hands:
            made = list(hands.map(lambda each: tries(author, pods_of(namespace), each.pod), tried))
            kept = [each for each, was_made in zip(tried, made, strict=True) if was_made]
            list(hands.map(lambda each: _released(author, namespace, each), kept))
        assert len(kept) > len(tried) / 2
        names = {each.pod["metadata"]["name"] for each in kept}
        for name in names:
            api.until(f"{pods_of(namespace)}/{name}", _is_decided, 60)
        # Whom kube-scheduler found no node for at first, it tries again.
        api.until(pods_of(namespace), lambda found: _are_mostly_bound(found, names), SOON)
        seen = [each for each in api.items(pods_of(namespace)) if each["metadata"]["name"] in names]
        granted_in_all = dict.fromkeys(COUNTED, 0)
        for body in seen:
            for name, bytes_or_cards in granted_amounts(body).items():
                assert bytes_or_cards <= counted_amounts(body)[name], (body["metadata"]["name"], name)
                granted_in_all[name] += bytes_or_cards
        used = api.get(f"{quota}/gpu")["status"]["used"]
        for name, sum_ in granted_in_all.items():
            assert sum_ <= amount(used[f"requests.{name}"])
        api.request("DELETE", pods_of(namespace), query={"gracePeriodSeconds": "0"})


class TestCannotGetACardWithoutAsking:
    def test_by_the_runtime_class_that_shows_cards(self, author: Api, namespace: str, node: str):
        with pytest.raises(Refused, match=r"403.*shows the node's cards"):
            author.create(pods_of(namespace), plain("peeping", runtimeClassName=SHOWS_CARDS))

    @pytest.mark.parametrize("asked", [{"cotenant.dev/gpu-slot": "1"}, {"cotenant.dev/gpu-compute": "50"}])
    def test_by_a_slot_without_a_demand(self, author: Api, namespace: str, node: str, asked: dict[str, str]):
        with pytest.raises(Refused, match=r"cotenant.dev/gpu-memory"):
            author.create(pods_of(namespace), pod("slot", container(**asked)))

    def test_by_going_to_the_node_past_the_scheduler(self, author: Api, namespace: str, node: str):
        with pytest.raises(Refused, match=r"spec.nodeName"):
            author.create(pods_of(namespace), pod("placed", container(memory="1Gi"), nodeName=node))

    def test_by_the_runtimes_variable_in_a_pod_that_asks(self, author: Api, namespace: str, node: str):
        every = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        asking, beside = {**container(memory="1Gi"), "env": every}, {**container("beside"), "env": every}
        made = author.create(pods_of(namespace), pod("greedy", asking, beside, **GATED))
        said = [
            each
            for body in made["spec"]["containers"]
            for each in body["env"]
            if each["name"] == every[0]["name"]
        ]
        assert [each.get("value") for each in said] == [None, "void"]
        assert (
            said[0]["valueFrom"]["fieldRef"]["fieldPath"]
            == "metadata.annotations['devices.cotenant.dev/main']"
        )

    def test_and_in_one_that_does_not_ask_the_variable_brings_nothing_of_ours(
        self, author: Api, api: Api, namespace: str, node: str
    ):
        """It is admitted: where the node's default runtime is NVIDIA's it would see the cards, and only the node's
        configuration can stop that (docs/security.md). From Cotenant it gets no slot, no grant and no charge.
        """
        every = {**container(), "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
        author.create(pods_of(namespace), pod("peeping", every))
        seen = bound(api, namespace, "peeping")
        assert (
            "resources" not in seen["spec"]["containers"][0] or not seen["spec"]["containers"][0]["resources"]
        )
        assert "runtimeClassName" not in seen["spec"]
        assert list(holds_of(seen)) == []


class TestCannotStopOthers:
    def test_by_nonsense_in_bulk(
        self, author: Api, api: Api, cotenant: Installation, namespace: str, innocent: str, node: str
    ):
        """Impossible, huge and odd demands; those that wait grow overdue, and no card is held for any of them."""
        leader, began = cotenant.leader(), time.monotonic()
        assert leader is not None
        pid, memory = leader.pid, resident(leader.pid)
        with Auditor(api) as auditor, ThreadPoolExecutor(8) as hands:
            flood = [hands.submit(tries, author, pods_of(namespace), each) for each in nonsense()]
            flood.append(hands.submit(makes_anew, author, namespace, 40))
            _binds(api, innocent, "during", memory="1Gi")
            results = [each.result() for each in flood]
            assert results.count(True) > len(results) * 0.6, "most of it waits"
            _binds(api, innocent, "after", memory="1Gi")
            assert longest_answer(cotenant, api, namespace, node) < 1.0
            while time.monotonic() < began + PATIENCE + 3:
                time.sleep(0.1)
            for number in range(7):
                _binds(api, innocent, f"overdue-{number}", memory="4Gi")
            assert leader.running
            assert leader.pid == pid
            assert resident(pid) < memory + 64 * 2**20, "of 512 MiB that the chart gives it"
            assert cotenant.leader() is leader
            assert auditor.violations == []

    @pytest.mark.timeout(600)
    def test_by_filling_the_servers_memory(
        self, author: Api, api: Api, cotenant: Installation, namespace: str, innocent: str, node: str
    ):
        """As many requests through the API server as it carries in a test, the others straight to the server."""
        leader = cotenant.leader()
        assert leader is not None
        address = cotenant.addresses[cotenant.servers.index(leader)]
        sends_to_server(cotenant, address, namespace, node, 400)
        before = resident(leader.pid)
        with ThreadPoolExecutor(8) as hands:
            made = list(
                hands.map(lambda number: tries(author, pods_of(namespace), long_quantity(number)), range(20))
            )
            assert not any(made)
            author.create(pods_of(namespace), pod("edited", container(memory="17Gi")))
            list(hands.map(lambda number: edits(author, namespace, number), range(40)))
            list(hands.map(lambda number: ends(api, author, namespace, number), range(80)))
        sends_to_server(cotenant, address, namespace, node, FLOOD)
        assert leader.running
        assert cotenant.leader() is leader
        assert resident(leader.pid) < before + 50 * 2**20
        _binds(api, innocent, "after", memory="1Gi")

    def test_by_annotations_that_leave_no_room_for_a_grant(
        self, author: Api, api: Api, cotenant: Installation, namespace: str, innocent: str, node: str
    ):
        """With them beyond 256 KiB, no status could be written any more: the pod would never end, its charge neither."""
        note = "example.com/note"
        with pytest.raises(Refused, match=r"metadata.annotations: .*remove or shorten"):
            author.create(
                pods_of(namespace), pod("full", container(memory="1Gi"), annotations={note: "x" * 240_000})
            )
        author.create(pods_of(namespace), pod("grows", container(memory="1Gi"), **GATED))
        path = f"{pods_of(namespace)}/grows"
        author.patch(path, {"metadata": {"annotations": {note: "x" * (2**18 - len(note))}}})
        author.patch(path, {"spec": {"schedulingGates": None}})
        api.until(
            f"/api/v1/namespaces/{namespace}/events",
            lambda seen: any("with the grant" in each["message"] for each in seen["items"]),
            30,
        )
        assert "nodeName" not in api.get(path)["spec"]
        _binds(api, innocent, "meanwhile", memory="16Gi")
        author.patch(path, {"metadata": {"annotations": {note: "short"}}})
        assert sum(hold.memory for _, hold in holds_of(bound(api, namespace, "grows", 60))) == GIB

    @pytest.mark.parametrize("kept", [{"cpu": "1000"}, NOWHERE], ids=["CPU", "node selector"])
    def test_by_pods_that_something_else_keeps_and_that_are_changed_for_ever(
        self, author: Api, api: Api, namespace: str, innocent: str, node: str, kept: Object
    ):
        """They could have the cards, are ahead in the line and overdue; but they never come to take them."""
        for number in range(2):
            api.create(pods_of(innocent), pod(f"first-{number}", container(whole="1")))
            running(api, innocent, f"first-{number}")
        asked, spec = ({}, kept) if "nodeSelector" in kept else (kept, {})
        away = [f"away-{number}" for number in range(10)]
        for name in away:
            author.create(pods_of(namespace), pod(name, container(memory="16Gi", **asked), **spec))
        time.sleep(PATIENCE + 2)
        api.create(pods_of(innocent), pod("next", container(memory="16Gi")))
        api.until(f"{pods_of(innocent)}/next", lambda seen: seen["status"].get("conditions"))
        api.delete(f"{pods_of(innocent)}/first-0", gracePeriodSeconds=0)
        end = time.monotonic() + 2 * SOON
        while "nodeName" not in api.get(f"{pods_of(innocent)}/next")["spec"]:
            assert time.monotonic() < end, "room is kept for pods that do not come"
            for name in away:
                note = {"metadata": {"annotations": {"example.com/note": str(time.monotonic())}}}
                author.patch(f"{pods_of(namespace)}/{name}", note)
            time.sleep(0.2)

    def test_by_taking_all_where_a_quota_says_how_much(
        self, author: Api, api: Api, namespace: str, innocent: str, node: str
    ):
        """It bounds what waits as well as what runs. Slots are counted too: a pod of one byte takes one."""
        hard = {
            f"requests.{MEMORY}": "8Gi",
            f"requests.{WHOLE}": "0",
            "requests.cotenant.dev/gpu-slot": "4",
            "requests.cotenant.dev/gpu-compute": "100",
        }
        path = f"/api/v1/namespaces/{namespace}/resourcequotas"
        api.create(path, {"metadata": {"name": "gpu"}, "spec": {"hard": hard}})
        api.until(f"{path}/gpu", lambda seen: seen.get("status", {}).get("hard"))
        asked: list[Object] = [
            *({"memory": "3Gi"} for _ in range(4)),
            {"whole": "1"},
            {"aliyun.com/gpu-mem": "3"},
            {"volcano.sh/gpu-number": "1"},
            {"memory": "1Gi", "compute": "101"},
            *({"memory": "1Ki"} for _ in range(6)),
        ]
        made = [
            tries(author, pods_of(namespace), pod(f"greedy-{number}", container(**each)))
            for number, each in enumerate(asked)
        ]
        assert made == [True, True, *[False] * 6, True, True, *[False] * 4]
        with pytest.raises(Refused, match="403"):
            author.patch(f"{path}/gpu", {"spec": {"hard": {f"requests.{MEMORY}": "1Ti"}}})
        for number in range(2):
            _binds(api, innocent, f"large-{number}", memory="9Gi")


def test_an_agents_token_touches_no_other_node(
    control_plane: ControlPlane, api: Api, cotenant: Installation, namespace: str, node: str, hollow_nodes
):
    hollow_nodes([hollow.node(f"hollow-own-{namespace}")])
    path = f"/api/v1/namespaces/{chart.NAMESPACE}/pods"
    own = plain("agent", nodeName=f"hollow-own-{namespace}", serviceAccountName="cotenant-agent")
    made = api.create(path, own)
    agent = as_account(
        control_plane,
        "cotenant-agent",
        {"apiVersion": "v1", "kind": "Pod", "name": "agent", "uid": made["metadata"]["uid"]},
    )
    lie = {
        "metadata": {"annotations": {"cotenant.dev/gpus": NO_CARDS}},
        "status": {"capacity": {MEMORY: "0"}},
    }
    agent.patch(f"/api/v1/nodes/hollow-own-{namespace}/status", lie)
    for part in ("", "/status"):
        with pytest.raises(Refused, match="403"):
            agent.patch(f"/api/v1/nodes/{node}{part}", lie)
    with pytest.raises(Refused, match="403"):
        agent.delete(f"/api/v1/nodes/{node}")
    api.delete(f"{path}/agent", gracePeriodSeconds=0)


def _released(author: Api, namespace: str, attempt: Attempt) -> None:
    """Takes the gate away, with what the author writes meanwhile; what only the server writes is refused."""
    path = f"{pods_of(namespace)}/{attempt.pod['metadata']['name']}"
    if attempt.later:
        with contextlib.suppress(Refused):
            author.patch(path, {"metadata": {"annotations": attempt.later}})
    author.patch(path, {"spec": {"schedulingGates": None}})


def _are_mostly_bound(found: Object, names: Collection[str]) -> bool:
    bound_to = {each["metadata"]["name"]: each["spec"].get("nodeName") for each in found["items"]}
    return sum(bool(bound_to.get(name)) for name in names) > len(names) / 2


def _is_decided(body: Object) -> bool:
    """Whether it is bound, or kube-scheduler has tried it without the gate and found no node."""
    tried = [each for each in body["status"].get("conditions", ()) if each["type"] == "PodScheduled"]
    return bool(body["spec"].get("nodeName")) or any(
        each["status"] == "False" and each.get("reason") != "SchedulingGated" for each in tried
    )


def _binds(api: Api, namespace: str, name: str, **asked: Any) -> Object:
    """A pod for which there is room is bound soon."""
    api.create(pods_of(namespace), pod(name, container(**asked)))
    return bound(api, namespace, name, SOON)

"""A pod of high priority evicts exactly the pods whose end opens a card for it, and nobody if nothing would."""

import json
import time
from collections.abc import Iterator

import pytest
from cluster.cotenant.gpunodes import GIB, gpu_node
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import bound, container, pod, pods_of, running
from cluster.cotenant.measuring import evictions
from cluster.testbed.api import Api, Object, Refused

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def cotenant(start_cotenant) -> Installation:
    installation: Installation = start_cotenant(servers=2, policies=True)
    for name, value in (("low", 0), ("middle", 500), ("high", 1000), ("polite", 1000)):
        policy = {"preemptionPolicy": "Never"} if name == "polite" else {}
        try:
            installation.api.create(
                "/apis/scheduling.k8s.io/v1/priorityclasses",
                {"metadata": {"name": name}, "value": value, **policy},
            )
        except Refused as refused:
            if refused.code != 409:
                raise
    return installation


@pytest.fixture(autouse=True)
def _nobody_is_left(api: Api, namespace: str) -> Iterator[None]:
    """One that waits in vain here would have the next test's pods evicted."""
    yield
    api.delete(pods_of(namespace))
    end = time.monotonic() + 30
    while api.items(pods_of(namespace)) and time.monotonic() < end:
        time.sleep(0.1)


@pytest.fixture
def full_node(cotenant: Installation, api: Api, namespace: str, hollow_nodes) -> str:
    """Two cards of 16 GiB: four pods of 4 GiB on one, two of 8 GiB on the other, each known to be where it is."""
    name = f"hollow-{namespace}"
    hollow_nodes([gpu_node(name, [16 * GIB, 16 * GIB])])
    for number in range(2):
        put(api, namespace, f"half-{number}", "8Gi", "low")
    for number in range(4):
        put(api, namespace, f"quarter-{number}", "4Gi", "low")
    return name


def put(api: Api, namespace: str, name: str, memory: str, priority: str, **spec: object) -> Object:
    api.create(pods_of(namespace), pod(name, container(memory=memory), priorityClassName=priority, **spec))
    return running(api, namespace, name, 30)


def card_of(seen: Object) -> str:
    (slot,) = json.loads(seen["metadata"]["annotations"]["cotenant.dev/grant"])["slots"]
    (share,) = slot["shares"]
    return str(share["uuid"])


def names(api: Api, namespace: str) -> set[str]:
    return {
        each["metadata"]["name"]
        for each in api.items(pods_of(namespace))
        if "deletionTimestamp" not in each["metadata"]
    }


def test_exactly_the_pods_that_open_a_card_are_evicted(full_node: str, api: Api, namespace: str):
    before = {each["metadata"]["name"]: each for each in api.items(pods_of(namespace))}
    assert len({card_of(each) for each in before.values()}) == 2
    api.create(pods_of(namespace), pod("urgent", container(memory="12Gi"), priorityClassName="high"))
    urgent = bound(api, namespace, "urgent", 30)
    evicted = before.keys() - names(api, namespace)
    freed = sum(
        int(
            before[name]["spec"]["containers"][0]["resources"]["limits"][
                "cotenant.dev/gpu-memory"
            ].removesuffix("Gi")
        )
        for name in evicted
    )
    assert {card_of(before[name]) for name in evicted} == {card_of(urgent)}
    assert freed in (12, 16), evicted
    time.sleep(5)
    assert before.keys() - names(api, namespace) == evicted, "once, and by one of the two ways"
    assert evicted <= {f"half-{n}" for n in range(2)} or evicted <= {f"quarter-{n}" for n in range(4)}
    assert len(evicted) == (2 if freed == 16 else 3)


def test_nobody_is_evicted_if_no_card_would_be_large_enough(full_node: str, api: Api, namespace: str):
    """The node's sum is: by that alone kube-scheduler would evict."""
    before = names(api, namespace)
    api.create(pods_of(namespace), pod("hopeless", container(memory="20Gi"), priorityClassName="high"))
    _tried(api, namespace, "hopeless")
    time.sleep(3)
    assert names(api, namespace) == before | {"hopeless"}
    assert "nodeName" not in api.get(f"{pods_of(namespace)}/hopeless")["spec"]


def test_nobody_is_evicted_for_one_who_has_no_more_priority(full_node: str, api: Api, namespace: str):
    before = names(api, namespace)
    api.create(pods_of(namespace), pod("equal", container(memory="12Gi"), priorityClassName="low"))
    _tried(api, namespace, "equal")
    time.sleep(3)
    assert names(api, namespace) == before | {"equal"}


def test_nobody_is_evicted_where_pods_that_must_stay_keep_every_card_too_full(
    cotenant: Installation, api: Api, namespace: str, hollow_nodes
):
    """On each card somebody of the same priority stays; the sum of the others' room would do, no card's does."""
    hollow_nodes([gpu_node(f"hollow-{namespace}", [16 * GIB, 16 * GIB])])
    for number in range(2):
        put(api, namespace, f"stays-{number}", "9Gi", "high")
    for number in range(2):
        put(api, namespace, f"low-{number}", "7Gi", "low")
    before = names(api, namespace)
    api.create(pods_of(namespace), pod("urgent", container(memory="10Gi"), priorityClassName="high"))
    _tried(api, namespace, "urgent")
    time.sleep(3)
    assert names(api, namespace) == before | {"urgent"}


class TestFragmented:
    """The node's sum would do, so kube-scheduler itself finds nobody to evict; no card's room does."""

    @pytest.fixture
    def node(self, cotenant: Installation, api: Api, namespace: str, hollow_nodes) -> str:
        """Two cards of 16 GiB with 10 taken on each: by one of low priority, by one of middle priority."""
        name = f"hollow-{namespace}"
        hollow_nodes([gpu_node(name, [16 * GIB, 16 * GIB])])
        for priority in ("low", "middle"):
            put(api, namespace, priority, "10Gi", priority)
        return name

    @pytest.mark.usefixtures("node")
    def test_exactly_the_one_that_opens_a_card_is_evicted(
        self, cotenant: Installation, api: Api, namespace: str
    ):
        leader = cotenant.leader()
        assert leader is not None
        before = evictions(cotenant.metrics(leader))
        card = card_of(api.get(f"{pods_of(namespace)}/low"))
        api.create(pods_of(namespace), pod("urgent", container(memory="12Gi"), priorityClassName="high"))
        assert card_of(bound(api, namespace, "urgent", 30)) == card
        time.sleep(5)
        assert names(api, namespace) == {"middle", "urgent"}
        reasons = {each["reason"] for each in api.items(f"/api/v1/namespaces/{namespace}/events")}
        assert {"EvictedForGPU", "EvictingForGPU"} <= reasons
        assert evictions(cotenant.metrics(leader)) - before == 1

    @pytest.mark.usefixtures("node")
    def test_nobody_is_evicted_for_what_no_card_could_ever_hold(self, api: Api, namespace: str):
        spread = {"gpu-count.cotenant.dev/main": "3"}
        hopeless = pod("hopeless", container(memory="12Gi"), priorityClassName="high", annotations=spread)
        api.create(pods_of(namespace), hopeless)
        _tried(api, namespace, "hopeless")
        time.sleep(8)
        assert names(api, namespace) == {"low", "middle", "hopeless"}

    def test_nobody_is_evicted_where_those_of_the_same_priority_keep_every_card_too_full(
        self, cotenant: Installation, api: Api, namespace: str, hollow_nodes
    ):
        hollow_nodes([gpu_node(f"hollow-{namespace}", [16 * GIB, 16 * GIB])])
        for number in range(2):
            put(api, namespace, f"stays-{number}", "9Gi", "high")
        for number in range(2):
            put(api, namespace, f"low-{number}", "2Gi", "low")
        before = names(api, namespace)
        api.create(pods_of(namespace), pod("urgent", container(memory="10Gi"), priorityClassName="high"))
        _tried(api, namespace, "urgent")
        time.sleep(8)
        assert names(api, namespace) == before | {"urgent"}

    @pytest.mark.usefixtures("node")
    def test_nobody_is_evicted_for_one_that_is_never_to_preempt(self, api: Api, namespace: str):
        polite = pod("polite", container(memory="12Gi"), priorityClassName="polite")
        api.create(pods_of(namespace), polite)
        _tried(api, namespace, "polite")
        time.sleep(8)
        assert names(api, namespace) == {"low", "middle", "polite"}

    @pytest.mark.usefixtures("node")
    def test_a_disruption_budget_is_kept_and_the_next_best_is_evicted(self, api: Api, namespace: str):
        api.patch(f"{pods_of(namespace)}/low", {"metadata": {"labels": {"kept": "yes"}}})
        budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"kept": "yes"}}}
        api.create(budgets, {"metadata": {"name": "kept"}, "spec": spec})
        api.until(f"{budgets}/kept", lambda seen: seen.get("status", {}).get("currentHealthy") == 1, 30)
        card = card_of(api.get(f"{pods_of(namespace)}/middle"))
        api.create(pods_of(namespace), pod("urgent", container(memory="12Gi"), priorityClassName="high"))
        assert card_of(bound(api, namespace, "urgent", 60)) == card
        assert names(api, namespace) == {"low", "urgent"}

    @pytest.mark.usefixtures("node")
    def test_while_the_evicted_takes_its_time_nobody_else_is_evicted_and_nobody_takes_the_room(
        self, api: Api, namespace: str
    ):
        own = f"{pods_of(namespace)}/low"
        card = card_of(api.patch(own, {"metadata": {"finalizers": ["cotenant.test/slow"]}}))
        api.create(pods_of(namespace), pod("urgent", container(memory="12Gi"), priorityClassName="high"))
        api.until(own, lambda seen: "deletionTimestamp" in seen["metadata"], 30)
        api.create(pods_of(namespace), pod("small", container(memory="5Gi"), priorityClassName="low"))
        assert card_of(bound(api, namespace, "small", 30)) != card
        time.sleep(8)
        assert names(api, namespace) == {"middle", "small", "urgent"}
        api.patch(own, {"metadata": {"finalizers": None}})
        assert card_of(bound(api, namespace, "urgent", 30)) == card
        assert names(api, namespace) == {"middle", "small", "urgent"}

    @pytest.mark.usefixtures("node")
    def test_a_leader_that_is_killed_meanwhile_leaves_it_to_the_next_and_nobody_else_is_evicted(
        self, cotenant: Installation, api: Api, namespace: str
    ):
        own = f"{pods_of(namespace)}/low"
        card = card_of(api.patch(own, {"metadata": {"finalizers": ["cotenant.test/slow"]}}))
        api.create(pods_of(namespace), pod("urgent", container(memory="12Gi"), priorityClassName="high"))
        api.until(own, lambda seen: "deletionTimestamp" in seen["metadata"], 30)
        killed = cotenant.leader()
        assert killed is not None
        killed.kill()
        while cotenant.leader() in {None, killed}:
            time.sleep(0.1)
        time.sleep(5)
        api.patch(own, {"metadata": {"finalizers": None}})
        assert card_of(bound(api, namespace, "urgent", 30)) == card
        assert names(api, namespace) == {"middle", "urgent"}
        killed.restart()
        cotenant.wait()

    @pytest.mark.usefixtures("node")
    def test_beside_a_node_that_is_full_by_its_sums_only_one_of_them_loses_a_pod(
        self, api: Api, namespace: str, hollow_nodes
    ):
        """kube-scheduler evicts on the full one, and asks us whom; then nothing is opened on the other."""
        hollow_nodes([gpu_node(f"hollow-{namespace}-full", [16 * GIB])])
        put(api, namespace, "full", "16Gi", "low")
        api.create(pods_of(namespace), pod("urgent", container(memory="12Gi"), priorityClassName="high"))
        bound(api, namespace, "urgent", 30)
        time.sleep(8)
        assert len(names(api, namespace)) == 3, "one of three is evicted"
        assert "middle" in names(api, namespace)

    @pytest.mark.usefixtures("node")
    def test_two_urgent_pods_open_a_card_each(self, api: Api, namespace: str):
        for number in range(2):
            urgent = pod(f"urgent-{number}", container(memory="11Gi"), priorityClassName="high")
            api.create(pods_of(namespace), urgent)
        cards = {card_of(bound(api, namespace, f"urgent-{number}", 40)) for number in range(2)}
        assert len(cards) == 2
        assert names(api, namespace) == {"urgent-0", "urgent-1"}


def _tried(api: Api, namespace: str, name: str) -> None:
    """Until the scheduler has refused it once."""
    api.until(f"{pods_of(namespace)}/{name}", lambda seen: seen["status"].get("conditions"), 30)

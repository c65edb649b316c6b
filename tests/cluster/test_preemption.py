"""A pod of high priority evicts exactly the pods whose end opens a card for it, and nobody if nothing would."""

import json
import time

import pytest
from cluster.cotenant.gpunodes import GIB, gpu_node
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import bound, container, pod, pods_of, running
from cluster.testbed.api import Api, Object, Refused

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def cotenant(start_cotenant) -> Installation:
    installation: Installation = start_cotenant(servers=1)
    for name, value in (("low", 0), ("middle", 500), ("high", 1000)):
        try:
            installation.api.create(
                "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value}
            )
        except Refused as refused:
            if refused.code != 409:
                raise
    return installation


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


def _tried(api: Api, namespace: str, name: str) -> None:
    """Until the scheduler has refused it once."""
    api.until(f"{pods_of(namespace)}/{name}", lambda seen: seen["status"].get("conditions"), 30)

"""Small pods that come later cannot starve a big one: after the line's patience, room is held for it."""

import time

import pytest
from cluster.cotenant.gpunodes import GIB, gpu_node
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import bound, container, pod, pods_of, running
from cluster.testbed.api import Api

pytestmark = pytest.mark.timeout(120)
PATIENCE = 3.0


@pytest.fixture(scope="module")
def cotenant(start_cotenant) -> Installation:
    started: Installation = start_cotenant(servers=1, settings={"line": {"patience": f"{PATIENCE:.0f}s"}})
    return started


def test_room_is_held_for_a_pod_that_has_waited_too_long(
    cotenant: Installation, api: Api, namespace: str, hollow_nodes
):
    hollow_nodes([gpu_node(f"hollow-{namespace}", [16 * GIB])])
    for number in range(4):
        api.create(pods_of(namespace), pod(f"first-{number}", container(memory="4Gi")))
        running(api, namespace, f"first-{number}")
    api.create(pods_of(namespace), pod("big", container(memory="16Gi")))
    time.sleep(PATIENCE + 3)
    for number in range(4):
        api.create(pods_of(namespace), pod(f"late-{number}", container(memory="4Gi")))
    for number in range(3):
        api.delete(f"{pods_of(namespace)}/first-{number}")
        api.until_gone(f"{pods_of(namespace)}/first-{number}")
    time.sleep(3)
    waiting = {
        each["metadata"]["name"] for each in api.items(pods_of(namespace)) if not each["spec"].get("nodeName")
    }
    assert waiting == {"big", *(f"late-{number}" for number in range(4))}
    api.delete(f"{pods_of(namespace)}/first-3")
    assert bound(api, namespace, "big", 15)
    api.delete(f"{pods_of(namespace)}/big")
    for number in range(4):
        assert bound(api, namespace, f"late-{number}", 15)


def test_a_pod_that_no_card_could_ever_hold_has_nothing_held_for_it(
    cotenant: Installation, api: Api, namespace: str, hollow_nodes
):
    hollow_nodes([gpu_node(f"hollow-{namespace}", [16 * GIB])])
    api.create(pods_of(namespace), pod("giant", container(memory="17Gi")))
    time.sleep(PATIENCE + 3)
    api.create(pods_of(namespace), pod("small", container(memory="4Gi")))
    assert bound(api, namespace, "small", 15)

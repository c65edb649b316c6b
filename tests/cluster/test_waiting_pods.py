"""Pods that wait cost nothing, are served when room appears, and one node that fits among many is found."""

import json
import time

import pytest
from cluster.cotenant.gpunodes import GIB, gpu_node
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import bound, container, pod, pods_of, running
from cluster.cotenant.measuring import attempts, filter_calls
from cluster.testbed.api import Api


@pytest.fixture(scope="module")
def cotenant(start_cotenant) -> Installation:
    started: Installation = start_cotenant(servers=2)
    return started


@pytest.mark.timeout(240)
def test_a_hundred_pods_that_wait_ask_at_most_twice_a_minute_while_nothing_happens(
    cotenant: Installation, api: Api, namespace: str, hollow_nodes
):
    hollow_nodes([gpu_node(f"hollow-{namespace}-{number}", [16 * GIB]) for number in range(4)])
    for number in range(4):
        api.create(pods_of(namespace), pod(f"full-{number}", container(memory="16Gi")))
        running(api, namespace, f"full-{number}")
    for number in range(100):
        api.create(pods_of(namespace), pod(f"waits-{number}", container(memory=f"{1 + number % 8}Gi")))
    for number in range(100):
        api.until(f"{pods_of(namespace)}/waits-{number}", lambda seen: seen["status"].get("conditions"))
    time.sleep(5)
    leader = cotenant.leader()
    assert leader is not None
    calls, tries = filter_calls(cotenant.metrics(leader)), attempts(cotenant.control_plane)
    time.sleep(60)
    assert filter_calls(cotenant.metrics(leader)) - calls <= 2 * 100
    assert attempts(cotenant.control_plane) - tries <= 2 * 100, "by kube-scheduler's own count"
    api.delete(f"{pods_of(namespace)}/full-0")
    served = api.until(
        pods_of(namespace),
        lambda seen: (
            sum(
                int(
                    each["spec"]["containers"][0]["resources"]["limits"][
                        "cotenant.dev/gpu-memory"
                    ].removesuffix("Gi")
                )
                for each in seen["items"]
                if each["spec"].get("nodeName") == f"hollow-{namespace}-0"
                or (each["metadata"]["name"].startswith("waits") and each["spec"].get("nodeName"))
            )
            >= 15
        ),
        seconds=15,
    )
    assert served


@pytest.mark.timeout(240)
def test_the_one_node_of_1500_that_fits_is_found_by_12_of_12(
    cotenant: Installation, api: Api, namespace: str, hollow_nodes
):
    """Every node's sum would do, only one has a card that does."""
    nodes = [gpu_node(f"hollow-{namespace}-{number}", [8 * GIB, 8 * GIB]) for number in range(1499)]
    right = f"hollow-{namespace}-right"
    hollow_nodes([*nodes, gpu_node(right, [80 * GIB, 80 * GIB])])
    for number in range(12):
        api.create(pods_of(namespace), pod(f"pod-{number}", container(memory="10Gi")))
    found = [bound(api, namespace, f"pod-{number}", 60)["spec"]["nodeName"] for number in range(12)]
    assert found == [right] * 12


def test_a_demand_bigger_than_any_card_says_so(
    cotenant: Installation, api: Api, namespace: str, hollow_nodes
):
    hollow_nodes([gpu_node(f"hollow-{namespace}", [16 * GIB, 16 * GIB])])
    api.create(pods_of(namespace), pod("giant", container(memory="17Gi")))
    events = api.until(
        f"/api/v1/namespaces/{namespace}/events",
        lambda seen: any(
            "17Gi" in each.get("message", "") and each["source"].get("component") == "cotenant"
            for each in seen["items"]
        ),
        seconds=20,
    )
    assert "16Gi" in json.dumps(events)

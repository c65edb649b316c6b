"""The judge of the other tests sees what is wrong, and nothing else."""

import json
import time
from collections.abc import Callable

import pytest
from cluster.cotenant.auditor import Auditor
from cluster.cotenant.gpunodes import GIB, gpu_node, uuid_of
from cluster.cotenant.manifests import container, pod, pods_of
from cluster.testbed import hollow
from cluster.testbed.api import Api


@pytest.fixture
def node(namespace: str) -> str:
    """A name of its own: pods of a test before this one may still be on their way out."""
    return f"hollow-{namespace}"


def bind(api: Api, node: str, name: str, gib: int, *, card: int = 0, whole: bool = False) -> None:
    """As the server does it, but without looking whether there is room."""
    namespace = node.removeprefix("hollow-")
    made = api.create(pods_of(namespace), pod(name, container(memory=f"{gib}Gi"), schedulerName="nobody"))
    uid = made["metadata"]["uid"]
    share = {"uuid": uuid_of(node, card), "memory": gib * GIB, **({"whole": True} if whole else {})}
    grant = {"version": 1, "uid": uid, "slots": [{"container": "main", "shares": [share]}]}
    binding = {
        "metadata": {"name": name, "uid": uid, "annotations": {"cotenant.dev/grant": json.dumps(grant)}},
        "target": {"kind": "Node", "name": node},
    }
    api.create(f"{pods_of(namespace)}/{name}/binding", binding)


def until(true: Callable[[], object], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def held(auditor: Auditor, node: str) -> int:
    """Bytes on this node: pods of the test before may still be leaving theirs."""
    return sum(size for place, size in auditor.charges().items() if place[0] == node)


def test_a_card_that_is_full_is_no_violation(api: Api, namespace: str, node: str, hollow_nodes):
    hollow_nodes([gpu_node(node, [16 * GIB, 16 * GIB])])
    with Auditor(api) as auditor:
        for number in range(4):
            bind(api, node, f"quarter-{number}", 4)
        bind(api, node, "whole", 16, card=1, whole=True)
        until(lambda: held(auditor, node) == 32 * GIB)
        assert auditor.violations == []


def test_a_byte_too_much_is_seen_although_the_pod_is_deleted_at_once(
    api: Api, namespace: str, node: str, hollow_nodes
):
    hollow_nodes([gpu_node(node, [16 * GIB])])
    with Auditor(api) as auditor:
        bind(api, node, "most", 15)
        bind(api, node, "rest", 2)
        api.delete(f"{pods_of(namespace)}/rest", gracePeriodSeconds=0)
        until(lambda: auditor.violations)
        assert "are granted of" in auditor.violations[0]


def test_a_whole_card_that_is_shared_is_seen(api: Api, namespace: str, node: str, hollow_nodes):
    hollow_nodes([gpu_node(node, [16 * GIB])])
    with Auditor(api) as auditor:
        bind(api, node, "whole", 1, whole=True)
        bind(api, node, "guest", 1)
        until(lambda: auditor.violations)
        assert "a whole card is shared" in auditor.violations[0]


def test_a_grant_on_a_card_that_is_not_there_is_seen(api: Api, namespace: str, node: str, hollow_nodes):
    hollow_nodes([gpu_node(node, [16 * GIB])])
    with Auditor(api) as auditor:
        bind(api, node, "lost", 1, card=7)
        until(lambda: auditor.violations)
        assert "has no card" in auditor.violations[0]


def test_a_grant_that_is_changed_later_is_seen(api: Api, namespace: str, node: str, hollow_nodes):
    hollow_nodes([gpu_node(node, [16 * GIB])])
    with Auditor(api) as auditor:
        bind(api, node, "grows", 1)
        until(lambda: held(auditor, node) == GIB)
        seen = api.get(f"{pods_of(namespace)}/grows")["metadata"]["annotations"]["cotenant.dev/grant"]
        more = seen.replace(str(GIB), str(2 * GIB))
        api.patch(f"{pods_of(namespace)}/grows", {"metadata": {"annotations": {"cotenant.dev/grant": more}}})
        until(lambda: auditor.violations)
        assert "became" in auditor.violations[0]


def test_a_grant_ends_with_the_pod_and_outlives_its_node(api: Api, namespace: str, node: str, hollow_nodes):
    hollow_nodes([gpu_node(node, [16 * GIB])])
    with Auditor(api) as auditor:
        bind(api, node, "stays", 10)
        until(lambda: held(auditor, node))
        hollow.remove(api, [node])
        hollow.add(api, [gpu_node(node, [16 * GIB])])
        bind(api, node, "too-much", 10)
        until(lambda: auditor.violations)
        for name in ("stays", "too-much"):
            api.delete(f"{pods_of(namespace)}/{name}")
        until(lambda: not held(auditor, node))


def test_a_pod_that_nobody_binds_although_there_is_room_is_a_long_wait(
    api: Api, namespace: str, node: str, hollow_nodes
):
    hollow_nodes([gpu_node(node, [16 * GIB])])
    with Auditor(api) as auditor:
        bind(api, node, "full", 16)
        until(lambda: held(auditor, node) == 16 * GIB)
        api.create(pods_of(namespace), pod("waits", container(memory="2Gi"), schedulerName="nobody"))
        until(lambda: auditor.waiting() == ["waits"])
        time.sleep(0.5)
        assert auditor.waits == []
        api.delete(f"{pods_of(namespace)}/full")
        until(lambda: not held(auditor, node))
        time.sleep(1)
        api.delete(f"{pods_of(namespace)}/waits")
        until(lambda: auditor.waits)
        assert 0.7 < auditor.waits[0].seconds < 3
        assert not auditor.waits[0].bound

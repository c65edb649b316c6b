"""What a running server and a real kube-scheduler make of messages, annotations and clocks that are wrong."""

import json
import time
from typing import Any

import pytest
from cluster.cotenant.auditor import Auditor
from cluster.cotenant.gpunodes import GIB, gpu_node, uuid_of
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import MEMORY, bound, container, pod, pods_of, running
from cluster.testbed.api import Api, Object, Refused

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def cotenant(start_cotenant) -> Installation:
    started: Installation = start_cotenant(servers=1)
    return started


@pytest.fixture
def node(api: Api, namespace: str, hollow_nodes) -> str:
    name = f"hollow-{namespace}"
    hollow_nodes([gpu_node(name, [16 * GIB, 16 * GIB])])
    return name


def ask(cotenant: Installation, verb: str, body: Any) -> tuple[int, Any]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, answer = cotenant.asks_extender(cotenant.addresses[0], f"/{verb}", raw)
    return status, json.loads(answer)


def event(api: Api, namespace: str, name: str, *words: str, seconds: float = 20) -> str:
    """What Cotenant tells about the pod, once it holds these words."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        said = [
            each["message"]
            for each in api.items(f"/api/v1/namespaces/{namespace}/events")
            if each["involvedObject"]["name"] == name and each["source"].get("component") == "cotenant"
        ]
        found = [text for text in said if all(word in text for word in words)]
        if found:
            return found[0]
        time.sleep(0.1)
    raise AssertionError(f"no event with {words} on {name}, only {said}")


@pytest.mark.parametrize("verb", ["filter", "choose", "prioritize", "preempt", "bind"])
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"[]", b'{"Pod": 3}', b"\xff\xfe", b"[" * 100_000, b'{"NodeNames": ["a"]}'],
    ids=["nothing", "half", "null", "list", "number", "bytes", "deep", "no pod"],
)
def test_a_message_that_makes_no_sense_is_refused_with_a_reason(
    verb: str, body: bytes, cotenant: Installation
):
    status, answer = ask(cotenant, verb, body)
    assert status == 400
    assert answer["Error"]


def test_keys_may_be_in_any_case(cotenant: Installation, api: Api, namespace: str, node: str):
    made = api.create(
        pods_of(namespace), pod("it", container(memory="4Gi"), schedulingGates=[{"name": "example.com/wait"}])
    )
    _until_known(cotenant, node)
    for keys in (("Pod", "NodeNames"), ("pod", "nodenames"), ("pod", "nodeNames"), ("POD", "NODENAMES")):
        status, answer = ask(cotenant, "filter", dict(zip(keys, (made, [node, "nowhere"]), strict=True)))
        assert status == 200
        assert answer["NodeNames"] == [node]


def test_a_body_of_5000_nodes_is_answered(cotenant: Installation, api: Api, namespace: str, node: str):
    made = api.create(
        pods_of(namespace), pod("it", container(memory="4Gi"), schedulingGates=[{"name": "example.com/wait"}])
    )
    _until_known(cotenant, node)
    names = [f"node-with-a-long-name-{number:05}.example.com" for number in range(4999)]
    status, answer = ask(cotenant, "filter", {"Pod": made, "NodeNames": [*names, node]})
    assert status == 200
    assert answer["NodeNames"] == [node]
    refused = {**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}
    assert len(refused) == 4999


def test_a_node_whose_annotation_lies_gets_no_pod(
    cotenant: Installation, api: Api, namespace: str, node: str
):
    """Its capacity says that there is room; nobody knows on which card."""
    api.patch(
        f"/api/v1/nodes/{node}",
        {"metadata": {"annotations": {"cotenant.dev/gpus": '{"version": 1, "cards": ['}}},
    )
    api.create(pods_of(namespace), pod("it", container(memory="4Gi")))
    event(api, namespace, "it", "4Gi")
    assert "nodeName" not in api.get(f"{pods_of(namespace)}/it")["spec"]
    whole = gpu_node(node, [16 * GIB])["metadata"]["annotations"]["cotenant.dev/gpus"]
    api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {"cotenant.dev/gpus": whole}}})
    assert bound(api, namespace, "it", 15)


def test_a_pod_that_brings_a_grant_along_has_none(
    cotenant: Installation, api: Api, namespace: str, node: str
):
    share = {"uuid": uuid_of(node, 0), "memory": 16 * GIB}
    lie = {"version": 1, "uid": "mine", "slots": [{"container": "main", "shares": [share]}]}
    made = api.create(
        pods_of(namespace),
        pod(
            "it",
            container(memory="1Gi"),
            annotations={
                "cotenant.dev/grant": json.dumps(lie),
                "devices.cotenant.dev/main": uuid_of(node, 0),
            },
        ),
    )
    assert (
        not {"cotenant.dev/grant", "devices.cotenant.dev/main"}
        & made["metadata"].get("annotations", {}).keys()
    )
    seen = running(api, namespace, "it")
    grant = json.loads(seen["metadata"]["annotations"]["cotenant.dev/grant"])
    assert grant["uid"] == seen["metadata"]["uid"]
    assert [each["memory"] for slot in grant["slots"] for each in slot["shares"]] == [GIB]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"memory": "4Gi", "aliyun.com/gpu-mem": "4"}, ("aliyun.com/gpu-mem", MEMORY)),
        ({"memory": "4Gi", "whole": "1"}, ("cotenant.dev/gpu",)),
        ({"aliyun.com/gpu-count": "1"}, ("aliyun.com/gpu-count",)),
        ({"cotenant.dev/gpu-memori": "4Gi"}, ("did you mean", MEMORY)),
    ],
)
def test_a_demand_that_makes_no_sense_is_refused_when_the_pod_is_created(
    asked: dict[str, str], words: tuple[str, ...], cotenant: Installation, api: Api, namespace: str
):
    with pytest.raises(Refused) as refused:
        api.create(pods_of(namespace), pod("it", container(**asked)))
    for word in words:
        assert word in str(refused.value)


def test_two_pods_that_were_promised_the_same_room_do_not_both_get_it(
    cotenant: Installation, api: Api, namespace: str, hollow_nodes
):
    name = f"hollow-{namespace}"
    hollow_nodes([gpu_node(name, [16 * GIB])])
    with Auditor(api) as auditor:
        for number in range(20):
            api.create(pods_of(namespace), pod(f"half-{number}", container(memory="8Gi")))
        time.sleep(5)
        placed = [each for each in api.items(pods_of(namespace)) if each["spec"].get("nodeName")]
        assert len(placed) == 2
        assert auditor.violations == []


def test_a_pod_that_ends_gives_its_room_back_and_one_that_is_leaving_does_not_yet(
    cotenant: Installation, api: Api, namespace: str, hollow_nodes
):
    name = f"hollow-{namespace}"
    hollow_nodes([gpu_node(name, [16 * GIB])])
    with Auditor(api) as auditor:
        body = pod("leaving", container(memory="16Gi"))
        body["metadata"]["finalizers"] = ["example.com/stay"]
        api.create(pods_of(namespace), body)
        running(api, namespace, "leaving")
        api.create(pods_of(namespace), pod("next", container(memory="16Gi")))
        api.delete(f"{pods_of(namespace)}/leaving")
        time.sleep(3)
        assert "nodeName" not in api.get(f"{pods_of(namespace)}/next")["spec"], "its containers may still run"
        _end(api, namespace, "leaving")
        assert bound(api, namespace, "next", 15)
        assert auditor.violations == []
        api.patch(f"{pods_of(namespace)}/leaving", {"metadata": {"finalizers": None}})


def _end(api: Api, namespace: str, name: str) -> Object:
    return api.patch(f"{pods_of(namespace)}/{name}/status", {"status": {"phase": "Succeeded"}})


def _until_known(cotenant: Installation, node: str) -> None:
    end = time.monotonic() + 10
    while node not in {each["name"] for each in cotenant.inspect()["nodes"]}:
        assert time.monotonic() < end
        time.sleep(0.05)

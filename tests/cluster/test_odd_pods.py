"""Pods that the API server takes and nobody expects: each is charged exactly what it asks for, or refused with the field."""

import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from cluster.cotenant.accounts import holds_of
from cluster.cotenant.auditor import Auditor
from cluster.cotenant.gpunodes import GIB, gpu_node, uuid_of
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import COMPUTE, MEMORY, WHOLE, bound, container, pod, pods_of
from cluster.testbed.api import Api, Object, Refused

pytestmark = pytest.mark.timeout(120)
MIB = 2**20
ALIYUN, VOLCANO = "aliyun.com/gpu-mem", "volcano.sh/gpu-memory"
LARGEST = 2**63 - 1
CARDS = [16 * GIB] * 8


@pytest.fixture(scope="module")
def cotenant(start_cotenant) -> Installation:
    started: Installation = start_cotenant(servers=1)
    return started


@dataclass(frozen=True)
class Odd:
    """A pod, and the bytes that each of its containers is to hold."""

    containers: list[Object]
    holds: dict[str, int]
    init: list[Object] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)

    def pod(self, name: str) -> Object:
        return pod(name, *self.containers, init=self.init, annotations=self.annotations)


def one(text: str, size: int, resource: str = MEMORY, **annotations: str) -> Odd:
    return Odd([container(**{resource: text})], {"main": size}, annotations=annotations)


def lying(annotations: dict[str, str], resource: str = MEMORY, text: str = "1Gi") -> Odd:
    return Odd([container(**{resource: text})], {"main": GIB}, annotations=annotations)


def odd_pods() -> dict[str, Odd]:
    forged = {"version": 1, "uid": "mine", "slots": []}
    return {
        "exponent": one("2e9", 2 * 10**9),
        "exponent-with-sign": one("1E+9", 10**9),
        "negative-exponent": one("3000000000e-3", 3_000_000),
        "decimal-units": one("4096M", 4_096_000_000),
        "part-of-a-unit": one("1.5Gi", 3 * GIB // 2),
        "no-digit-before-the-point": one(".5Gi", GIB // 2),
        "no-digit-after-the-point": one("1.Gi", GIB),
        "plus": one("+1Gi", GIB),
        "leading-zeros": one("007Mi", 7 * MIB),
        "thousandths": one("3145728000m", 3 * MIB),
        "bytes-without-a-unit": one("1048576", MIB),
        "a-byte-more-than-a-unit": one("1073741825", GIB + 1),
        "odd-bytes-over-two-cards": one("1073741825", GIB, **{"gpu-count.cotenant.dev/main": "2"}),
        "a-count-with-an-exponent": one("4Gi", 4 * GIB, **{"gpu-count.cotenant.dev/main": "2e0"}),
        "aliyun-with-an-exponent": one("2e0", 2 * GIB, ALIYUN),
        "aliyun-in-thousandths": one("2000m", 2 * GIB, ALIYUN),
        "volcano-in-thousands": one("1k", 1000 * MIB, VOLCANO),
        "volcano-in-binary-thousands": one("1Ki", 1024 * MIB, VOLCANO),
        "compute-with-an-exponent": Odd([container(memory="1Gi", compute="1e1")], {"main": GIB}),
        "native-beside-dialects": Odd(
            [
                container("a", memory="1Gi"),
                container("b", **{ALIYUN: "2"}),
                container("c", **{VOLCANO: "1024"}),
                container("d"),
            ],
            {"a": GIB, "b": 2 * GIB, "c": GIB},
        ),
        "native-and-a-dialect-that-asks-for-none": Odd(
            [container(**{MEMORY: "1Gi", ALIYUN: "0"})], {"main": GIB}
        ),
        "thirty-two-containers": Odd(
            [container(f"c{number}", memory=f"{number + 1}Mi") for number in range(32)],
            {f"c{number}": (number + 1) * MIB for number in range(32)},
        ),
        "an-init-container-that-is-larger": Odd(
            [container(memory="1Gi")], {"main": 3 * 10**9}, init=[container("init", memory="3G")]
        ),
        "a-dialect-in-an-init-container": Odd(
            [container()], {"main": 2 * GIB}, init=[container("init", **{ALIYUN: "2"})]
        ),
        "a-grant-brought-along": lying({"cotenant.dev/grant": str(forged).replace("'", '"')}),
        "devices-brought-along": lying(
            {"devices.cotenant.dev/main": "all", "compute.cotenant.dev/main": "100"}
        ),
        "aliyun-already-assigned": lying(
            {
                "ALIYUN_COM_GPU_MEM_IDX": "7",
                "ALIYUN_COM_GPU_MEM_POD": "0",
                "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
                "scheduler.framework.gpushare.allocation": '{"0":{"7":0}}',
            },
            ALIYUN,
            "1",
        ),
        "volcano-already-assigned": lying(
            {"volcano.sh/gpu-index": "7", "volcano.sh/gpu-assigned": "true"}, VOLCANO, "1Ki"
        ),
        "an-annotation-that-asks-for-less": lying({f"limits.{MEMORY}": "1", ALIYUN: "1"}),
    }


def test_each_is_charged_exactly_what_it_asks_for(
    cotenant: Installation, api: Api, namespace: str, hollow_nodes
):
    node = f"hollow-{namespace}"
    hollow_nodes([gpu_node(node, CARDS)])
    pods = odd_pods()
    with Auditor(api) as auditor:
        for name, each in pods.items():
            api.create(pods_of(namespace), each.pod(name))
        seen = {name: bound(api, namespace, name, 30) for name in pods}
        held = {name: _held(each) for name, each in seen.items()}
        assert held == {name: each.holds for name, each in pods.items()}
        assert auditor.violations == []
        charged = cotenant.state(cotenant.servers[0])["charged"]
        for name, each in pods.items():
            found = charged[seen[name]["metadata"]["uid"]]
            assert sum(found["gpus"].values()) == sum(each.holds.values()), name
        assert _sums(api, namespace) == sum(sum(each.holds.values()) for each in pods.values())


def _held(seen: Object) -> dict[str, int]:
    found: dict[str, int] = {}
    for _, hold in holds_of(seen):
        found[hold.container] = found.get(hold.container, 0) + hold.memory
    return found


def _sums(api: Api, namespace: str) -> int:
    return sum(hold.memory for each in api.items(pods_of(namespace)) for _, hold in holds_of(each))


def test_one_that_asks_for_none_is_no_concern_of_ours(cotenant: Installation, api: Api, namespace: str):
    for name, text in (
        ("zero", "0"),
        ("minus-zero", "-0"),
        ("no-gibibytes", "0Gi"),
        ("zero-exponent", "0e9"),
    ):
        made = api.create(pods_of(namespace), pod(name, container(**{MEMORY: text, ALIYUN: text})))
        assert made["spec"]["schedulerName"] == "default-scheduler", name
        assert "cotenant.dev/gpu-slot" not in made["spec"]["containers"][0]["resources"]["limits"], name


@pytest.mark.parametrize("text", [str(LARGEST), "8Ei", "9E"])
def test_one_that_asks_for_more_than_any_card_has_waits_and_is_told_so(
    text: str, cotenant: Installation, api: Api, namespace: str, hollow_nodes
):
    """The API server takes what is more than it can count for the most that it can."""
    hollow_nodes([gpu_node(f"hollow-{namespace}", [16 * GIB])])
    api.create(pods_of(namespace), pod("giant", container(memory=text)))
    events = f"/api/v1/namespaces/{namespace}/events"
    api.until(events, lambda seen: any("16Gi" in each["message"] for each in seen["items"]), 20)
    assert "nodeName" not in api.get(f"{pods_of(namespace)}/giant")["spec"]
    api.create(pods_of(namespace), pod("small", container(memory="16Gi")))
    assert bound(api, namespace, "small", 20)


def asks(*, init: list[Object] | None = None, requests: Any = None, **asked: str) -> Object:
    body = container(**asked)
    if requests is not None:
        body.setdefault("resources", {})["requests"] = requests
    return pod("it", body, init=init or ())


def notes(annotations: dict[str, str], **asked: str) -> Object:
    return pod("it", container(**(asked or {"memory": "4Gi"})), annotations=annotations)


COUNT = "gpu-count.cotenant.dev/main"
OF_MEMORY = f"container 'main': {MEMORY}"
REFUSED: dict[str, tuple[Object, str]] = {
    "half a byte": (asks(memory="0.5"), OF_MEMORY),
    "a thousandth": (asks(memory="1m"), OF_MEMORY),
    "a part of a byte": (asks(memory="1.0000000001Gi"), OF_MEMORY),
    "below zero": (asks(memory="-1"), OF_MEMORY),
    "below zero with a unit": (asks(memory="-4Gi"), OF_MEMORY),
    "more than can be counted": (asks(memory="1e30"), OF_MEMORY),
    "four bytes": (asks(memory="4"), f"{OF_MEMORY}: '4' is 4 bytes, since it has no unit: did you mean 4Gi?"),
    "mebibytes for gibibytes": (asks(**{ALIYUN: "3803"}), "dialects.aliyun.unit to MiB"),
    "a misspelt wish": (
        notes({"cotenant.dev/gpu-modle": "A100"}),
        "annotation cotenant.dev/gpu-modle is not known: did you mean cotenant.dev/gpu-model?",
    ),
    "more cards than a slot has": (asks(whole="17"), f"container 'main': {WHOLE}: 17 GPUs are more than"),
    "memory on more cards than a slot has": (notes({COUNT: "17"}), f"annotation {COUNT}: '17' is not"),
    "a resource as an annotation": (notes({MEMORY: "1"}), f"annotation {MEMORY}: this is a resource"),
    "half a card": (asks(whole="0.5"), f"container 'main': {WHOLE}"),
    "a card below zero": (asks(whole="-1"), f"container 'main': {WHOLE}"),
    "more cards than there are": (asks(whole="1e9"), f"container 'main': {WHOLE}"),
    "more compute than there is": (asks(memory="1Gi", compute="101"), f"container 'main': {COMPUTE}"),
    "compute in gibibytes": (asks(memory="1Gi", compute="1Gi"), f"container 'main': {COMPUTE}"),
    "compute alone": (asks(compute="50"), f"container 'main': {COMPUTE}"),
    "half of aliyun's unit": (asks(**{ALIYUN: "0.5"}), f"container 'main': {ALIYUN}"),
    "aliyun below zero": (asks(**{ALIYUN: "-3"}), f"container 'main': {ALIYUN}"),
    "more of aliyun's unit than can be counted": (asks(**{ALIYUN: "1e18"}), f"container 'main': {ALIYUN}"),
    "more of volcano's unit than can be counted": (asks(**{VOLCANO: "8Ei"}), f"container 'main': {VOLCANO}"),
    "native and a dialect": (asks(**{MEMORY: "4Gi", VOLCANO: "4096"}), f"{MEMORY} and {VOLCANO}"),
    "two dialects": (asks(**{ALIYUN: "4", VOLCANO: "4096"}), f"{ALIYUN} and {VOLCANO}"),
    "volcano's card and memory": (
        asks(**{VOLCANO: "4096", "volcano.sh/gpu-number": "1"}),
        "volcano.sh/gpu-number",
    ),
    "an unknown name": (asks(**{"cotenant.dev/gpu-memory-mib": "4096"}), "cotenant.dev/gpu-memory-mib"),
    "a slot by hand": (asks(memory="1Gi", **{"cotenant.dev/gpu-slot": "2"}), "cotenant.dev/gpu-slot"),
    "only a slot": (asks(**{"cotenant.dev/gpu-slot": "1"}), "cotenant.dev/gpu-slot"),
    "a request that is less": (asks(memory="4Gi", requests={MEMORY: "1Gi"}), OF_MEMORY),
    "a request without a limit": (asks(requests={MEMORY: "1Gi"}), OF_MEMORY),
    "too many containers": (
        pod("it", *(container(f"c{number}", memory="1Mi") for number in range(33))),
        "spec: 33 containers",
    ),
    "an init container below zero": (
        asks(memory="1Gi", init=[container("init", memory="-1Gi")]),
        f"container 'init': {MEMORY}",
    ),
    "no cards": (notes({COUNT: "0"}), f"annotation {COUNT}"),
    "cards below zero": (notes({COUNT: "-1"}), f"annotation {COUNT}"),
    "half a card more": (notes({COUNT: "1.5"}), f"annotation {COUNT}"),
    "cards in words": (notes({COUNT: "two"}), f"annotation {COUNT}"),
    "more cards than can be counted": (notes({COUNT: "1e99"}), f"annotation {COUNT}"),
    "cards for nobody": (
        notes({"gpu-count.cotenant.dev/other": "2"}),
        "annotation gpu-count.cotenant.dev/other",
    ),
    "cards for whole cards": (notes({COUNT: "2"}, whole="1"), COUNT),
    "fewer bytes than cards": (notes({COUNT: "2"}, memory="1"), OF_MEMORY),
    "an unknown placement": (notes({"cotenant.dev/placement": "best"}), "annotation cotenant.dev/placement"),
    "an unknown mode": (notes({"cotenant.dev/enforce": "never"}), "annotation cotenant.dev/enforce"),
    "models without a name": (
        notes({"cotenant.dev/gpu-model": "A100,,"}),
        "annotation cotenant.dev/gpu-model",
    ),
}


@pytest.mark.parametrize("why", list(REFUSED))
def test_one_that_makes_no_sense_is_refused_with_the_field(
    why: str, cotenant: Installation, api: Api, namespace: str
):
    body, words = REFUSED[why]
    with pytest.raises(Refused) as refused:
        api.create(pods_of(namespace), body)
    assert "denied the request" in str(refused.value)
    assert words in str(refused.value)


@pytest.mark.parametrize("text", ["4GI", "4 Gi", "4GiB", "Infinity", "NaN", "0x10", "1e", "", "٤Gi"])
def test_what_is_no_quantity_never_becomes_a_pod(text: str, cotenant: Installation, api: Api, namespace: str):
    """The API server itself does not take it, before anybody is asked."""
    with pytest.raises(Refused, match="quantit"):
        api.create(pods_of(namespace), asks(memory=text))
    assert api.items(pods_of(namespace)) == []


def test_wishes_for_cards_that_do_not_exist_wait_and_do_not_take_others(
    cotenant: Installation, api: Api, namespace: str, hollow_nodes
):
    node = f"hollow-{namespace}"
    hollow_nodes([gpu_node(node, [16 * GIB])])
    wishes = {
        "uuid": {"cotenant.dev/gpu-uuid": "GPU-none"},
        "uuids": {"cotenant.dev/gpu-uuid": f"{uuid_of(node, 0)[:-1]},all,0"},
        "model": {"cotenant.dev/gpu-model": "*"},
    }
    for name, annotations in wishes.items():
        api.create(pods_of(namespace), pod(name, container(memory="1Gi"), annotations=annotations))
    api.create(pods_of(namespace), pod("plain", container(memory="16Gi")))
    bound(api, namespace, "plain", 20)
    time.sleep(0.5)
    placed = {
        each["metadata"]["name"] for each in api.items(pods_of(namespace)) if each["spec"].get("nodeName")
    }
    assert placed == {"plain"}

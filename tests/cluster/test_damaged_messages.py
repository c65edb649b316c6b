"""Messages damaged at random, sent to a running server: each is answered, and nothing else comes of it."""

import base64
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cluster.cotenant.damage import CASES, SEED, Damaged, Sender, damaged
from cluster.cotenant.gpunodes import GIB, gpu_node
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import MEMORY, bound, container, pod, pods_of, running
from cluster.testbed.api import Api, Object

pytestmark = pytest.mark.timeout(120)
GATED = {"schedulingGates": [{"name": "example.com/wait"}]}
LEASE = "/apis/coordination.k8s.io/v1/namespaces/cotenant-system/leases/cotenant-server"
OWN_MISTAKES = ("Traceback", "an error of Cotenant itself", "pod not reviewed")


@pytest.fixture(scope="module")
def cotenant(start_cotenant) -> Installation:
    started: Installation = start_cotenant(servers=1)
    return started


@pytest.fixture
def node(cotenant: Installation, api: Api, namespace: str, hollow_nodes) -> str:
    """With a pod that runs there, so that there is something in the ledger to be damaged."""
    name = f"hollow-{namespace}"
    hollow_nodes([gpu_node(name, [16 * GIB, 16 * GIB])])
    api.create(pods_of(namespace), pod("runs", container(memory="10Gi")))
    running(api, namespace, "runs")
    return name


@pytest.fixture
def asking(api: Api, namespace: str) -> Object:
    """A pod that nobody can bind, however well a message asks for it."""
    body = pod("asks", container(memory="12Gi", compute="50"), container("other"), **GATED)
    made = api.create(pods_of(namespace), body)
    del made["metadata"]["managedFields"]
    return made


def messages(api: Api, namespace: str, node: str, asking: Object) -> dict[str, Object]:
    """What kube-scheduler would send, by verb."""
    meta = asking["metadata"]
    victim = api.get(f"{pods_of(namespace)}/runs")["metadata"]["uid"]
    urgent = {**asking, "spec": {**asking["spec"], "priority": 1000}}
    asked = {"Pod": asking, "Nodes": None, "NodeNames": [node, "nowhere"]}
    return {
        "filter": asked,
        "choose": asked,
        "prioritize": asked,
        "preempt": {
            "Pod": urgent,
            "NodeNameToVictims": None,
            "NodeNameToMetaVictims": {node: {"Pods": [{"UID": victim}], "NumPDBViolations": 0}},
        },
        "bind": {"PodName": "asks", "PodNamespace": namespace, "PodUID": meta["uid"], "Node": node},
    }


@contextmanager
def unhurt(cotenant: Installation, api: Api, namespace: str, node: str, asking: Object) -> Iterator[None]:
    """Afterwards the server leads as before, has charged what it had, made no mistake, and places a pod."""
    (server,) = cotenant.servers
    before, pid, term = _ledger(cotenant, node), server.pid, _term(api)
    logged = server.log.stat().st_size
    yield
    assert _ledger(cotenant, node) == before
    assert before["leads"]
    assert before["charged"]
    assert (server.running, server.pid, _term(api)) == (True, pid, term)
    with server.log.open() as log:
        log.seek(logged)
        said = log.read()
    assert not [line for line in said.splitlines() if any(word in line for word in OWN_MISTAKES)], said
    good = json.dumps({"Pod": asking, "NodeNames": [node, "nowhere"]}).encode()
    status, answer = cotenant.asks_extender(cotenant.addresses[0], "/filter", good)
    assert (status, json.loads(answer)["NodeNames"]) == (200, [node])
    api.create(pods_of(namespace), pod("after", container(memory="6Gi")))
    bound(api, namespace, "after", 20)


def _ledger(cotenant: Installation, node: str) -> Object:
    """What is charged there: pods of the tests before are still on their way out elsewhere."""
    found = cotenant.state(cotenant.servers[0])
    charged = {uid: each for uid, each in found["charged"].items() if each["node"] == node}
    return {**found, "charged": charged}


def _term(api: Api) -> int:
    found: int = api.get(LEASE)["spec"]["leaseTransitions"]
    return found


def lower(message: Object) -> Object:
    """Its own keys, as other programs spell them; a pod's have a spelling of their own."""
    return {key.lower(): value for key, value in message.items()}


@pytest.mark.parametrize("verb", ["filter", "choose", "prioritize", "preempt", "bind"])
def test_a_damaged_question_to_the_extender_is_answered_or_refused_and_changes_nothing(
    verb: str, cotenant: Installation, api: Api, namespace: str, node: str, asking: Object
):
    print(f"COTENANT_FUZZ_SEED={SEED}")
    chance = random.Random(f"{SEED}/{verb}")
    whole = messages(api, namespace, node, asking)[verb]
    paths = (f"/{verb}", f"/gpushare-scheduler/{verb}")
    answered = dict.fromkeys((200, 400), 0)
    with unhurt(cotenant, api, namespace, node, asking):
        sender = Sender(lambda: cotenant.extender_connection(cotenant.addresses[0]))
        for number in range(CASES):
            sent = damaged(chance.choice((whole, lower(whole))), chance)
            found = sender.send(chance.choice(paths), sent)
            told = f"case {number}, {', '.join(sent.how)}: {found}"
            if not sent.framed:
                assert found is None or found[0] in (200, 400, 417), told
                continue
            assert found is not None, told
            assert found[0] in (200, 400), told
            assert _makes_sense(verb, sent, *found), told
            answered[found[0]] += 1
        sender.close()
    assert min(answered.values()) > 0, "some are harmless and some are not, or this tests little"


def _makes_sense(verb: str, sent: Damaged, status: int, answer: bytes) -> bool:
    if status == 400 and sent.headers:
        return bool(answer.strip())  # nobody has looked at the body
    said = json.loads(answer)
    if status == 400:
        return bool(said["Error"])
    if verb == "prioritize":
        return isinstance(said, list)
    if verb == "bind":
        return bool(said["Error"])  # the pod is gated
    return isinstance(said, dict)


def review(body: Object) -> Object:
    """As the API server asks."""
    kind, resource = (
        {"group": "", "version": "v1", "kind": "Pod"},
        {"group": "", "version": "v1", "resource": "pods"},
    )
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": body["metadata"]["name"],
            "namespace": "default",
            "operation": "CREATE",
            "userInfo": {"username": "admin", "groups": ["system:masters", "system:authenticated"]},
            "object": body,
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    }


def reviewed() -> list[Object]:
    init = container("init", memory="6Gi")
    return [
        pod("native", container(memory="4Gi", compute="20"), container("other"), init=[init]),
        pod("aliyun", container(**{"aliyun.com/gpu-mem": "3"}), annotations={"ALIYUN_COM_GPU_MEM_IDX": "7"}),
        pod("volcano", container(**{"volcano.sh/gpu-memory": "1k"}), schedulerName="volcano"),
        pod("whole", container(whole="2"), annotations={"cotenant.dev/gpu-model": "A100,H100"}),
        pod("spread", container(memory="8Gi"), annotations={"gpu-count.cotenant.dev/main": "2"}),
        pod("forged", container(), annotations={"cotenant.dev/grant": "{}"}),
    ]


def test_a_damaged_review_is_answered_or_refused_and_the_next_pod_is_admitted(
    cotenant: Installation, api: Api, namespace: str, node: str, asking: Object
):
    print(f"COTENANT_FUZZ_SEED={SEED}")
    chance = random.Random(f"{SEED}/review")
    answered = dict.fromkeys(("allowed", "refused", "malformed"), 0)
    with unhurt(cotenant, api, namespace, node, asking):
        sender = Sender(lambda: cotenant.webhook_connection(cotenant.addresses[0]))
        for number in range(CASES):
            sent = damaged(review(chance.choice(reviewed())), chance)
            found = sender.send("/mutate", sent)
            told = f"case {number}, {', '.join(sent.how)}: {found}"
            if not sent.framed:
                assert found is None or found[0] in (200, 400, 417), told
                continue
            assert found is not None, told
            assert found[0] in (200, 400, 413), told
            answered[_verdict(*found)] += 1
        sender.close()
    assert min(answered.values()) > 0, "some are harmless and some are not, or this tests little"
    made = api.create(pods_of(namespace), pod("last", container(memory="1Gi"), **GATED))
    assert made["spec"]["containers"][0]["resources"]["limits"][MEMORY] == "1Gi"


def _verdict(status: int, answer: bytes) -> str:
    """What the API server would make of it: it refuses the pod if the answer is none, or an answer to something else."""
    if status != 200:
        assert answer.strip()
        return "malformed"
    said: dict[str, Any] = json.loads(answer)["response"]
    assert said["uid"]
    if not said["allowed"]:
        assert said["status"]["code"] in (400, 422)
        assert said["status"]["message"]
        return "refused"
    if "patch" in said:
        steps = json.loads(base64.b64decode(said["patch"], validate=True))
        assert steps
        assert all(step["op"] in ("add", "replace", "remove") for step in steps)
    return "allowed"

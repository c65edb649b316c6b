"""A server that dies or is stopped in the middle of a bind, and an API server that does: nothing is granted twice or lost."""

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest
from cluster.cotenant.asking import agreed, ask_to_bind, ask_until_it_leads, placed, until
from cluster.cotenant.auditor import Auditor
from cluster.cotenant.gpunodes import GIB, gpu_node
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import bound, container, pod, pods_of
from cluster.cotenant.stopping import STEPS
from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.component import Component

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cotenant(start_cotenant) -> Installation:
    """With the shortest lease that may be set, since most tests wait for it to end."""
    started: Installation = start_cotenant(servers=2, settings={"leader": {"duration": "9s"}})
    return started


@pytest.fixture
def no_scheduler(cotenant: Installation) -> Iterator[None]:
    """The test itself asks the extender, at the moment and in the order that it wants."""
    cotenant.control_plane.scheduler.pause()
    yield
    cotenant.control_plane.scheduler.resume()


@pytest.fixture
def node(api: Api, namespace: str, hollow_nodes) -> str:
    """With room for one pod of the test."""
    name = f"hollow-{namespace}"
    hollow_nodes([gpu_node(name, [16 * GIB])])
    return name


def make(api: Api, namespace: str, name: str) -> Object:
    return api.create(pods_of(namespace), pod(name, container(memory="16Gi")))


@contextlib.contextmanager
def armed(cotenant: Installation, step: str, how: str) -> Iterator[tuple[Component, Component]]:
    """The leader, which will strike itself at that step, and the other one. At the end both are as before."""
    doomed, other = cotenant.servers
    before = doomed.command
    at = before.index("server")
    doomed.stop()
    other.stop()
    doomed.command = [before[0], "-m", "cluster.cotenant.stopping", step, how, "--", *before[at:]]
    doomed.start()
    until(lambda: cotenant.leader() is doomed, "the one that is to be struck leads")
    other.start()
    cotenant.wait()
    try:
        yield doomed, other
    finally:
        doomed.kill()
        doomed.command = before
        doomed.start()
        cotenant.wait()


@pytest.mark.parametrize(
    ("step", "how"), [*((step, "stopped") for step in STEPS), ("sending", "killed"), ("answered", "killed")]
)
def test_a_leader_struck_in_the_middle_of_a_bind_is_followed_by_one_that_never_grants_twice(
    step: str,
    how: str,
    cotenant: Installation,
    api: Api,
    namespace: str,
    node: str,
    no_scheduler: None,
):
    with Auditor(api) as auditor, armed(cotenant, step, how) as (doomed, other):
        first, second = make(api, namespace, "first"), make(api, namespace, "second")
        time.sleep(0.5)  # both servers have seen them
        asking = threading.Thread(target=ask_until_it_leads, args=(cotenant, doomed, first, node))
        asking.start()
        until(lambda: cotenant.leader() is other, "the other one leads")
        answer = ask_until_it_leads(cotenant, other, second, node)
        was_bound = bool(api.get(f"{pods_of(namespace)}/first")["spec"].get("nodeName"))
        assert bool(answer) == was_bound, answer
        assert was_bound == (step == "answered")
        if how == "stopped":
            doomed.resume()
        asking.join()
        time.sleep(2)
        assert auditor.violations == []
        until(lambda: agreed(cotenant, api, namespace), "what is charged is what is bound")
        holder = "first" if was_bound else "second"
        assert placed(api, namespace) == {holder}
        api.delete(f"{pods_of(namespace)}/{holder}")
        until(lambda: agreed(cotenant, api, namespace), "what has ended is not charged")
        assert auditor.violations == []


LONGEST = 262_144
"""Bytes of annotations that an API server lets a pod have."""
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


@contextlib.contextmanager
def full(api: Api, namespace: str, name: str) -> Iterator[None]:
    """The author fills the pod's annotations to the last byte, after it was admitted."""
    path = f"{pods_of(namespace)}/{name}"
    used = api.get(path)["metadata"].get("annotations") or {}
    left = LONGEST - sum(len(key) + len(text) for key, text in used.items()) - len("full")
    api.patch(path, {"metadata": {"annotations": {"full": "x" * left}}})
    yield


@contextlib.contextmanager
def frozen(api: Api, namespace: str, name: str) -> Iterator[None]:
    """An administrator's policy denies every update of the pod."""
    policy = f"frozen-{namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": f"object.metadata.name != {name!r}", "message": "it is frozen"}],
    }
    binding = {"policyName": policy, "validationActions": ["Deny"]}
    binding["matchResources"] = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    }
    kind = "ValidatingAdmissionPolicy"
    group = "admissionregistration.k8s.io/v1"
    meta = {"name": policy}
    api.create(POLICIES, {"apiVersion": group, "kind": kind, "metadata": meta, "spec": spec})
    body = {"apiVersion": group, "kind": f"{kind}Binding", "metadata": meta, "spec": binding}
    bindings = POLICIES.replace("policies", "policybindings")
    api.create(bindings, body)

    def denied() -> bool:
        try:
            api.patch(f"{pods_of(namespace)}/{name}", {"metadata": {"labels": {"at": str(time.time_ns())}}})
        except Refused:
            return True
        return False

    until(denied, "the policy is in force")
    try:
        yield
    finally:
        api.delete(f"{bindings}/{policy}")
        api.delete(f"{POLICIES}/{policy}")


@pytest.mark.parametrize("made_so", [full, frozen])
def test_a_waiting_pod_that_cannot_be_changed_does_not_stop_the_leader_after_one_that_died(
    made_so, cotenant: Installation, api: Api, namespace: str, node: str, no_scheduler: None
):
    leader = cotenant.leader()
    (other,) = [server for server in cotenant.servers if server is not leader]
    assert leader is not None
    stuck, free = make(api, namespace, "stuck"), make(api, namespace, "free")
    with made_so(api, namespace, "stuck"), Auditor(api) as auditor:
        leader.kill()
        try:
            until(lambda: cotenant.leader() is other, "the other one leads and serves", 60)
            refused = ask_until_it_leads(cotenant, other, stuck, node)
            assert "cannot be changed" in refused, refused
            assert ask_until_it_leads(cotenant, other, free, node) == ""
            until(lambda: agreed(cotenant, api, namespace), "what is charged is what is bound")
            assert placed(api, namespace) == {"free"}
        finally:
            leader.start()
            cotenant.wait()
        assert auditor.violations == []


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_an_api_server_that_is_away_during_a_bind_leaves_nothing_in_doubt(
    how: str, cotenant: Installation, api: Api, namespace: str, node: str, no_scheduler: None
):
    leader = cotenant.leader()
    assert leader is not None
    made = make(api, namespace, "only")
    time.sleep(0.5)
    with Auditor(api) as auditor:
        answers: list[str] = []
        context = cotenant.asks_extender(cotenant.address(leader), "/healthz")
        assert context[0] == 200
        apiserver = cotenant.control_plane.apiserver
        asking = threading.Thread(target=lambda: answers.append(ask_to_bind(cotenant, leader, made, node)))
        apiserver.pause() if how == "stopped" else apiserver.kill()
        asking.start()
        time.sleep(6)
        apiserver.resume() if how == "stopped" else apiserver.start()
        asking.join()
        cotenant.wait()
        until(lambda: agreed(cotenant, api, namespace), f"what is charged is what is bound ({answers})")
        assert auditor.violations == []
    cotenant.control_plane.scheduler.resume()
    assert bound(api, namespace, "only", 30)
    until(lambda: agreed(cotenant, api, namespace), "and so it is in the end")


def test_only_the_leader_answers_the_scheduler(cotenant: Installation, api: Api):
    leader = cotenant.leader()
    status = {
        server.name: cotenant.asks_extender(cotenant.address(server), "/filter", b"{}")[0]
        for server in cotenant.servers
    }
    assert {name for name, code in status.items() if code == 503} == {
        server.name for server in cotenant.servers if server is not leader
    }

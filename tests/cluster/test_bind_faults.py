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
from cluster.testbed.api import Api, Object
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

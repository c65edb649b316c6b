"""Containers on a real kubelet start with the limits of their own grant, or do not start and their pod says why.

The tests play the server: they bind pods with grants of their own making.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.cotenant.granted import CONTEXT, GIB, RESTRICTED, ROOT, Tenants, uid
from cluster.programs.killed_agent import STEPS
from cluster.testbed.cluster import Cluster

from cotenant.core.grant import Share
from cotenant.dialects.pod_grant import SlotGrant
from cotenant.hardware import slots
from cotenant.hardware.standin import driver as standin


@pytest.fixture(scope="module")
def started(cluster: Cluster) -> Iterator[Tenants]:
    tenants = Tenants(cluster)
    cluster.python_image()
    yield tenants
    tenants.agent.stop()


@pytest.fixture
def tenants(started: Tenants, namespace: str) -> Iterator[Tenants]:
    with started.within(namespace):
        yield started


def test_a_container_has_its_own_card_and_is_stopped_at_its_own_size(tenants: Tenants):
    """Under the strictest pod security, as a user that is nobody, and beside a neighbour on the same card."""
    one = tenants.run("one", 1, 3 * GIB, tenants.container(securityContext=RESTRICTED))
    two = tenants.run("two", 1, 5 * GIB)
    for name, pod, size in (("one", one, 3 * GIB), ("two", two, 5 * GIB)):
        tenants.until_running(name)
        told = tenants.told(name)
        card = tenants.cards[1]
        assert told["limits"] == {"owner": uid(pod), "cards": {card: [size, CONTEXT]}, "mode": 2}
        assert told["seen"] == [card]
        assert told["error"] == 2, "out of memory"
        assert told["got"] == size - CONTEXT
        assert not told["writable"]
    assert standin.StandIn(ROOT / "standin" / "state").used(tenants.cards[1]) == 8 * GIB


def test_slots_go_with_their_pods(tenants: Tenants):
    pod = tenants.run("short", 0, GIB)
    tenants.until_running("short")
    assert list(tenants.slots_of(uid(pod)).values()) == [
        {
            "uid": uid(pod),
            "namespace": tenants.namespace,
            "pod": "short",
            "container": "main",
            "device": next(iter(tenants.slots_of(uid(pod)))),
            "shares": [{"uuid": tenants.cards[0], "memory": GIB, "compute": None, "whole": False}],
        }
    ]
    tenants.api.delete(tenants.path("short"))
    tenants.api.until_gone(tenants.path("short"))
    end = time.monotonic() + 40
    while tenants.slots_of(uid(pod)):
        assert time.monotonic() < end, tenants.agent.tail()
        time.sleep(0.2)


def test_an_init_container_uses_the_slot_of_the_container_after_it(tenants: Tenants):
    pod = tenants.create("init", tenants.container(), init=(tenants.container("prepare", "end"),))
    slot = SlotGrant("main", (Share(tenants.cards[0], 2 * GIB),), ("prepare",))
    tenants.bind(pod, tenants.grant(pod, slot))
    tenants.until_running("init")
    for name in ("prepare", "main"):
        told = tenants.told("init", name)
        assert told["limits"]["owner"] == uid(pod)
        assert told["got"] == 2 * GIB - CONTEXT
        assert told["peak"] == 0
    assert [owner["container"] for owner in tenants.slots_of(uid(pod)).values()] == ["main"]


def test_a_sidecar_has_a_slot_of_its_own(tenants: Tenants):
    sidecar = tenants.container("helper", restartPolicy="Always")
    pod = tenants.create("sidecar", tenants.container(), init=(tenants.container("prepare", "end"), sidecar))
    first, second = tenants.cards
    helper = SlotGrant("helper", (Share(first, GIB),), ("prepare",))
    main = SlotGrant("main", (Share(second, 4 * GIB),))
    tenants.bind(pod, tenants.grant(pod, helper, main))
    tenants.until_running("sidecar")
    for name, card, size in (("prepare", first, GIB), ("helper", first, GIB), ("main", second, 4 * GIB)):
        told = tenants.told("sidecar", name)
        assert (told["seen"], told["got"]) == ([card], size - CONTEXT)
    owners = tenants.slots_of(uid(pod)).values()
    assert sorted(owner["container"] for owner in owners) == ["helper", "main"]


def test_a_container_that_restarts_finds_its_slot_fresh(tenants: Tenants):
    pod = tenants.run("again", 0, 2 * GIB, tenants.container(then="fail once"))
    restarted = tenants.api.until(
        tenants.path("again"),
        lambda seen: any(
            each["restartCount"] == 1 and "running" in each["state"]
            for each in seen["status"].get("containerStatuses", ())
        ),
    )
    assert restarted["metadata"]["uid"] == uid(pod)
    for when in ("true", "false"):
        told = tenants.told("again", previous=when)
        assert (told["limits"]["owner"], told["peak"], told["got"]) == (uid(pod), 0, 2 * GIB - CONTEXT)


@pytest.mark.parametrize(
    ("name", "annotation", "label", "mode"),
    [("default", "", "", 2), ("labelled", "", "observe", 0), ("annotated", "warn", "observe", 1)],
)
def test_a_pod_or_its_namespace_says_what_happens_at_the_limit(
    tenants: Tenants, name: str, annotation: str, label: str, mode: int
):
    tenants.api.patch(
        f"/api/v1/namespaces/{tenants.namespace}",
        {"metadata": {"labels": {"cotenant.dev/enforce": label or None}}},
    )
    tenants.run(name, 0, GIB, annotations={"cotenant.dev/enforce": annotation} if annotation else {})
    tenants.until_running(name)
    told = tenants.told(name, seconds=60)
    assert told["limits"]["mode"] == mode
    assert (told["got"] > GIB) == (mode != 2)


def test_a_pod_without_a_grant_does_not_start_and_says_why(tenants: Tenants):
    pod = tenants.create("bare", tenants.container())
    tenants.bind(pod, {})
    said = tenants.event("bare", "has no grant (annotation cotenant.dev/grant)")
    assert "did not come through Cotenant's scheduler" in said
    assert tenants.never_ran("bare")


def test_a_grant_copied_from_another_pod_starts_nothing(tenants: Tenants):
    victim = tenants.run("victim", 0, 8 * GIB)
    thief = tenants.create("thief", tenants.container())
    tenants.bind(thief, tenants.grant(victim, SlotGrant("main", (Share(tenants.cards[0], 8 * GIB),))))
    tenants.event("thief", f"it is of the pod with UID {uid(victim)}, and this pod's is {uid(thief)}")
    assert tenants.never_ran("thief")


def test_room_that_was_granted_twice_is_given_once(tenants: Tenants):
    """As two servers would that both believe they lead."""
    tenants.run(
        "first", 0, 60 * GIB, tenants.container(command=["python", "-c", "import time; time.sleep(600)"])
    )
    tenants.until_running("first")
    tenants.run("second", 0, 60 * GIB)
    said = tenants.event("second", "do not fit beside the slots there")
    assert f"{tenants.namespace}/first/main 60Gi" in said
    assert tenants.never_ran("second")
    tenants.api.delete(tenants.path("first"))
    tenants.until_running("second")


def test_processes_of_a_pod_deleted_by_force_keep_their_room_until_they_end(tenants: Tenants):
    """The API server forgets such a pod at once, and its successor is granted the room while it still lives."""
    tenants.run("first", 0, 60 * GIB)
    tenants.until_running("first")
    tenants.told("first")
    tenants.api.delete(tenants.path("first"), gracePeriodSeconds=0)
    tenants.run("second", 0, 60 * GIB)
    tenants.until_running("second")
    assert tenants.told("second")["got"] == 60 * GIB - CONTEXT, "the card never had both"


def test_a_lock_of_another_process_keeps_no_room_of_a_pod_that_is_gone(tenants: Tenants):
    """A container can pass a descriptor of its slot to another pod, together with the lock on it."""
    first = tenants.run("first", 0, 60 * GIB)
    tenants.run("neighbour", 1, GIB)
    tenants.until_running("first")
    tenants.until_running("neighbour")
    [key] = tenants.slots_of(uid(first))
    passed = slots.hold(ROOT / "slots" / key / "folder")
    tenants.api.delete(tenants.path("first"), gracePeriodSeconds=0)
    tenants.run("second", 0, 60 * GIB)
    tenants.until_running("second")
    os.close(passed)


def test_a_container_that_may_not_read_the_shim_is_reported(tenants: Tenants):
    """The loader goes on without it, as it does under SELinux with a label that hides it."""
    library = ROOT / "lib" / "libcotenant.so"
    library.chmod(0o600)
    try:
        tenants.run("blind", 0, GIB, tenants.container(securityContext=RESTRICTED))
        tenants.until_running("blind")
        found = tenants.api.until(
            f"/api/v1/namespaces/{tenants.namespace}/events",
            lambda seen: any(each["reason"] == "GPULimitNotLive" for each in seen["items"]),
            60,
        )
    finally:
        library.chmod(0o755)
    [event] = [each for each in found["items"] if each["reason"] == "GPULimitNotLive"]
    assert event["involvedObject"]["name"] == "blind"
    assert "container main uses a GPU without its limit" in event["message"]


def test_a_socket_that_somebody_removed_is_registered_anew(tenants: Tenants):
    """The kubelet still has a stream to the old one, and refuses the same path again."""
    folder = Path("/var/lib/kubelet/device-plugins")
    for _ in range(2):
        [socket] = folder.glob("cotenant*.sock")
        socket.unlink()
        ends = time.monotonic() + 30
        while [socket.name] == (left := [each.name for each in folder.glob("cotenant*.sock")]) or not left:
            assert time.monotonic() < ends
            time.sleep(0.1)
        tenants.agent.wait(30)
    after = tenants.run("after", 0, GIB)
    tenants.until_running("after")
    assert tenants.told("after")["limits"]["owner"] == uid(after)


def test_a_shim_that_somebody_removed_is_there_again_before_a_container_starts(tenants: Tenants):
    """The runtime would mount a folder of that name, and the program would run without a limit."""
    (ROOT / "lib" / "libcotenant.so").unlink()
    (ROOT / "ld.so.preload").unlink()
    tenants.run("unarmed", 0, GIB)
    tenants.until_running("unarmed")
    assert tenants.told("unarmed")["got"] == GIB - CONTEXT


def test_a_kubelet_that_restarts_knows_the_agent_again_and_running_pods_do_not_notice(tenants: Tenants):
    pod = tenants.run("before", 0, GIB)
    before = tenants.until_running("before")
    tenants.told("before")
    kubelet = tenants.cluster.node.kubelet
    kubelet.kill()
    kubelet.start()
    kubelet.wait()
    tenants.agent.wait(30)
    after = tenants.run("after", 0, GIB)
    tenants.until_running("after")
    assert tenants.told("after")["limits"]["owner"] == uid(after)
    now = tenants.api.get(tenants.path("before"))
    assert (
        now["status"]["containerStatuses"][0]["containerID"]
        == before["status"]["containerStatuses"][0]["containerID"]
    )
    assert tenants.slots_of(uid(pod))
    assert standin.StandIn(ROOT / "standin" / "state").used(tenants.cards[0]) == 2 * GIB


def test_a_kubelet_that_knows_no_agent_restarts_containers_with_the_limits_they_had(tenants: Tenants):
    """After its own restart it does not ask before a start until an agent has registered: the slot must do."""
    pod = tenants.run("alone", 0, 2 * GIB)
    tenants.until_running("alone")
    tenants.told("alone")
    tenants.agent.kill()
    kubelet = tenants.cluster.node.kubelet
    kubelet.kill()
    kubelet.start()
    kubelet.wait()
    [process] = standin.StandIn(ROOT / "standin" / "state").processes()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    tenants.api.until(
        tenants.path("alone"),
        lambda seen: (
            [each["restartCount"] for each in seen["status"]["containerStatuses"] if each["ready"]] == [1]
        ),
    )
    told = tenants.told("alone")
    assert (told["limits"]["owner"], told["got"]) == (uid(pod), 2 * GIB - CONTEXT)
    tenants.start_agent()
    assert tenants.slots_of(uid(pod)), "an agent that starts finds its slots again"
    assert standin.StandIn(ROOT / "standin" / "state").used(tenants.cards[0]) == 2 * GIB


def test_a_kubelet_without_pod_resources_starts_nothing_and_the_pod_says_so(tenants: Tenants):
    elsewhere = Path("/run/elsewhere")
    elsewhere.mkdir(exist_ok=True)
    if not (elsewhere / "device-plugins").exists():
        (elsewhere / "device-plugins").symlink_to("/var/lib/kubelet/device-plugins")
    tenants.agent.stop()
    tenants.start_agent(kubelet=str(elsewhere))
    try:
        tenants.run("unknown", 0, GIB)
        said = tenants.event("unknown", "pod-resources at /run/elsewhere/pod-resources/kubelet.sock")
        assert "there is no such socket" in said
        assert tenants.never_ran("unknown")
    finally:
        tenants.agent.stop()
    tenants.start_agent()
    tenants.until_running("unknown")


@pytest.mark.timeout(300)
def test_an_agent_killed_at_any_step_of_a_start_lets_nothing_run_without_its_limits(tenants: Tenants):
    tenants.agent.stop()
    pods = {}
    for step in STEPS:
        agent = tenants.killed_agent(step)
        pods[step] = tenants.run(step, 0, GIB)
        assert agent.process is not None
        agent.process.wait(60)
        assert f"killed once {step}" in agent.tail(200)
        assert tenants.never_ran(step)
    time.sleep(2)
    assert all(tenants.never_ran(step) for step in STEPS), "without an agent nothing starts"
    tenants.start_agent()
    for step in STEPS:
        tenants.until_running(step)
        told = tenants.told(step)
        assert (told["limits"]["owner"], told["got"]) == (uid(pods[step]), GIB - CONTEXT)

"""Which pods are in line, in which order: one rule, for the server that serves it and for `explain`."""

from datetime import UTC, datetime

import msgspec
import pytest
from kube.builders import node_json, pod_json
from kube.fakeapi import Json
from kube.line.line_scene import cluster, run, takes
from kube.world import World

from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Pod
from cotenant.kube.line.membership import is_in_line, waited
from cotenant.kube.operating.explain.line_view import view_line
from cotenant.kube.settings import Settings

NO_ROOM = "0/2 nodes are available: 2 no room on the GPUs. preemption: 0/2 nodes are available."
NO_CPU = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available."


def refused(body: Json, message: str, *, reason: str = "Unschedulable", since: str | None = None) -> Json:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    if since is not None:
        condition["lastTransitionTime"] = since
    body["status"]["conditions"] = [condition]
    return body


def typed(body: Json) -> Pod:
    return msgspec.convert(body, Pod)


@pytest.mark.parametrize(
    ("message", "waits"),
    [
        (NO_ROOM, True),
        ("0/2 nodes are available: 1 Insufficient cpu, 1 no room on the GPUs.", True),
        ("0/2 nodes are available: 2 Insufficient cotenant.dev/gpu-memory.", True),
        ("0/2 nodes are available: 2 Insufficient aliyun.com/gpu-mem.", True),
        ("another scheduler writes what it likes", True),
        ("", True),
        (NO_CPU, False),
        ("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.", False),
        ("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.", False),
        ("0/2 nodes are available: 2 node(s) didn't match PersistentVolume's node affinity.", False),
    ],
)
def test_a_pod_is_in_line_only_if_gpus_may_be_what_it_waits_for(message: str, waits: bool):
    assert is_in_line(typed(refused(pod_json("a"), message)), Dialects()) is waits


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["spec"].update(nodeName="n1"),
        lambda body: body["status"].update(phase="Failed"),
        lambda body: body["metadata"].update(deletionTimestamp="2030-01-01T00:00:00Z"),
        lambda body: body["spec"].update(schedulingGates=[{"name": "quota"}]),
        lambda body: refused(body, "gated", reason="SchedulingGated"),
        lambda body: body["status"].update(conditions=[]),
    ],
)
def test_a_pod_that_cannot_be_bound_or_was_not_tried_is_not_in_line(change):
    body = refused(pod_json("a"), NO_ROOM)
    assert is_in_line(typed(body), Dialects())
    change(body)
    assert not is_in_line(typed(body), Dialects())


def test_a_pod_that_an_error_stopped_stays_in_line():
    """kube-scheduler tried it when no server led: it is tried again, and nobody behind it goes ahead."""
    body = refused(pod_json("a"), "Post https://cotenant-extender: EOF", reason="SchedulerError")
    assert is_in_line(typed(body), Dialects())


def test_it_waits_since_a_scheduler_first_found_no_node():
    body = refused(pod_json("a", created="2030-01-01T00:00:00Z"), NO_ROOM, since="2030-01-01T00:01:00Z")
    created = typed(body).metadata.creation_timestamp
    assert created is not None
    assert waited(typed(body), created.timestamp() + 100) == 40
    assert waited(typed(body), created.timestamp()) == 0, "clocks differ"


def everybody() -> list[Json]:
    """Kept by GPUs, CPU, a selector and a volume, and gated; several of the same second."""
    gated = refused(pod_json("gated"), "", reason="SchedulingGated")
    gated["spec"]["schedulingGates"] = [{"name": "quota"}]
    same = [refused(pod_json(f"same-{at}", uid=f"uid-{9 - at}"), NO_ROOM) for at in range(6)]
    return [
        refused(pod_json("by-cpu", cpu="99"), NO_CPU),
        refused(
            pod_json("by-selector"), "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity."
        ),
        refused(
            pod_json("by-volume"),
            "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
        ),
        refused(pod_json("no-gpu", None, cpu="99"), NO_ROOM),
        refused(pod_json("bad", annotations={"cotenant.dev/placement": "nonsense"}), NO_ROOM),
        pod_json("untried"),
        gated,
        *same,
        refused(pod_json("young", created="2030-02-01T00:00:00Z"), NO_ROOM),
        refused(pod_json("urgent", created="2030-03-01T00:00:00Z", priority=5), NO_ROOM),
    ]


def explained(at: World) -> list[str]:
    view = view_line(list(at.api.nodes), list(at.api.pods), Settings(), at.wall(), {})
    return [each.uid for each in view.line]


def test_the_server_and_explain_have_the_same_line():
    async def main():
        at = cluster()
        takes(at, "x", 16)
        for body in reversed(everybody()):
            at.api.add(body)
        seen = at.line.uids()
        assert seen == ["uid-urgent", *(f"uid-{n}" for n in range(4, 10)), "uid-young"]
        assert explained(at) == seen
        at.line.refill()
        assert at.line.uids() == seen, "so does the next leader"

    run(main)


def test_a_new_leader_goes_on_counting_a_pods_patience():
    async def main():
        at = cluster(16, patience=60.0)
        takes(at, "x", 8)
        since = datetime.fromtimestamp(at.wall() - 61, UTC)
        at.api.add(refused(pod_json("big", "16Gi"), NO_ROOM, since=since.isoformat()))
        at.line.refill()
        await at.line._serve()
        assert list(at.cluster.holds()) == ["uid-big"]

    run(main)


def test_a_new_leader_holds_no_cards_of_a_node_that_takes_no_pods():
    """kube-scheduler has not asked about the pod yet, so which nodes it may go to is known by their state only."""

    async def main():
        at = cluster(16, patience=60.0)
        closed = node_json("n0", 16)
        closed["spec"] = {"unschedulable": True}
        at.api.add_node(closed)
        takes(at, "x", 8)
        at.api.add(refused(pod_json("big", "16Gi"), NO_ROOM, since="2030-01-01T00:00:00Z"))
        at.line.refill()
        await at.line._serve()
        assert at.cluster.holds() == {"uid-big": ("n1", ("GPU-n1-0",))}
        there = [node for node in at.api.nodes if node.metadata.name == "n0"]
        assert view_line(there, list(at.api.pods), Settings(), at.wall(), {}).served.places == {}

    run(main)

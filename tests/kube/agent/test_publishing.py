"""The node reports its GPUs: written when something differs, and never below what its pods request."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from kube import builders as pods
from kube.replay import client_of, fails, hangs_up, replaying, says

from cotenant.core.gpu import GPU
from cotenant.dialects.aliyun import Aliyun
from cotenant.dialects.registry import Dialects
from cotenant.hardware.nvml import CardReading
from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.agent.grants import granted_by_gpu, grants_of
from cotenant.kube.agent.node_pods import PodsNow
from cotenant.kube.agent.publishing import Publisher, wanted
from cotenant.kube.agent.publishing import difference as difference_at
from cotenant.kube.api.errors import Conflict, Forbidden, Unreachable
from cotenant.kube.api.resources import NODES, PODS
from cotenant.kube.nodes.gpus import gpus_of_node, read_gpus

GIB = 2**30
GPUS = "cotenant.dev/gpus"
MEMORY = "cotenant.dev/gpu-memory"
HEALTHY = "cotenant.dev/GPUsHealthy"
NOW = datetime(2026, 11, 1, 12, 0, tzinfo=UTC)
KUBELETS = {"type": "Ready", "status": "True", "reason": "KubeletReady"}


def sight(*problems: str | None, outside=None) -> Sight:
    cards = tuple(
        CardReading(GPU(f"GPU-{at}", at, "T4", 16 * GIB, healthy=problem is None), 0, problem=problem)
        for at, problem in enumerate(problems)
    )
    return Sight(cards, outside or {}, 0.0, granted=True)


def want(seen: Sight, asked=None, dialects: Dialects | None = None, **more):
    return wanted(seen, dialects or Dialects(), asked or {}, "1.0", mps=False, **more)


def difference(node, want, now=NOW):
    return difference_at(node, want, now)


def node(annotations=None, capacity=None, conditions=(KUBELETS,), uid="u1", version="1"):
    body = {
        "metadata": {"name": "n1", "uid": uid, "resourceVersion": version, "annotations": annotations or {}},
        "status": {"capacity": capacity or {}, "conditions": list(conditions)},
    }
    return NODES.decode(json.dumps(body).encode())


def conditions_of(node) -> list[dict]:
    return json.loads(msgspec.json.encode(node.status.conditions))


def applied(to, patch):
    """The node after a strategic merge patch."""
    annotations = {**to.metadata.annotations, **patch.get("metadata", {}).get("annotations", {})}
    status = patch.get("status", {})
    capacity = {**to.status.capacity, **status.get("capacity", {})}
    conditions = {each["type"]: each for each in conditions_of(to)}
    for each in status.get("conditions", ()):
        conditions[each["type"]] = conditions.get(each["type"], {}) | each
    kept = {name: text for name, text in capacity.items() if text is not None}
    return node(annotations, kept, conditions.values())


def test_what_is_written_reads_back_as_the_cards():
    wished = want(sight(None, "lost", outside={"GPU-0": GIB}))
    gpus, outside = gpus_of_node(node({GPUS: wished.annotation}))
    assert [(gpu.uuid, gpu.memory, gpu.healthy) for gpu in gpus] == [
        ("GPU-0", 16 * GIB, True),
        ("GPU-1", 16 * GIB, False),
    ]
    assert outside == {"GPU-0": GIB}
    assert read_gpus(wished.annotation).agent == "1.0"


def test_a_sick_card_is_capacity_all_the_same():
    assert want(sight(None, "lost")).capacity == want(sight(None, None)).capacity
    assert want(sight(None, None)).capacity[MEMORY] == 32 * GIB


def test_capacity_is_never_less_than_what_the_pods_ask_for():
    wished = want(sight(None), {MEMORY: 20 * GIB, "cotenant.dev/gpu": 1})
    assert wished.capacity[MEMORY] == 20 * GIB
    assert wished.capacity["cotenant.dev/gpu"] == 1
    assert want(sight(None), {MEMORY: GIB}).capacity[MEMORY] == 16 * GIB


def test_a_problem_of_any_length_fits():
    assert len(read_gpus(want(sight("x" * 5000)).annotation).cards[0].problem) == 200


def test_only_what_differs_is_written():
    wished = want(sight(None))
    first = difference(node(), wished)
    assert first["metadata"]["annotations"] == {GPUS: wished.annotation}
    assert first["status"]["capacity"] == {name: str(amount) for name, amount in wished.capacity.items()}
    there = applied(node(), first)
    assert difference(there, wished) is None
    conditions = conditions_of(there)
    spelled = node(there.metadata.annotations, {**there.status.capacity, MEMORY: "16Gi"}, conditions)
    assert difference(spelled, wished) is None, "the same amount in other words"
    reset = node(there.metadata.annotations, {**there.status.capacity, MEMORY: "0"}, conditions)
    assert difference(reset, wished) == {
        "status": {"capacity": {MEMORY: str(16 * GIB)}, "allocatable": {MEMORY: str(16 * GIB)}}
    }
    strange = node(there.metadata.annotations, {**there.status.capacity, MEMORY: "much"})
    assert difference(strange, wished)["status"]["capacity"] == {MEMORY: str(16 * GIB)}
    stripped = node({}, there.status.capacity, conditions)
    assert difference(stripped, wished) == {"metadata": {"annotations": {GPUS: wished.annotation}}}


def test_a_dialect_that_was_switched_off_is_removed_and_what_others_put_there_is_not():
    others = {"nvidia.com/gpu": "8", "cpu": "4"}
    there = applied(node(capacity=others), difference(node(), want(sight(None))))
    without = want(sight(None), dialects=Dialects(aliyun=Aliyun(enabled=False)))
    patch = difference(there, without)
    removed = {"aliyun.com/gpu-mem": None, "aliyun.com/gpu-count": None}
    assert patch["status"] == {"capacity": removed, "allocatable": removed}
    after = applied(there, patch)
    assert difference(after, without) is None
    assert others.items() <= after.status.capacity.items()


def test_an_annotation_that_nobody_can_read_is_written_anew():
    wished = want(sight(None))
    patch = difference(node({GPUS: "{damaged"}), wished)
    assert patch["metadata"]["annotations"] == {GPUS: wished.annotation}


def condition_of(node):
    (found,) = [each for each in node.status.conditions if each.type == HEALTHY]
    return found


def test_the_condition_says_which_gpu_is_sick_and_why():
    patch = difference(node(), want(sight(None, "reported a fault (XID 79)")))
    assert patch["status"]["conditions"] == [
        {
            "type": HEALTHY,
            "status": "False",
            "reason": "GPUUnhealthy",
            "message": "GPU 1 (GPU-1): reported a fault (XID 79)",
            "lastHeartbeatTime": "2026-11-01T12:00:00Z",
            "lastTransitionTime": "2026-11-01T12:00:00Z",
        }
    ]


def test_the_condition_has_the_time_of_its_last_transition_and_is_written_only_when_it_changes():
    there = applied(node(), difference(node(), want(sight(None, None))))
    assert condition_of(there).status == "True"
    assert difference(there, want(sight(None, None)), NOW + timedelta(days=1)) is None
    there = applied(there, difference(there, want(sight(None, "lost")), NOW + timedelta(hours=1)))
    later = difference(there, want(sight("lost", "lost")), NOW + timedelta(hours=2))
    assert "lastTransitionTime" not in later["status"]["conditions"][0]
    there = applied(there, later)
    assert condition_of(there).last_transition_time == NOW + timedelta(hours=1)
    assert [each.type for each in there.status.conditions] == ["Ready", HEALTHY]


def test_a_condition_that_somebody_removed_is_written_again():
    there = applied(node(), difference(node(), want(sight(None))))
    without = node(there.metadata.annotations, there.status.capacity)
    assert list(difference(without, want(sight(None)))["status"]) == ["conditions"]


def test_the_condition_is_unknown_while_the_driver_does_not_answer():
    wished = want(sight("the driver does not answer"), trouble="the driver does not answer: 30 s")
    assert (wished.condition.status, wished.condition.reason) == ("Unknown", "DriverNotAnswering")
    never = want(sight(), trouble="no driver")
    assert never.condition.message == "no driver"
    patch = difference(node({GPUS: "of an agent before"}, {MEMORY: "5"}), never)
    assert list(patch) == ["status"], "what GPUs there are is not known, so nothing is said of them"
    assert list(patch["status"]) == ["conditions"]


def test_a_drained_gpu_is_not_sick_and_the_message_says_so():
    wished = want(sight(None, None), drained={"GPU-1", "GPU-elsewhere"}).condition
    assert (wished.status, wished.reason) == ("True", "GPUsHealthy")
    assert wished.message == "all 2 GPUs are healthy; drained, which is no fault: GPU 1 (GPU-1)"
    both = want(sight("lost", None), drained={"GPU-1"}).condition
    assert both.status == "False"
    assert both.message == "GPU 0 (GPU-0): lost; drained, which is no fault: GPU 1 (GPU-1)"


def test_a_node_of_any_number_of_gpus_has_a_message_that_can_be_read():
    wished = want(sight(*["x" * 5000] * 20)).condition
    assert wished.message.endswith("; and 12 more")
    assert len(wished.message) < 2000
    assert want(sight()).condition.reason == "NoGPUs"


def granted(uid: str, *shares: tuple[str, int], phase="Running", **more):
    grant = {
        "version": 1,
        "uid": more.get("grant_uid", uid),
        "slots": [
            {"container": f"c{at}", "shares": [{"uuid": uuid, "memory": size}]}
            for at, (uuid, size) in enumerate(shares)
        ],
    }
    meta = {
        "name": uid,
        "namespace": "x",
        "uid": uid,
        "annotations": {"cotenant.dev/grant": json.dumps(grant)},
    }
    body = {"metadata": meta, "spec": {"nodeName": more.get("node", "n1")}, "status": {"phase": phase}}
    return PODS.decode(json.dumps(body).encode())


def test_grants_are_those_of_bound_pods_that_have_not_ended_and_are_their_own():
    grants = grants_of(
        [
            granted("a", ("GPU-0", GIB), ("GPU-0", 2 * GIB)),
            granted("b", ("GPU-0", 4 * GIB), ("GPU-1", 8 * GIB)),
            granted("ended", ("GPU-0", GIB), phase="Succeeded"),
            granted("waiting", ("GPU-0", GIB), node=""),
            granted("thief", ("GPU-2", GIB), grant_uid="a"),
        ]
    )
    assert granted_by_gpu(grants) == {"GPU-0": {"a": 3 * GIB, "b": 4 * GIB}, "GPU-1": {"b": 8 * GIB}}


def test_what_pods_ask_for_is_counted_as_kubernetes_counts_it():
    body = pods.defaulted(
        pods.pod(
            pods.container("a", memory="4Gi"),
            pods.container("b", memory="2Gi"),
            init=[
                pods.container("first", memory="1Gi"),
                pods.container("side", sidecar=True, memory="3Gi"),
                pods.container("big", memory="8Gi"),
            ],
        )
    )
    pod = PODS.decode(json.dumps(body).encode())
    assert PodsNow((pod, pod)).requests[MEMORY] == 22 * GIB
    ended = PODS.decode(json.dumps({**body, "status": {"phase": "Failed"}}).encode())
    assert MEMORY not in PodsNow((ended,)).requests


@asynccontextmanager
async def publishing(*answers, node, want):
    async with replaying(*answers) as server, client_of(server) as client:
        publisher = Publisher(client, node, want)
        task = asyncio.create_task(publisher.run())
        publisher.again()
        try:
            yield publisher, server
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def accepts(state):
    """An API server that keeps what is patched into the node."""

    async def answer(request):
        patch = await request.json()
        state["node"] = applied(state["node"], patch)
        return await says({"metadata": {"name": "n1", "uid": "u1", "resourceVersion": "2"}})(request)

    return answer


@pytest.mark.asyncio
async def test_a_difference_is_written_through_the_status_and_then_there_is_none():
    state = {"node": node()}
    async with publishing(accepts(state), node=lambda: state["node"], want=lambda: want(sight(None))) as (
        publisher,
        server,
    ):
        await until(lambda: publisher.current)
        publisher.again()
        await asyncio.sleep(0.3)
        assert publisher.published == len(server.seen) == 1
        assert (server.seen[0].method, server.seen[0].path) == ("PATCH", "/api/v1/nodes/n1/status")
        assert server.seen[0].json["metadata"]["uid"] == "u1", "no other node of that name"
        kind = server.seen[0].headers["Content-Type"]
        assert kind == "application/strategic-merge-patch+json", "any other would replace all conditions"


@pytest.mark.asyncio
async def test_gpus_that_nobody_knows_are_not_published_but_the_condition_is():
    state = {"node": node()}
    wished = want(sight(), trouble="no driver")
    async with publishing(accepts(state), node=lambda: state["node"], want=lambda: wished) as (publisher, _):
        await until(lambda: publisher.published == 1)
        assert condition_of(state["node"]).status == "Unknown"
        assert not publisher.current


@pytest.mark.asyncio
async def test_nothing_is_written_while_nothing_is_known():
    for seen, wished in ((lambda: None, lambda: want(sight(None))), (node, lambda: None)):
        async with publishing(says({}), node=seen, want=wished) as (publisher, server):
            await asyncio.sleep(0.05)
            assert not server.seen
            assert not publisher.current


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (hangs_up(), Unreachable),
        (fails(403, "Forbidden"), Forbidden),
        (fails(409, "Conflict"), type(None)),
    ],
)
async def test_after_a_failure_it_is_tried_again(trouble, kind):
    state = {"node": node()}
    async with publishing(
        trouble, trouble, trouble, accepts(state), node=lambda: state["node"], want=lambda: want(sight(None))
    ) as (publisher, server):
        await until(lambda: len(server.seen) >= 2)
        assert isinstance(publisher.trouble, kind)
        assert not isinstance(publisher.trouble, Conflict)
        await until(lambda: publisher.current)
        assert publisher.trouble is None
        assert publisher.published == 1


@pytest.mark.asyncio
async def test_news_are_told_at_once_however_much_was_told_before():
    state = {"node": node()}
    seen = [sight(None)]
    async with publishing(accepts(state), node=lambda: state["node"], want=lambda: want(seen[0])) as (
        publisher,
        _,
    ):
        for turn in range(12):
            seen[0] = sight(f"problem {turn}")
            publisher.again()
            await until(lambda turn=turn: publisher.published == turn + 1)


@pytest.mark.asyncio
async def test_who_undoes_it_again_and_again_does_not_make_a_hot_loop():
    async with publishing(
        says({"metadata": {"name": "n1", "uid": "u1"}}), node=node, want=lambda: want(sight(None))
    ) as (publisher, server):
        for _ in range(100):
            publisher.again()
            await asyncio.sleep(0.01)
        assert len(server.seen) < 8

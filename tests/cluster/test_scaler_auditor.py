"""The judge of scaled workloads sees what is wrong, and nothing else."""

import time
from collections.abc import Callable
from math import inf

import pytest
from cluster.cotenant.gpunodes import GIB, gpu_node
from cluster.cotenant.manifests import pods_of
from cluster.cotenant.redisqueues import Message
from cluster.cotenant.scaledworkloads import ScaledWorkload, define_scalers, kind_path, scalers_path
from cluster.cotenant.scalerauditor import ScalerAuditor
from cluster.cotenant.scalerrules import LAG, Step
from cluster.cotenant.worktraffic import Attempt
from cluster.testbed.api import Api

from cotenant.dialects.names import GPU_IDLE
from cotenant.kube.api.timestamps import timestamp

THRESHOLD = 10
QUEUED = ScaledWorkload("queued", "Deployment", 0, 2, THRESHOLD, "list")
NOTED = ScaledWorkload("noted", "ReplicaSet", 0, 1, THRESHOLD)


@pytest.fixture(autouse=True)
def defined(api: Api) -> None:
    define_scalers(api)


def until(true: Callable[[], object], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def create(api: Api, namespace: str, workload: ScaledWorkload, replicas: int, node: str = "nowhere") -> None:
    body = workload.body()
    body["spec"]["replicas"] = replicas
    pod = body["spec"]["template"]["spec"]
    pod["nodeName"] = node
    del pod["containers"][0]["resources"]
    api.create(kind_path(workload.kind, namespace), body)


def scale(api: Api, namespace: str, workload: ScaledWorkload, *replicas: int) -> None:
    for each in replicas:
        api.patch(f"{workload.path(namespace)}/scale", {"spec": {"replicas": each}})


def steps_of(auditor: ScalerAuditor, workload: ScaledWorkload) -> int:
    return len(auditor.steps.get(workload.name, ()))


def write(api: Api, namespace: str, type: str, status: str, age: float) -> None:
    """A condition of the only pod, as old as that."""
    (pod,) = api.items(pods_of(namespace))
    condition = {"type": type, "status": status, "lastTransitionTime": timestamp(time.time() - age)}
    path = f"{pods_of(namespace)}/{pod['metadata']['name']}/status"
    api.patch(path, {"status": {"conditions": [condition]}}, kind="strategic")


def message(since: float, until: float = inf) -> Message:
    """In Unix seconds from now."""
    now = time.time()
    return Message("one", now + since, now + since, now + until)


def test_a_step_out_of_bounds_is_seen_although_it_is_taken_back_at_once(api: Api, namespace: str):
    with ScalerAuditor(api, namespace, [QUEUED, NOTED]) as auditor:
        create(api, namespace, QUEUED, 1)
        create(api, namespace, NOTED, 1)
        until(lambda: len(auditor.known()) == 2)
        scale(api, namespace, QUEUED, 2, 1)
        until(lambda: steps_of(auditor, QUEUED) == 2)
        assert auditor.judge({}).violations == []
        scale(api, namespace, QUEUED, 3, 1)
        scale(api, namespace, NOTED, 2, 1)
        until(lambda: steps_of(auditor, QUEUED) == 4 and steps_of(auditor, NOTED) == 2)
        found = auditor.judge({}).violations
        # Once for each object that shows it: its own controller may have written it meanwhile.
        assert {each.split(",")[0] for each in found} == {
            "noted is to have 2 replicas",
            "queued is to have 3 replicas",
        }


@pytest.mark.parametrize(
    ("since", "until_", "wrong"),
    [
        (-60, -THRESHOLD, False),
        (-60, -THRESHOLD + 6, True),
        (-60, inf, True),
        (-5, inf, True),
        (-5, -4, True),
        (0, inf, False),
    ],
    ids=["done long ago", "done lately", "in work", "waiting", "came and went", "came that moment"],
)
def test_a_release_with_a_message_in_the_queue_is_seen(
    api: Api, namespace: str, since: float, until_: float, wrong: bool
):
    with ScalerAuditor(api, namespace, [QUEUED]) as auditor:
        create(api, namespace, QUEUED, 1)
        until(auditor.known)
        had = message(since, until_)
        scale(api, namespace, QUEUED, 0)
        until(lambda: steps_of(auditor, QUEUED))
        verdict = auditor.judge({QUEUED.name: [had]})
        assert verdict.released["scaler"] == 1
        assert bool(verdict.violations) is wrong


@pytest.mark.parametrize(
    ("status", "idle", "bound", "wrong"),
    [
        ("True", THRESHOLD + 1, 60, False),
        ("True", THRESHOLD - 6, 60, True),
        ("True", 60, THRESHOLD - 6, True),
        ("False", 60, 60, True),
        ("Unknown", 60, 60, True),
        (None, 60, 60, True),
    ],
    ids=["idle", "idle for too short", "its GPU for too short", "at work", "unknown", "never idle"],
)
def test_a_release_by_the_annotation_of_a_pod_that_is_not_idle_is_seen(
    api: Api, namespace: str, hollow_nodes, status: str | None, idle: float, bound: float, wrong: bool
):
    node = f"hollow-{namespace}"
    hollow_nodes([gpu_node(node, [16 * GIB])])
    with ScalerAuditor(api, namespace, [NOTED]) as auditor:
        create(api, namespace, NOTED, 1, node)
        path = pods_of(namespace)
        api.until(path, lambda seen: [each["status"]["phase"] for each in seen["items"]] == ["Running"])
        write(api, namespace, "PodScheduled", "True", bound)
        if status is not None:
            write(api, namespace, GPU_IDLE, status, idle)
        until(lambda: status != "True" or auditor.idle_pods())
        scale(api, namespace, NOTED, 0)
        until(lambda: steps_of(auditor, NOTED))
        verdict = auditor.judge({})
        assert verdict.released["annotation"] == 1
        assert bool(verdict.violations) is wrong


def test_a_release_of_a_pod_that_works_again_is_seen_unless_that_is_news(
    api: Api, namespace: str, hollow_nodes
):
    node = f"hollow-{namespace}"
    hollow_nodes([gpu_node(node, [16 * GIB])])
    with ScalerAuditor(api, namespace, [NOTED]) as auditor:
        create(api, namespace, NOTED, 1, node)
        api.until(
            pods_of(namespace),
            lambda seen: [each["status"]["phase"] for each in seen["items"]] == ["Running"],
        )
        write(api, namespace, "PodScheduled", "True", 60)
        write(api, namespace, GPU_IDLE, "True", 60)
        until(auditor.idle_pods)
        write(api, namespace, GPU_IDLE, "False", 0)
        began = time.time()
        for late in (False, True):
            if late:
                time.sleep(LAG + 3)
            step = Step(1, 0, int(time.time()))
            auditor.steps[NOTED.name] = [step]
            assert bool(auditor.judge({}).violations) is late, (began, step)


@pytest.mark.parametrize(
    ("had", "wrong"),
    [([], True), ([(-60, -30)], True), ([(5, inf)], True), ([(-60, inf)], False), ([(-2, -1.5)], False)],
    ids=["none", "done before", "came later", "waits", "came since"],
)
def test_a_wake_without_a_message_is_seen(
    api: Api, namespace: str, had: list[tuple[float, float]], wrong: bool
):
    with ScalerAuditor(api, namespace, [QUEUED]) as auditor:
        create(api, namespace, QUEUED, 1)
        until(auditor.known)
        scale(api, namespace, QUEUED, 0, 2)
        until(lambda: steps_of(auditor, QUEUED) == 2)
        verdict = auditor.judge({QUEUED.name: [message(*each) for each in had]})
        assert verdict.woken["scaler"] == 1
        assert any("was woken" in each for each in verdict.violations) is wrong


def test_a_wake_that_nobody_asked_for_is_seen(api: Api, namespace: str):
    with ScalerAuditor(api, namespace, [NOTED]) as auditor:
        create(api, namespace, NOTED, 0)
        until(auditor.known)
        before = time.time()
        scale(api, namespace, NOTED, 1)
        until(lambda: steps_of(auditor, NOTED))
        after = time.time()
        asked = Attempt(NOTED.name, before, after)
        for attempts in ((), (Attempt("other", before, after),), (Attempt(NOTED.name, 0, before - 5),)):
            (found,) = auditor.judge({}, attempts).violations
            assert "nobody had asked for it" in found
        assert auditor.judge({}, (asked,)).violations == []


def test_a_release_to_a_minimum_counts_if_the_scaler_says_that_it_is_idle(api: Api, namespace: str):
    least = ScaledWorkload("least", "Deployment", 1, 3, THRESHOLD, "list")
    with ScalerAuditor(api, namespace, [least]) as auditor:
        create(api, namespace, least, 3)
        made = api.create(scalers_path(namespace), least.scaler("redis://queue:6379"))
        until(auditor.known)
        scale(api, namespace, least, 2)
        api.patch(
            f"{scalers_path(namespace)}/{made['metadata']['name']}/status",
            {"status": {"state": "Idle", "desired": 1}},
        )
        scale(api, namespace, least, 1)
        until(lambda: steps_of(auditor, least) == 2)
        until(lambda: auditor.judge({}).released["scaler"] == 1)
        assert len(auditor.judge({least.name: [message(-60)]}).violations) == 1

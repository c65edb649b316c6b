"""Faults of queues, workers, nodes, agents and clocks: what a GpuScaler does then, and what it says."""

from itertools import pairwise

import pytest
from kube.scaler.scaler_scene import START
from kube.scaler.scaling_scene import ScalingScene

from cotenant.kube.api.resources import PODS
from cotenant.kube.scaler.clock import SteadyClock
from cotenant.scaling.sampling import Readings
from cotenant.signals.signal import Reading


@pytest.fixture
def scene() -> ScalingScene:
    scene = ScalingScene()
    scene.node("n1", *[16] * 8)
    scene.workload("a", 0)
    return scene


FAILED = ("SignalFailed", "queue: redis://queue:6379 cannot be reached: Connection refused")


@pytest.mark.parametrize("replicas", [0, 3])
def test_a_queue_that_cannot_be_reached_at_the_start_holds_and_is_used_as_soon_as_it_answers(scene, replicas):
    scene.workload("a", replicas)
    scene.scaler(scaleDownThreshold="60s")
    scene.queue().failed = FAILED
    scene.play(900)
    assert scene.replicas("a") == replicas
    assert scene.condition("Ready")[:2] == ("False", "SignalFailed")
    assert scene.status()["state"] == "NoMetric"
    assert FAILED[1] in scene.status()["message"]
    scene.queue().failed, scene.queue().backlog = None, 2000
    scene.play(10)
    assert scene.replicas("a") > replicas
    assert scene.condition("Ready")[0] == "True"


def test_a_queue_that_fails_midway_wakes_nothing_and_releases_nothing_and_the_timer_goes_on(scene):
    scene.scaler(scaleDownThreshold="300s")
    scene.queue().backlog = 3
    scene.play(100)
    assert scene.replicas("a") == 1
    scene.queue().failed = FAILED
    scene.play(600)
    assert scene.replicas("a") == 1, "idle, as far as anybody knows: but nobody knows"
    scene.queue().failed = None
    scene.play(300)
    assert scene.replicas("a") == 0


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), -1.0, None])
def test_a_figure_that_is_no_count_holds(scene, figure):
    scene.scaler(scaleDownThreshold="60s")
    scene.queue().backlog = 50
    scene.play(60)
    replicas = scene.replicas("a")

    async def read(within: float) -> Readings:
        return Readings(Reading(scene.now, figure, None, None, 0.0))

    scene.queue().read = read
    scene.play(300)
    assert scene.replicas("a") == replicas
    assert scene.status()["state"] == "NoMetric"


def test_a_metric_that_is_stuck_while_gpus_work_holds_and_says_so(scene):
    scene.workload("a", 2)
    for number in range(2):
        scene.replica("a", f"a-{number}", card=number, bound=500, works=True, memory=12)
    scene.scaler(scaleDownThreshold="60s")
    scene.queue().backlog, scene.queue().in_flight = 7, 2
    trace = []
    for _ in range(60):
        scene.poll_once()
        scene.later(5)
        trace.append(scene.replicas("a"))
    assert set(trace[12:]) == {trace[12]}
    assert scene.status()["state"] == "MetricStuck"
    assert scene.condition("Ready")[:2] == ("False", "MetricStuck")


def test_a_message_that_never_ends_keeps_one_replica_and_is_reported(scene):
    scene.scaler(scaleDownThreshold="60s")
    scene.queue().backlog = 1
    scene.play(30)
    replicas = scene.replicas("a")
    for second in range(1200):
        scene.kubernetes("a")
        scene.queue().backlog, scene.queue().in_flight = float(second // 5 % 2), float(1 - second // 5 % 2)
        if second % 5 == 0:
            scene.poll_once()
        scene.later(1)
    assert scene.replicas("a") == replicas == 1
    assert scene.status()["state"] == "Stalled"
    assert scene.condition("Ready")[:2] == ("False", "Stalled")


def test_replicas_that_never_become_ready_are_not_multiplied(scene):
    scene.cold = 1e9
    scene.scaler()
    scene.queue().backlog = 20
    trace = scene.play(1200)
    assert max(trace[600:]) == min(trace[600:])
    assert scene.status()["state"] == "NotStarting"
    assert scene.condition("Ready")[:2] == ("False", "NotStarting")


def test_a_start_longer_than_the_target_is_waited_for(scene):
    scene.node("n1", *[16] * 32)
    scene.cold = 120
    scene.scaler(replicas={"min": 0, "max": 32})
    scene.queue().backlog = 20
    trace = scene.play(400)
    assert max(trace) <= 3, "20 messages of 0.8 s are 16 s of work: many replicas would all come too late"
    assert scene.queue().backlog == 0


@pytest.mark.parametrize("threshold", ["15m", "120s"])
def test_without_its_agent_a_workload_that_its_queue_calls_idle_is_kept_and_that_is_said(scene, threshold):
    scene.scaler(scaleDownThreshold=threshold, scaleDownThresholdWhenOthersWait="60s")
    scene.queue().backlog = 3
    scene.play(100)
    assert scene.replicas("a") == 1
    for _ in range(240):
        scene.now += 5  # and no agent renews its Lease
        scene.poll_once()
    assert scene.replicas("a") == 1
    status, reason, message = scene.condition("Ready")
    assert (status, reason) == ("False", "IdlenessUnknown")
    assert "the agent of node n1 has not reported for" in message
    writes = len(scene.api.writes)
    scene.now += 100
    scene.poll_once()
    assert len(scene.api.writes) == writes, "said once"
    scene.later(5)
    scene.poll_once()
    assert scene.replicas("a") == 0, "the agent is back, and it has been idle all the time"


def test_without_its_agent_nothing_is_released_for_a_pod_that_waits(scene):
    scene.node("n1", 16)
    scene.scaler(scaleDownThreshold="15m", scaleDownThresholdWhenOthersWait="120s")
    scene.queue().backlog = 3
    scene.play(100)
    scene.waits("c", "12Gi")
    for _ in range(20):
        scene.now += 5
        scene.poll_once()
    assert scene.replicas("a") == 1


def test_replicas_of_a_node_that_is_gone_are_replaced_and_nothing_is_released(scene):
    scene.node("n2", *[16] * 8)
    scene.workload("a", 4)
    for number in range(4):
        node = "n1" if number < 2 else "n2"
        scene.replica("a", f"a-{number}", node=node, card=number, bound=500, works=True, memory=12)
    scene.scaler(scaleDownThreshold="60s", replicas={"min": 0, "max": 8})

    def keeps_busy(seconds: int) -> None:
        for second in range(seconds):
            scene.queue().backlog, scene.queue().in_flight = 3.0 + second % 2, 4.0
            if second % 5 == 0:
                scene.poll_once()
            scene.later(1)

    keeps_busy(60)
    before = scene.replicas("a")
    scene.api.remove_node("n2")
    for number in (2, 3):  # as the node controller has it
        body = scene.api.raw(PODS, f"a-{number}", "web")
        for each in body["status"]["conditions"]:
            if each["type"] == "Ready":
                each["status"] = "False"
        scene.api.add(body)
    keeps_busy(120)
    assert scene.replicas("a") >= before, "work waits"
    scene.ends("a-2")
    scene.ends("a-3")
    keeps_busy(60)
    assert scene.replicas("a") >= before
    assert scene.status()["state"] not in {"Idle", "ScalingDown"}


def test_workloads_at_zero_are_polled_as_often_as_others(scene):
    scene.workload("b", 1)
    scene.scaler("a")
    scene.scaler("b")
    scene.play(300, "a", "b")
    assert scene.queue("a").reads == scene.queue("b").reads == 60


@pytest.mark.parametrize("jump", [-7200.0, 86400.0])
def test_a_wall_clock_that_is_set_moves_no_timer(jump):
    """The clock of decisions follows by 1% of the time that passes, and never stands still or goes back."""
    wall, monotonic = START, 0.0
    clock = SteadyClock(lambda: wall, lambda: monotonic)
    seen = [clock()]
    for second in range(600):
        wall, monotonic = wall + 1 + (jump if second == 300 else 0), monotonic + 1
        seen.append(clock())
    steps = [after - before for before, after in pairwise(seen)]
    assert seen[300] == START + 300
    assert min(steps) >= 0.99 - 1e-6
    assert max(steps) <= 1.01 + 1e-6


def test_a_wall_clock_that_jumps_releases_nothing_and_wakes_nothing(scene):
    """Each queue is read at the wall's time, and decisions are made at the steady clock's."""
    scene.scaler(scaleDownThreshold="900s")
    scene.queue().backlog = 3
    scene.play(100)
    for jump in (86_400.0, -86_400.0):
        scene.rounds.wall = lambda jump=jump: scene.now + jump
        scene.queue().now = lambda jump=jump: scene.now + jump
        scene.play(200)
        assert scene.replicas("a") == 1


def test_a_clock_that_was_hours_ahead_when_the_server_started_and_was_set_right(scene):
    """As of a machine whose own clock has local time. The clock of decisions is ahead for weeks then."""
    wall, monotonic = START + 28_800, 0.0
    clock = SteadyClock(lambda: wall, lambda: monotonic)
    wall, monotonic = START + 60, 60.0
    assert clock() > START + 28_000
    assert clock.no_later() == START + 60, "nothing is released by what the first clock said"

    scene.rounds.clock = scene.rounds.acting.clock = lambda: scene.now + 28_800
    scene.scaler()
    scene.queue().backlog = 50
    scene.play(15)
    scene.queue().backlog += 50
    scene.play(4)
    assert scene.status()["state"] != "NotStarting", "they have had their GPUs for seconds"
    scene.play(20)
    assert scene.status()["memory"]["decision"]["coldStart"] == pytest.approx(20, abs=2)


@pytest.mark.parametrize("fails", ["find", "scale"])
def test_a_fault_with_one_scaler_does_not_keep_the_others(scene, monkeypatch, fails):
    scene.workload("b", 0)
    scene.scaler("b")
    scene.scaler("a")
    scene.queue("a").backlog = scene.queue("b").backlog = 5
    works = getattr(scene.targets, fails)

    async def faulty(found, *rest):
        if found.name == "b":
            raise TypeError("nobody thought of that")
        return await works(found, *rest)

    monkeypatch.setattr(scene.targets, fails, faulty)
    scene.play(30, "a", "b")
    assert (scene.replicas("a") > 0, scene.replicas("b")) == (True, 0)
    if fails == "find":
        why = "a fault of Cotenant's server (TypeError): its log says more"
        assert scene.condition("Ready", "b") == ("False", "ServerFault", why)

"""GpuScalers size their targets from the backlog, through restarts of the server and faults of the API server."""

from itertools import pairwise

import pytest
from kube.fakeapi import after, lost, refused
from kube.scaler.scaling_scene import QUEUE, ScalingScene

from cotenant.core.scaling import decide
from cotenant.kube.api.errors import ServerFailed
from cotenant.kube.api.resources import DEPLOYMENTS
from cotenant.kube.scaler.resource import GPU_SCALERS


@pytest.fixture
def scene() -> ScalingScene:
    scene = ScalingScene()
    scene.node("n1", *[16] * 8)
    scene.workload("a", 0)
    return scene


def turns(trace):
    changes = [b - a for a, b in pairwise(trace) if a != b]
    return sum(a * b < 0 for a, b in pairwise(changes))


@pytest.mark.parametrize("target", [5, 3])
def test_a_burst_from_zero_is_cleared_in_time_and_the_cards_come_back(scene, target):
    scene.node("n1", *[16] * 32)
    backlog = {"target": f"{target}s", "queue": QUEUE, "processingTime": {"fixed": "800ms"}}
    scene.scaler(backlog=backlog, replicas={"min": 0, "max": 32}, scaleDownThreshold="60s")
    trace = scene.play(10)
    assert scene.replicas("a") == 0
    assert scene.status()["state"] == "Idle"
    scene.queue().backlog = 200
    trace += scene.play(scene.cold + 2 * target + 2 * scene.poll)
    assert scene.backlog_seconds("a") <= target
    trace += scene.play(1800)
    assert scene.replicas("a") == 0
    assert turns(trace) == 1


def test_a_thousand_seconds_of_idleness_cost_no_write(scene):
    scene.scaler(scaleDownThreshold="1h")
    scene.queue().backlog = 3
    scene.play(300)
    before = len(scene.api.writes)
    scene.play(1000)
    assert [write for write in scene.api.writes[before:] if "gpuscalers" in write] == []


@pytest.mark.parametrize("at", range(5, 300, 45))
def test_another_leader_decides_as_the_first_would_have(at):
    """Whenever it takes over: nothing wakes, no timer begins anew, and the cards come back at the same time."""

    def released(again):
        scene = ScalingScene()
        scene.node("n1", *[16] * 8)
        scene.workload("a", 0)
        scene.scaler(scaleDownThreshold="200s")
        scene.queue().backlog = 20
        for second in range(600):
            if second == again:
                scene.lead()
            scene.play(1)
            if second > 100 and scene.replicas("a") == 0:
                return second
        raise AssertionError("never released")

    assert abs(released(at) - released(None)) <= 5


def test_a_leader_that_is_gone_for_long_resets_no_timer(scene):
    scene.scaler(scaleDownThreshold="15m")
    scene.queue().backlog = 3
    scene.play(400)
    assert scene.replicas("a") == 1
    scene.later(480)
    scene.lead()
    scene.play(60)
    assert scene.replicas("a") == 0


def test_a_leader_takes_over_what_has_idled_for_months_exactly_and_with_few_steps(scene, monkeypatch):
    scene.scaler(scaleDownThreshold="2400h")
    scene.queue().backlog = 3
    scene.play(400)
    steps = []

    def counted(*given):
        steps.append(given)
        return decide(*given)

    monkeypatch.setattr("cotenant.kube.scaler.scaled.decide", counted)
    for hours, replicas in ((2399, 1), (2, 0)):
        scene.later(hours * 3600)
        scene.lead()
        scene.poll_once()
        assert scene.replicas("a") == replicas
    assert len(steps) < 100, "a thousand of them are taken over in one round"


def test_work_that_was_done_while_nobody_led_is_not_idleness(scene):
    scene.scaler(scaleDownThreshold="60s")
    scene.play(5)
    scene.queue().backlog = 500
    scene.play(60)
    assert scene.replicas("a") > 0
    assert scene.queue().backlog + scene.queue().in_flight > 0
    scene.queue().backlog = scene.queue().in_flight = 0
    scene.later(65)
    scene.lead()
    scene.later(5)
    scene.poll_once()
    assert scene.replicas("a") > 0, "when its work ended is not known: it may have been a moment ago"


def test_a_message_that_came_and_went_while_nobody_led_is_not_idleness(scene):
    """The list does not tell; the GPUs do."""
    scene.scaler(scaleDownThreshold="60s")
    scene.queue().backlog = 3
    scene.play(65)
    assert scene.replicas("a") == 1
    assert scene.status()["memory"]["idle"]
    scene.queue().backlog = 1
    for _ in range(25):
        scene.work("a", 1.0, service=2.0)
        scene.later(1)
    scene.lead()
    scene.play(30)
    assert scene.replicas("a") == 1, "it worked less than a minute ago"
    scene.play(60)
    assert scene.replicas("a") == 0


@pytest.mark.parametrize("comes", [0, 1])
def test_nothing_is_released_by_figures_that_are_old_when_they_are_written(scene, comes):
    scene.scaler(scaleDownThreshold="60s")
    scene.queue().backlog = 3
    scene.play(80)
    assert scene.replicas("a") == 1

    def takes_long(_):
        scene.later(15)
        scene.queue().backlog = comes

    scene.later(20)
    scene.api.fates["patch gpuscalers"] = [after(takes_long)]
    scene.poll_once()
    assert scene.status()["desired"] == 0, "it was to be released"
    assert scene.replicas("a") == 1
    scene.poll_once()
    assert scene.replicas("a") == comes


def test_nothing_is_released_before_agents_could_write_what_their_pods_did(scene):
    scene.scaler(scaleDownThreshold="60s")
    scene.queue().backlog = 3
    scene.play(80)
    scene.rounds.sees = lambda: False
    scene.play(20)
    assert scene.replicas("a") == 1
    scene.rounds.sees = lambda: True
    scene.play(5)
    assert scene.replicas("a") == 0


@pytest.mark.parametrize("figure", ["backlog", "in_flight", "failed"])
def test_a_queue_is_read_once_more_right_before_a_release(scene, figure):
    scene.scaler(scaleDownThreshold="60s")
    scene.queue().backlog = 3
    scene.play(80)
    scene.later(20)
    comes = ("SignalFailed", "away") if figure == "failed" else 1.0
    scene.api.fates["patch gpuscalers"] = [after(lambda _: setattr(scene.queue(), figure, comes))]
    scene.poll_once()
    assert scene.status()["desired"] == 0, "it was to be released"
    assert scene.replicas("a") == 1


@pytest.mark.parametrize("fate", [refused(ServerFailed("away", code=503)), lost(before=True)])
def test_what_cannot_be_written_is_not_carried_out(scene, fate):
    scene.scaler()
    scene.play(5)
    scene.queue().backlog = 50
    scene.api.fates["patch gpuscalers"] = [fate]
    scene.poll_once()
    assert scene.replicas("a") == 0
    scene.later(5)
    scene.poll_once()
    assert scene.replicas("a") > 0


def test_a_leader_killed_between_decision_and_patch_leaves_nothing_that_looks_like_somebodys_hand(scene):
    scene.scaler()
    scene.play(5)
    scene.queue().backlog = 50
    scene.api.fates["patch deployments"] = [lost(before=True)]
    scene.poll_once()
    assert scene.replicas("a") == 0
    assert scene.status()["desired"] > 0, "it was announced"
    scene.lead()
    scene.later(5)
    scene.poll_once()
    assert scene.replicas("a") > 0
    assert "ScaledByHand" not in [reason for reason, _ in scene.about("a")]


def test_a_leader_killed_after_the_patch_is_followed_without_another(scene):
    scene.scaler()
    scene.play(5)
    scene.queue().backlog = 50
    scene.api.fates["patch deployments"] = [lost()]
    scene.poll_once()
    replicas = scene.replicas("a")
    assert replicas > 0
    scene.lead()
    scene.later(5)
    scene.poll_once()
    assert scene.replicas("a") == replicas
    assert "ScaledByHand" not in [reason for reason, _ in scene.about("a")]


def test_a_patch_never_overwrites_what_somebody_has_just_set(scene):
    scene.scaler()
    scene.play(5)
    scene.queue().backlog = 50
    scene.api.fates["patch deployments"] = [
        after(lambda api: scene.change("a", lambda body: body["spec"].update(replicas=5)))
    ]
    scene.poll_once()
    assert scene.replicas("a") == 5


def test_who_does_not_lead_writes_nothing(scene):
    scene.scaler()
    scene.queue().backlog = 50
    scene.world.lead.seconds = 1.0
    scene.poll_once()
    assert scene.api.writes == []


def test_observe_decides_and_changes_nothing(scene):
    scene.scaler(mode="observe")
    scene.queue().backlog = 50
    scene.poll_once()
    assert scene.replicas("a") == 0
    assert scene.status()["desired"] > 0
    assert scene.condition("Ready")[0] == "True"
    assert scene.condition("Reconciling")[1:] == ("Observing", "the mode is observe: nothing is changed")
    assert scene.condition("Stalled")[2] == "decisions are made and reported; the mode is observe"


def test_the_status_is_what_kstatus_and_people_read(scene):
    scene.scaler()
    scene.queue().backlog = 50
    scene.poll_once()
    scene.later(5)
    scene.poll_once()
    status = scene.status()
    assert status["observedGeneration"] == 1
    assert status["backlog"] == "40s"
    assert status["state"] in {"Waking", "ScalingUp"}
    assert scene.condition("Reconciling")[0] == "True"
    assert scene.condition("Stalled")[0] == "False"
    scene.queue().backlog = 0
    scene.play(60)
    assert scene.condition("Reconciling")[0] == "False"
    assert scene.condition("Ready")[:2] == ("True", scene.status()["state"])


def test_an_edited_spec_is_taken_over_and_what_was_learned_stays(scene):
    scene.scaler(scaleDownThreshold="1h")
    scene.queue().backlog = 5
    scene.play(200)
    body = scene.api.raw(GPU_SCALERS, "a", "web")
    body["spec"]["scaleDownThreshold"] = "100s"
    body["metadata"]["generation"] = 2
    scene.api.put(GPU_SCALERS, body, "web")
    scene.play(20)
    assert scene.replicas("a") == 0
    assert scene.status()["observedGeneration"] == 2


def test_a_failing_signal_holds_and_says_why(scene):
    scene.scaler(scaleDownThreshold="60s")
    scene.queue().backlog = 50
    scene.play(60)
    replicas = scene.replicas("a")
    scene.queue().failed = ("SignalFailed", "queue: redis://queue:6379 does not answer")
    scene.play(200)
    assert scene.replicas("a") == replicas
    status, reason, message = scene.condition("Ready")
    assert (status, reason) == ("False", "SignalFailed")
    assert "redis://queue:6379 does not answer" in message
    assert scene.status()["state"] == "NoMetric"


def test_a_scaler_that_is_deleted_lets_its_target_be(scene):
    scene.scaler()
    scene.queue().backlog = 50
    scene.poll_once()
    replicas = scene.replicas("a")
    scene.api.remove(GPU_SCALERS, "a", "web")
    scene.poll_once()
    assert scene.replicas("a") == replicas
    assert scene.queue().closed


def test_a_target_without_replicas_of_its_own_kind_is_scaled_through_its_scale(scene):
    """The patch goes to the scale subresource, not to the object."""
    scene.scaler()
    scene.queue().backlog = 50
    scene.poll_once()
    assert scene.api.written(DEPLOYMENTS.plural) == 1

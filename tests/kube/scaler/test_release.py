"""A workload that idles for its threshold gives its GPUs back, and nobody else does."""

import pytest
from kube.fakeapi import lost, refused
from kube.scaler.scaler_scene import Scene
from kube.virtual_time import run

from cotenant.core.errors import BadInput
from cotenant.dialects import names
from cotenant.kube.api.errors import Forbidden
from cotenant.kube.scaler.release import Thresholds, read_thresholds


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.node("n1", 16, 16)
    return scene


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"])
def test_an_idle_workload_of_each_kind_is_scaled_to_zero_and_remembers_what_it_was(scene, kind):
    scene.workload("a", 2, kind, threshold="15m")
    scene.replica("a", "a-0", bound=2000, idle=901)
    scene.replica("a", "a-1", bound=2000, idle=1500, card=1)
    scene.round()
    assert (scene.replicas("a", kind), scene.note("a", kind)) == (0, "2")
    ((reason, text),) = scene.about("a")
    assert reason == "Released"
    assert "idle for 15m1s, scaled from 2 to 0" in text
    assert f"cotenant wake -n web {kind.lower()}/a" in text
    assert scene.about("a-0")[0][0] == "ReleasedGPU"


@pytest.mark.parametrize(
    ("why", "replica"),
    [
        ("it was used a moment ago", {"bound": 2000, "idle": 899}),
        ("it has had its GPU for a shorter time", {"bound": 899, "idle": 2000}),
        ("it works", {"bound": 2000, "works": True}),
        ("it has never been idle", {"bound": 2000}),
        ("it waits for a GPU", {"card": None}),
        ("it loads, and is not idle", {"bound": 2000, "ready": False}),
    ],
)
def test_it_is_kept_if_one_replica(scene, why, replica):
    scene.workload("a", 2, threshold="15m")
    scene.replica("a", "a-0", bound=2000, idle=2000)
    scene.replica("a", "a-1", **{"card": 1, **replica})
    scene.round()
    assert scene.replicas("a") == 2, why


@pytest.mark.parametrize("replica", [{"works": True}, {"idle": 5}])
def test_it_is_kept_if_it_worked_between_the_look_and_the_release(scene, replica):
    scene.workload("a", 1, threshold="15m")
    scene.replica("a", bound=2000, idle=2000)
    (seen,) = scene.releasing.releasable(scene.now)
    scene.replica("a", bound=2000, **replica)
    assert run(scene.releasing.release(seen, scene.now, None)) is False
    assert scene.replicas("a") == 1


def test_it_is_kept_while_a_replica_is_missing(scene):
    scene.workload("a", 2, threshold="15m")
    scene.replica("a", "a-0", bound=2000, idle=2000)
    scene.round()
    assert scene.replicas("a") == 2


def test_without_the_annotation_nothing_is_released(scene):
    scene.workload("a")
    scene.replica("a", bound=9999, idle=9999)
    scene.round()
    assert scene.patches() == 0


def test_a_replica_set_of_a_deployment_has_a_copy_of_its_annotation_and_is_left_alone(scene):
    scene.workload("a", 1, "ReplicaSet", owner="a", threshold="15m", released="1")
    scene.replica("a", bound=2000, idle=2000)
    scene.round()
    assert scene.patches() == 0


def test_pods_of_another_workload_and_another_namespace_do_not_count(scene):
    scene.workload("a", threshold="15m")
    scene.replica("a", bound=2000, idle=2000)
    scene.replica("b", "b-0", works=True, card=1)
    scene.round()
    assert scene.replicas("a") == 0


def test_if_its_agent_does_not_report_it_is_kept_and_that_is_said_once(scene):
    scene.workload("a", threshold="15m")
    scene.replica("a", bound=2000, idle=2000)
    scene.now += 31
    scene.round()
    scene.round()
    assert scene.replicas("a") == 1
    ((reason, text),) = scene.about("a")
    assert reason == "GPUIdleUnknown"
    assert "the agent of node n1 has not reported for 31 s" in text
    scene.agent("n1")
    scene.round()
    assert scene.replicas("a") == 0


def test_a_threshold_that_is_not_valid_is_said_with_its_remedy(scene):
    scene.workload("a", threshold="15 minutes")
    scene.replica("a", bound=2000, idle=2000)
    scene.round()
    ((reason, text),) = scene.about("a")
    assert reason == "ScaleDownThresholdInvalid"
    assert "annotation cotenant.dev/scale-down-threshold" in text


def test_what_a_gpu_scaler_scales_is_left_to_it(scene):
    scene.workload("a", threshold="15m")
    scene.replica("a", bound=2000, idle=2000)
    scene.scaled_by = lambda *_: "GpuScaler a"
    scene.round()
    assert scene.replicas("a") == 1
    assert "GpuScaler a scales it" in scene.about("a")[0][1]


def test_a_workload_that_has_changed_meanwhile_is_looked_at_again(scene):
    """Somebody scaled it by hand in the moment of the decision."""
    scene.workload("a", threshold="15m")
    scene.replica("a", bound=2000, idle=2000)
    scene.api.at_once = True
    stale = scene.releasing.releasable(scene.now)
    scene.change("a", lambda body: body["spec"].update(replicas=2))
    assert run(scene.releasing.release(stale[0], scene.now, None)) is False
    assert (scene.replicas("a"), scene.note("a")) == (2, None)


def test_a_server_that_does_not_lead_for_long_enough_changes_nothing(scene):
    scene.workload("a", threshold="15m")
    scene.replica("a", bound=2000, idle=2000)
    scene.world.lead.seconds = 3.0
    scene.round()
    assert scene.api.calls == []
    scene.world.lead.seconds = 1e9
    scene.round()
    assert scene.replicas("a") == 0


def test_a_lost_answer_is_not_repeated_blindly(scene):
    scene.workload("a", threshold="15m")
    scene.replica("a", bound=2000, idle=2000)
    scene.api.fates["patch"] = [lost()]
    scene.round()
    assert (scene.replicas("a"), scene.note("a")) == (0, "1")
    scene.round()
    assert (scene.replicas("a"), scene.note("a")) == (0, "1"), "what it was is not overwritten"


def test_a_refusal_is_said(scene):
    scene.workload("a", threshold="15m")
    scene.replica("a", bound=2000, idle=2000)
    scene.api.fates["patch"] = [refused(Forbidden("patch deployments web/a: not allowed"))]
    scene.round()
    assert scene.about("a")[0] == (
        "ReleaseFailed",
        "it cannot be changed: patch deployments web/a: not allowed",
    )


def test_one_that_was_brought_back_by_hand_is_released_after_the_threshold_again(scene):
    scene.workload("a", threshold="15m")
    scene.replica("a", bound=2000, idle=2000)
    scene.round()
    scene.ends("a-0")
    scene.change("a", lambda body: body["spec"].update(replicas=3))
    scene.round()
    assert (scene.replicas("a"), scene.note("a")) == (3, None), "the note counts no longer"
    for number in range(3):
        scene.replica("a", f"a-{number}", bound=800, idle=800, memory=1)
    scene.round()
    assert scene.replicas("a") == 3
    scene.later(101)
    scene.round()
    assert (scene.replicas("a"), scene.note("a")) == (0, "3")


def test_thresholds_are_go_durations_and_the_second_is_a_minute_at_most_by_default():
    def read(alone, wanted=None):
        both = {names.SCALE_DOWN_THRESHOLD: alone, names.SCALE_DOWN_THRESHOLD_WHEN_OTHERS_WAIT: wanted}
        return read_thresholds({key: text for key, text in both.items() if text is not None})

    assert read("1h30m") == Thresholds(5400, 60)
    assert read("20s") == Thresholds(20, 20)
    assert read("15m", "2m") == Thresholds(900, 120)
    for alone, wanted, said in (
        ("15m", "1h", "is longer than"),
        ("auto", None, "needs a queue"),
        ("0s", None, "is not from 1s"),
        ("15", None, "scale-down-threshold"),
    ):
        with pytest.raises(BadInput, match=said):
            read(alone, wanted)

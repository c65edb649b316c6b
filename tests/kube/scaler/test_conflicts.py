"""What else scales a target, a target that cannot be scaled, and people who scale by hand: each is said clearly."""

import asyncio

import pytest
from kube.scaler.scaling_scene import BY_KIND, ScalingScene
from kube.virtual_time import run

from cotenant.kube.api.resources import Resource
from cotenant.kube.operating.waking import wake
from cotenant.kube.scaler.conflicts import SCALED_OBJECTS
from cotenant.kube.scaler.resource import GPU_SCALERS


@pytest.fixture
def scene() -> ScalingScene:
    scene = ScalingScene()
    scene.node("n1", *[16] * 8)
    scene.workload("a", 0)
    scene.queue().backlog = 50
    return scene


def stalled(scene, name="a"):
    status, reason, message = scene.condition("Stalled", name)
    assert status == "True"
    assert scene.condition("Ready", name)[:2] == ("False", reason)
    return reason, message


def test_an_hpa_on_the_same_target_stops_us_and_is_named_until_it_is_gone(scene):
    scene.hpa("a-hpa")
    scene.scaler()
    scene.poll_once()
    assert scene.replicas("a") == 0
    assert stalled(scene) == (
        "Conflict",
        "HorizontalPodAutoscaler a-hpa scales Deployment a too: delete one of them, or set mode: observe here",
    )
    scene.api.hpas.remove(scene.api.hpas.named("a-hpa", "web"))
    scene.later(5)
    scene.poll_once()
    assert scene.replicas("a") > 0
    assert scene.condition("Stalled")[0] == "False"


def test_an_hpa_on_another_target_does_not(scene):
    scene.hpa("b-hpa", "b")
    scene.scaler()
    scene.poll_once()
    assert scene.replicas("a") > 0


def test_a_scaled_object_is_named_rather_than_its_own_hpa(scene):
    scene.hpa("keda-hpa-a")
    scene.scaled_object("a-keda")
    scene.scaler()

    async def look():
        looking = asyncio.ensure_future(scene.conflicts.run())
        await asyncio.sleep(0.1)
        looking.cancel()

    asyncio.run(look())
    scene.poll_once()
    assert stalled(scene)[1].startswith("ScaledObject a-keda scales Deployment a too")


def test_without_keda_there_are_no_scaled_objects(scene):
    from cotenant.kube.api.errors import NotFound

    scene.api.fails[f"list {SCALED_OBJECTS.plural}"] = NotFound("no such kind", code=404)
    test_an_hpa_on_another_target_does_not(scene)


def test_of_two_scalers_on_one_target_the_older_acts(scene):
    scene.scaler("a")
    scene.later(10)
    scene.scaler("b", target="a")
    scene.poll_once()
    assert scene.replicas("a") > 0
    assert scene.condition("Stalled", "a")[0] == "False"
    assert stalled(scene, "b")[1].startswith("GpuScaler a, which is older, scales Deployment a too")


def test_one_that_only_observes_is_in_nobodys_way(scene):
    scene.hpa("a-hpa")
    scene.scaler(mode="observe")
    scene.poll_once()
    assert scene.condition("Stalled")[0] == "False"
    assert scene.status()["desired"] > 0


def test_a_target_that_is_not_there_and_one_that_goes_midway(scene):
    scene.scaler("b", target="b")
    scene.poll_once()
    assert stalled(scene, "b") == ("TargetNotFound", "no Deployment b in namespace web")
    scene.workload("b", 1)
    scene.later(5)
    scene.poll_once()
    assert scene.condition("Stalled", "b")[0] == "False"
    scene.api.remove(BY_KIND["Deployment"], "b", "web")
    scene.later(5)
    scene.poll_once()
    assert stalled(scene, "b")[0] == "TargetNotFound"


ROLLOUTS = Resource(dict, "Rollout", "rollouts", group="argoproj.io", version="v1alpha1")


def of_another_kind(scene, *, scalable=True):
    listed = [{"name": "rollouts", "kind": "Rollout", "namespaced": True}]
    if scalable:
        listed.append({"name": "rollouts/scale", "kind": "Scale", "namespaced": True})
    scene.api.paths["/apis/argoproj.io/v1alpha1"] = {"resources": listed}
    scene.scaler(target="", kind="Rollout")
    body = scene.api.raw(GPU_SCALERS, "a", "web")
    body["spec"]["target"] = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "r"}
    scene.api.put(GPU_SCALERS, body, "web")


def test_any_kind_with_a_scale_is_a_target(scene):
    of_another_kind(scene)
    body = {"metadata": {"name": "r"}, "spec": {"replicas": 0}, "status": {"selector": "app=r"}}
    scene.api.put(ROLLOUTS, body, "web")
    scene.poll_once()
    assert scene.api.raw(ROLLOUTS, "r", "web")["spec"]["replicas"] > 0


def test_a_kind_without_a_scale_is_not(scene):
    of_another_kind(scene, scalable=False)
    scene.poll_once()
    reason, message = stalled(scene)
    assert reason == "NotScalable"
    assert "Rollout of argoproj.io/v1alpha1 has no scale subresource" in message


def test_a_kind_that_the_api_server_does_not_know_is_not(scene):
    of_another_kind(scene)
    scene.api.paths.clear()
    scene.poll_once()
    assert stalled(scene)[1] == "the API server has no argoproj.io/v1alpha1: is its CRD installed?"


def test_a_spec_that_cannot_be_read_names_the_field(scene):
    scene.scaler(replicas={"min": 3, "max": 2})
    scene.poll_once()
    reason, message = stalled(scene)
    assert reason == "InvalidSpec"
    assert "spec.replicas.min" in message


def by_hand(scene, replicas):
    scene.change("a", lambda body: body["spec"].update(replicas=replicas))


def test_more_by_hand_is_respected_until_the_load_changes(scene):
    scene.scaler(replicas={"min": 0, "max": 8})
    scene.queue().backlog = 0
    scene.workload("a", 1)
    for _ in range(420):
        scene.queue().backlog += 0.5
        scene.play(1)
    assert scene.replicas("a") == 1
    by_hand(scene, 4)
    for _ in range(600):
        scene.queue().backlog += 0.5
        scene.play(1)
    assert scene.replicas("a") == 4, "the load is the same"
    status, _, message = scene.condition("ScaledByHand")
    assert status == "True"
    assert message == "scaled by hand to 4 replicas: respected until the load changes"
    assert "somebody scaled it from 1 to 4" in dict(scene.about("a"))["ScaledByHand"]
    scene.queue().backlog = 300
    scene.play(30)
    assert scene.replicas("a") > 4
    assert scene.condition("ScaledByHand")[0] == "False"


def test_zero_by_hand_is_respected_until_a_message_comes(scene):
    scene.scaler()
    scene.queue().backlog = 0
    scene.workload("a", 2)
    scene.play(60)
    by_hand(scene, 0)
    scene.play(60)
    assert scene.replicas("a") == 0
    scene.queue().backlog = 1
    scene.play(10)
    assert scene.replicas("a") == 1


def test_one_that_was_woken_by_hand_is_released_after_its_threshold(scene):
    scene.scaler(scaleDownThreshold="120s")
    scene.queue().backlog = 0
    scene.play(600)
    by_hand(scene, 2)
    scene.play(100)
    assert scene.replicas("a") == 2
    scene.play(60)
    assert scene.replicas("a") == 0


def test_a_wake_is_kept_and_said_and_it_is_released_after_its_threshold(scene):
    scene.scaler(scaleDownThreshold="120s")
    scene.queue().backlog = 0
    scene.play(600)
    assert scene.replicas("a") == 0
    woken = run(wake(scene.api, "a", "web"))
    assert woken.sentence.endswith("or until it has been idle for 120s from now")
    scene.play(110)
    assert scene.replicas("a") == 1
    assert scene.condition("ScaledByHand")[0] == "True"
    assert "somebody scaled it from 0 to 1" in dict(scene.about("a"))["ScaledByHand"]
    scene.play(60)
    assert scene.replicas("a") == 0, "it has loaded, and idled for the threshold"
    scene.queue().backlog = 1
    scene.play(10)
    assert scene.replicas("a") == 1, "a message wakes it as ever"


def test_what_was_done_by_hand_while_nobody_led_is_noticed_and_outlives_a_leader(scene):
    scene.scaler()
    scene.queue().backlog = 0
    scene.workload("a", 1)
    scene.play(60)
    by_hand(scene, 3)
    scene.lead()
    scene.later(5)
    scene.poll_once()
    assert scene.condition("ScaledByHand")[0] == "True"
    scene.lead()
    scene.play(400)
    assert scene.replicas("a") == 3
    assert scene.condition("ScaledByHand")[0] == "True"

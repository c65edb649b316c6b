"""On a full cluster no more is asked for than fits, and those who compete are served in order."""

import pytest
from kube.builders import WHOLE
from kube.scaler.scaling_scene import ScalingScene

from cotenant.kube.api.resources import PODS
from cotenant.kube.scaler.removal import COST, costs


@pytest.fixture
def scene() -> ScalingScene:
    """Four cards, room for one replica on each."""
    scene = ScalingScene()
    scene.node("n1", *[16] * 4)
    for name in ("a", "b"):
        scene.workload(name, 0)
        scene.change(
            name,
            lambda body: body["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"].update(
                {"cotenant.dev/gpu-memory": "12Gi"}
            ),
        )
    return scene


def test_no_more_are_asked_for_than_fit_and_one_that_waits(scene):
    scene.scaler()
    scene.queue().backlog = 500
    scene.play(120)
    assert scene.replicas("a") == 5
    assert scene.ready("a") == 4
    assert scene.status()["state"] == "WaitingForGpu"
    assert "1 waiting for a GPU" in scene.status()["message"]
    assert "1st in line" in scene.status()["message"]
    assert scene.condition("Reconciling")[:2] == ("True", "WaitingForGpu")


def test_a_wake_on_a_full_cluster_waits_in_line_and_is_not_crashing(scene):
    for card in range(4):
        scene.replica("other", f"other-{card}", card=card, memory=12, works=True)
    scene.scaler()
    scene.queue().backlog = 50
    scene.play(600)
    assert scene.replicas("a") == 1
    assert scene.status()["state"] in {"Waking", "WaitingForGpu"}
    assert "1st in line" in scene.status()["message"]
    scene.ends("other-0")
    scene.play(60)
    assert scene.ready("a") == 1


def test_the_higher_priority_class_is_served_first(scene):
    scene.classes = {"urgent": 1000}
    scene.change("b", lambda body: body["spec"]["template"]["spec"].update(priorityClassName="urgent"))
    for name in ("a", "b"):
        scene.scaler(name)
        scene.queue(name).backlog = 500
    scene.poll_once()
    scene.later(5)
    scene.poll_once()
    assert (scene.replicas("a"), scene.replicas("b")) == (1, 5)


def test_among_equals_the_one_that_is_further_from_its_target_is_served_first(scene):
    for name, backlog in (("a", 300), ("b", 600)):
        scene.scaler(name)
        scene.queue(name).backlog = backlog
    scene.poll_once()
    scene.later(5)
    scene.poll_once()
    assert (scene.replicas("a"), scene.replicas("b")) == (1, 5)


def test_one_that_idles_is_released_for_a_pod_that_waits_and_both_are_told(scene):
    scene.scaler(scaleDownThreshold="15m", scaleDownThresholdWhenOthersWait="1m")
    scene.queue().backlog = 2
    scene.play(150)
    assert scene.replicas("a") == 1
    scene.waits("c", None, **{WHOLE.replace("/", "__"): "4"})
    scene.poll_once()
    assert scene.replicas("a") == 0
    assert "pod web/c waits in line and can then start" in scene.status()["message"]
    assert "Deployment web/a" in dict(scene.about("c"))["GPUReleasedForIt"]
    assert any("pod web/c waits in line" in text for who, _, text in scene.said if who.startswith("a-"))


def test_one_that_idles_is_kept_if_nobody_could_start_with_it(scene):
    scene.scaler(scaleDownThreshold="15m", scaleDownThresholdWhenOthersWait="1m")
    scene.queue().backlog = 2
    scene.play(150)
    scene.replica("other", "other-0", card=3, memory=12, works=True)
    scene.waits("c", None, **{WHOLE.replace("/", "__"): "4"})
    scene.poll_once()
    assert scene.replicas("a") == 1


def test_ready_replicas_that_idle_go_before_those_that_work(scene):
    scene.workload("a", 4)
    scene.replica("a", "a-0", card=0, bound=100, works=True)
    scene.replica("a", "a-1", card=1, bound=100, idle=50)
    scene.replica("a", "a-2", card=2, bound=100, works=True)
    scene.replica("a", "a-3", card=None)
    store = scene.api.workloads["deployments"]
    replicas = scene.index.replicas("web", store.named("a", "web").selector)
    assert [each.pod.metadata.name for each in replicas.all[:2]] == ["a-3", "a-1"]
    assert list(costs(replicas, 1)) == [], "Kubernetes removes the one without a GPU by itself"
    assert list(costs(replicas, 2)) == ["uid-a-1"]
    assert len(costs(replicas, 3)) == 2
    assert costs(replicas, 4) == {}, "all go"


def test_costs_of_ours_that_count_no_longer_are_taken_off_and_those_of_others_stay(scene):
    scene.workload("a", 3)
    for number, cost in enumerate(("-2000000000", "7", "-1999999999")):
        scene.replica("a", f"a-{number}", card=number, bound=100, idle=90 - 30 * number)
        scene.api.change(
            f"a-{number}", lambda body, cost=cost: body["metadata"]["annotations"].update({COST: cost})
        )
    replicas = scene.index.replicas("web", scene.api.workloads["deployments"].named("a", "web").selector)
    assert costs(replicas, 1) == {"uid-a-2": None}


def test_before_replicas_are_removed_the_idle_ones_get_their_cost(scene):
    scene.scaler()
    scene.workload("a", 4)
    for card in range(4):
        idle = {"idle": 500} if card == 2 else {"works": True}
        scene.replica("a", f"a-{card}", card=card, bound=1000, memory=12, **idle)
    for _ in range(1600):
        scene.queue().in_flight = float(scene.now // 5 % 2)
        if scene.now % 5 < 1:
            scene.poll_once()
        scene.later(1)
        if scene.replicas("a") < 4:
            break
    assert scene.replicas("a") < 4
    assert COST in scene.api.raw(PODS, "a-2", "web")["metadata"]["annotations"]

"""While a pod in line could start with what is idle, the shorter threshold counts; otherwise it does not."""

import pytest
from kube.builders import WHOLE
from kube.scaler.scaler_scene import Scene


@pytest.fixture
def scene() -> Scene:
    """Two cards of 16 GiB; `a` holds one, idle for two minutes, of its fifteen."""
    scene = Scene()
    scene.node("n1", 16, 16)
    scene.workload("a", threshold="15m", wanted="1m")
    scene.replica("a", bound=2000, idle=120)
    return scene


def test_it_is_kept_while_nobody_waits(scene):
    scene.round()
    assert scene.replicas("a") == 1


def test_it_is_released_for_a_pod_that_can_then_start_and_both_are_told_of_each_other(scene):
    scene.waits("b", None, **{WHOLE.replace("/", "__"): "2"})
    scene.round()
    assert scene.replicas("a") == 0
    assert "pod web/b waits in line and can then start" in scene.about("a")[0][1]
    assert "pod web/b waits in line" in scene.about("a-0")[0][1]
    (told,) = [text for reason, text in scene.about("b") if reason == "GPUReleasedForIt"]
    assert "Deployment web/a" in told
    assert "web/a-0" in told


def test_it_is_kept_if_the_pod_could_not_start_even_then(scene):
    scene.replica("other", "other-0", card=1, works=True)
    scene.waits("b", None, **{WHOLE.replace("/", "__"): "2"})
    scene.round()
    assert scene.replicas("a") == 1


def test_it_is_kept_if_the_pod_fits_already(scene):
    scene.waits("b", "8Gi")
    scene.round()
    assert scene.replicas("a") == 1


def test_it_is_kept_before_the_shorter_threshold(scene):
    scene.now -= 61
    scene.waits("b", None, **{WHOLE.replace("/", "__"): "2"})
    scene.round()
    assert scene.replicas("a") == 1


def test_two_that_are_enough_only_together_both_go(scene):
    scene.workload("c", threshold="15m", wanted="1m")
    scene.replica("c", "c-0", bound=2000, idle=100, card=1)
    scene.waits("b", None, **{WHOLE.replace("/", "__"): "2"})
    scene.round()
    assert (scene.replicas("a"), scene.replicas("c")) == (0, 0)


def test_of_two_that_are_enough_alone_the_one_that_is_idle_for_longer_goes(scene):
    scene.workload("c", threshold="15m", wanted="1m")
    scene.replica("c", "c-0", bound=2000, idle=500, card=1)
    scene.waits("b", None, **{WHOLE.replace("/", "__"): "1"})
    scene.round()
    assert (scene.replicas("a"), scene.replicas("c")) == (1, 0)


def test_room_that_is_on_its_way_is_not_made_twice(scene):
    scene.workload("c", threshold="15m", wanted="1m")
    scene.replica("c", "c-0", bound=2000, idle=100, card=1)
    scene.waits("b", None, **{WHOLE.replace("/", "__"): "1"})
    scene.round()
    assert (scene.replicas("a"), scene.replicas("c")) == (0, 1)
    scene.api.change("a-0", lambda body: body["metadata"].update(deletionTimestamp="2040-01-01T00:00:00Z"))
    scene.round()
    assert scene.replicas("c") == 1, "what a-0 leaves is enough"


def test_a_pod_that_something_else_keeps_releases_nobody(scene):
    scene.waits("b", None, **{WHOLE.replace("/", "__"): "2"})
    for place in scene.world.line.places():
        place.stays_away = True
    scene.round()
    assert scene.replicas("a") == 1

"""Each change of a target is one event of its GpuScaler, with the figures that decided; trouble is said once."""

import re
from itertools import pairwise

import pytest
from kube.fakeapi import refused
from kube.scaler.scaling_scene import ScalingScene

from cotenant.kube.api.errors import Forbidden


@pytest.fixture
def scene() -> ScalingScene:
    scene = ScalingScene()
    scene.node("n1", *[16] * 8)
    scene.workload("a", 0)
    return scene


def changes(scene):
    """Of each event: its reason, and from how many to how many replicas."""
    found = [(reason, re.match(r"scaled from (\d+) to (\d+): ", text)) for reason, text in scene.about("a")]
    return [(reason, int(match[1]), int(match[2])) for reason, match in found if match is not None]


def test_every_change_from_zero_and_back_is_one_event(scene):
    scene.scaler(scaleDownThreshold="60s")
    trace = [0]
    scene.queue().backlog = 300
    for _ in range(1500):
        trace += scene.play(1)
    steps = [(a, b) for a, b in pairwise(trace) if a != b]
    said = changes(scene)
    assert [(a, b) for _, a, b in said] == steps
    assert steps[0][0] == steps[-1][1] == 0
    for reason, before, after in said:
        assert reason == ("ScaledUp" if after > before else "Released" if after == 0 else "ScaledDown")
    first = next(text for reason, text in scene.about("a") if reason == "ScaledUp")
    assert "300 messages waiting" in first


def test_a_scale_that_is_refused_is_said(scene):
    scene.scaler()
    scene.play(5)
    scene.queue().backlog = 50
    scene.api.fates["patch deployments"] = [refused(Forbidden("deployments/scale: not allowed", code=403))]
    scene.poll_once()
    text = dict(scene.about("a"))["ScaleFailed"]
    assert text.startswith("cannot scale from 0 to ")
    assert "deployments/scale: not allowed" in text
    scene.later(5)
    scene.poll_once()
    assert scene.replicas("a") > 0


def test_trouble_is_one_event_however_long_it_lasts(scene):
    scene.scaler("a", target="gone")
    scene.play(300)
    assert [reason for reason, _ in scene.about("a")] == ["TargetNotFound"]

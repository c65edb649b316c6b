"""Replicas that look busy for some seconds after their work do not make a scaler ask for more of them."""

import random
from itertools import pairwise

import pytest
from kube.scaler.scaling_scene import QUEUE, ScalingScene

from cotenant.core.scaling import Sample, ScalingPolicy
from cotenant.kube.api.resources import PODS
from cotenant.kube.scaler.slot_load import bounded
from cotenant.scaling.sampling import Readings
from cotenant.signals.signal import Reading

IDLE, OFTEN = 10.0, 30.0
"""Seconds after which an agent reports that a pod is idle, and one that works every few seconds."""


class Lagging(ScalingScene):
    """Each replica takes one message at a time, the one that has waited for longest first, as Redis has it. Its agent
    reports work at once and idleness late.
    """

    def play_messages(self, rate: float, service: float, seconds: int, seed: int = 1) -> list[int]:
        draw, waiting, trace = random.Random(seed), 0, []
        busy: dict[str, float] = {}
        last: dict[str, float] = {}
        for _ in range(seconds):
            self.kubernetes("a")
            ready = {
                pod.metadata.name
                for pod in self.api.pods
                if pod.metadata.labels.get("app") == "a" and self.index.replica(pod).ready is not None
            }
            waiting += sum(draw.random() < rate / 10 for _ in range(10))
            for name in sorted(ready, key=lambda name: busy.get(name, 0.0)):
                if waiting and busy.get(name, 0.0) <= self.now:
                    waiting -= 1
                    busy[name] = self.now + draw.expovariate(1 / service)
                    last[name] = busy[name]
                quiet = self.now - last.get(name, self.now - 2 * OFTEN)
                self._agent_writes(self.api.raw(PODS, name, "web"), works=quiet < OFTEN)
            self.queue().backlog = float(waiting)
            if self.now % self.poll < 1:
                self.poll_once()
            trace.append(self.replicas("a"))
            self.later(1)
        return trace


@pytest.fixture
def scene() -> Lagging:
    scene = Lagging()
    scene.node("n1", *[16] * 32)
    scene.workload("a", 1)
    queue = {"redis": QUEUE["redis"], "inFlight": {"slots": True}}
    backlog = {"queue": queue, "processingTime": {"fixed": "1s"}}
    scene.scaler(backlog=backlog, replicas={"min": 1, "max": 32})

    async def read(within: float) -> Readings:
        return Readings(Reading(scene.now, scene.queue().backlog))

    scene.queue().read = read
    return scene


@pytest.mark.parametrize(("rate", "enough"), [(0.2, 2), (0.7, 4)])
def test_a_light_load_gets_as_many_replicas_as_it_needs_and_nothing_turns(scene, rate, enough):
    """Without the bound, every replica that touches a message in 30 s counts as busy, and the number runs away."""
    trace = scene.play_messages(rate, 1.0, 1200)
    assert max(trace) <= enough
    changes = [b - a for a, b in pairwise(trace) if a != b]
    assert sum(a * b < 0 for a, b in pairwise(changes)) <= 1


def test_messages_that_wait_bring_more_replicas(scene):
    scene.play_messages(0.2, 1.0, 100)
    trace = scene.play_messages(8.0, 1.0, 300)
    assert max(trace) >= 8


def sample(**of):
    return Sample(**{"backlog": 0.0, "in_flight": 8.0, "ready": 8, **of})


def test_only_an_empty_queue_bounds_what_is_counted():
    policy = ScalingPolicy(maximum=32, service=0.8)
    assert 4 < bounded(sample(), policy, None).in_flight < 7
    assert bounded(sample(in_flight=1.0), policy, None).in_flight == 1, "fewer are not made more"
    for other in (sample(backlog=1.0), sample(backlog=None), sample(in_flight=0.0), sample(ready=0)):
        assert bounded(other, policy, None) is other
    assert bounded(sample(), ScalingPolicy(maximum=32, concurrency=4), None).in_flight == 8


def test_slow_messages_leave_less_room_for_doubt():
    policy = ScalingPolicy(maximum=32, target=3.0)
    loads = [bounded(sample(), policy, seconds).in_flight for seconds in (0.001, 0.1, 1.0, 10.0, 3600.0)]
    assert loads == sorted(loads, reverse=True)
    assert loads[-1] > 0

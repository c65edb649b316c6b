"""Knative: averages of 60 s and 6 s, panic and its end."""

from __future__ import annotations

from itertools import count

from simulate.scaling.policies.seen import seen

from cotenant.simulate.scaling.observation import Observation
from cotenant.simulate.scaling.policies.knative import KnativePodAutoscaler


class Fed:
    """Feeds a constant concurrency, every two seconds."""

    def __init__(self, concurrency: int = 1) -> None:
        self.rule = KnativePodAutoscaler(concurrency=concurrency)
        self.now, self.area = 0.0, 0.0

    def go(self, seconds: float, concurrency: float, ready: int) -> list[int]:
        wanted = []
        for _ in range(int(seconds / 2)):
            self.now, self.area = self.now + 2, self.area + 2 * concurrency
            observation: Observation = seen(self.now, 0, ready, area=self.area)
            wanted.append(self.rule.decide(observation).replicas)
        return wanted


def test_it_wants_the_concurrency_by_seventy_percent_of_a_pod() -> None:
    assert Fed().go(60, 7, 10)[-1] == 10
    assert Fed(concurrency=10).go(60, 70, 10)[-1] == 10


def test_it_panics_when_six_seconds_ask_for_twice_the_ready_pods() -> None:
    fed = Fed()
    fed.go(60, 7, 10)
    assert max(fed.go(4, 14, 10)) <= 12  # the average of 60 s has hardly moved
    assert fed.go(2, 14, 10)[-1] == 20


def test_while_it_panics_nothing_is_removed_and_after_sixty_seconds_it_ends() -> None:
    fed = Fed()
    fed.go(60, 7, 10)
    fed.go(6, 28, 10)
    assert set(fed.go(58, 0, 40)) == {40}
    assert fed.go(16, 0, 40)[-1] == 20  # at most to the half at once


def test_the_last_pod_stays_for_the_stable_window_and_a_grace_period() -> None:
    fed = Fed()
    fed.go(60, 0.5, 1)
    gone = next(at for at in count(2, 2) if fed.go(2, 0, 1) == [0])
    assert gone == 60 + 30


def test_without_figures_nothing_changes() -> None:
    assert KnativePodAutoscaler(concurrency=1).decide(seen(2, None, 5)).replicas == 5

"""The HPA's rule, in cases that were worked out by hand from the documentation of Kubernetes."""

from __future__ import annotations

import pytest
from simulate.scaling.policies.seen import seen

from cotenant.simulate.scaling.policies.hpa import HorizontalPodAutoscaler


def hpa(target: float = 5.0, maximum: int = 100) -> HorizontalPodAutoscaler:
    return HorizontalPodAutoscaler(target=target, service=1.0, maximum=maximum)


def test_it_wants_the_whole_metric_by_the_target_for_each_replica() -> None:
    assert hpa().decide(seen(0, 18, 3)).replicas == 4


@pytest.mark.parametrize(("backlog", "wanted"), [(45, 10), (54, 10), (56, 12)])
def test_within_a_tenth_of_the_target_nothing_changes(backlog: int, wanted: int) -> None:
    assert hpa().decide(seen(0, backlog, 10)).replicas == wanted


def test_it_doubles_or_adds_four_within_fifteen_seconds() -> None:
    small, large = hpa(), hpa()
    assert small.decide(seen(0, 500, 1)).replicas == 5
    assert small.decide(seen(15, 500, 5)).replicas == 10
    assert large.decide(seen(0, 500, 20)).replicas == 40
    assert large.decide(seen(5, 500, 40)).replicas == 40
    assert large.decide(seen(15, 500, 40)).replicas == 80


def test_it_goes_down_to_the_highest_recommendation_of_five_minutes() -> None:
    rule = hpa()
    assert rule.decide(seen(0, 50, 10)).replicas == 10
    assert rule.decide(seen(15, 30, 10)).replicas == 10
    assert rule.decide(seen(290, 0, 10)).replicas == 10
    assert rule.decide(seen(301, 0, 10)).replicas == 6
    assert rule.decide(seen(316, 0, 6)).replicas == 1


def test_it_stays_between_one_and_its_maximum() -> None:
    rule = hpa(maximum=12)
    assert rule.decide(seen(0, 5000, 10)).replicas == 12
    assert rule.decide(seen(600, 0, 12)).replicas == 1


def test_without_the_metric_nothing_changes() -> None:
    assert hpa().decide(seen(0, None, 7)).replicas == 7

"""KEDA: the HPA from one replica on, and its own poll and cool-down from and to zero."""

from __future__ import annotations

from simulate.scaling.policies.seen import seen

from cotenant.simulate.scaling.policies.keda import KedaScaledObject


def keda(minimum: int = 0, service: float = 0.8) -> KedaScaledObject:
    return KedaScaledObject(target=5, service=service, concurrency=1, minimum=minimum, maximum=100)


def test_the_length_for_each_replica_is_a_whole_number_of_messages() -> None:
    assert keda().decide(seen(0, 18, 1)).replicas == 3  # 5 s of 0.8 s: 6 messages
    assert keda(service=60).decide(seen(0, 2, 1)).replicas == 2  # never less than one


def test_it_wakes_at_its_own_poll() -> None:
    rule = keda()
    assert rule.decide(seen(0, 0, 0)).replicas == 0
    assert rule.decide(seen(15, 9, 0)).replicas == 0
    assert rule.decide(seen(30, 9, 0)).replicas == 1


def test_it_releases_after_the_cool_down_and_not_while_messages_wait() -> None:
    rule = keda()
    rule.decide(seen(30, 3, 1))
    for now in range(45, 330, 15):
        assert rule.decide(seen(now, 0, 1)).replicas == 1
    assert rule.decide(seen(330, 0, 1)).replicas == 0


def test_messages_in_work_do_not_keep_it() -> None:
    rule = keda()
    rule.decide(seen(30, 1, 1))
    assert rule.decide(seen(330, 0, 1, in_flight=1)).replicas == 0


def test_with_a_minimum_of_one_it_never_releases() -> None:
    rule = keda(minimum=1)
    assert all(rule.decide(seen(now, 0, 1)).replicas == 1 for now in range(0, 1200, 15))

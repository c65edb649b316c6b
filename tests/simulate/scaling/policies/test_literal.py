"""The literal rule, and Erlang C alone."""

from __future__ import annotations

from simulate.scaling.policies.seen import seen

from cotenant.simulate.scaling.policies.erlang import ErlangC
from cotenant.simulate.scaling.policies.literal import LiteralRule


def test_the_literal_rule_moves_by_one() -> None:
    rule = LiteralRule(target=5, service=0.8, concurrency=1)
    assert rule.decide(seen(0, 13, 2)).replicas == 3  # 5.2 s
    assert rule.decide(seen(0, 12, 2)).replicas == 1  # 4.8 s
    assert rule.decide(seen(0, 0, 1)).replicas == 1
    assert rule.decide(seen(0, None, 4)).replicas == 4


def test_erlang_c_sizes_twenty_busy_replicas_by_the_length_of_a_message() -> None:
    def sized(service: float, target: float) -> int:
        rule = ErlangC(target=target, service=service, concurrency=1, period=5, maximum=100)
        return rule.decide(seen(300, 0, 20, arrived=round(300 * 20 / service))).replicas

    assert sized(0.1, 5) == 21
    assert 23 <= sized(5, 3) <= 27

"""Lists the policies by name, and builds one for a workload and its conditions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cotenant.core.errors import BadInput
from cotenant.core.idle import IdlePolicy
from cotenant.core.scaling import ScalingPolicy
from cotenant.simulate.scaling.observation import Policy
from cotenant.simulate.scaling.policies.erlang import ErlangC
from cotenant.simulate.scaling.policies.hpa import HorizontalPodAutoscaler
from cotenant.simulate.scaling.policies.keda import KedaScaledObject
from cotenant.simulate.scaling.policies.knative import KnativePodAutoscaler
from cotenant.simulate.scaling.policies.literal import LiteralRule
from cotenant.simulate.scaling.policies.ours import Ours
from cotenant.simulate.scaling.running import Conditions

Builder = Callable[[float, Conditions], Policy]
"""Builds a policy from the mean service time that it is told, and the conditions."""


def _ours(service: float, world: Conditions) -> Policy:
    return Ours(
        ScalingPolicy(
            target=world.target,
            minimum=world.minimum,
            maximum=world.maximum,
            service=service,
            concurrency=world.concurrency,
            poll=world.poll,
            idle=IdlePolicy(threshold=world.idle),
        )
    )


def _literal(service: float, world: Conditions) -> Policy:
    return LiteralRule(target=world.target, service=service, concurrency=world.concurrency)


def _hpa(service: float, world: Conditions) -> Policy:
    return HorizontalPodAutoscaler(
        target=world.target, service=service / world.concurrency, maximum=world.maximum
    )


def _keda(service: float, world: Conditions) -> Policy:
    return KedaScaledObject(
        target=world.target,
        service=service,
        concurrency=world.concurrency,
        minimum=world.minimum,
        maximum=world.maximum,
    )


def _knative(_service: float, world: Conditions) -> Policy:
    return KnativePodAutoscaler(concurrency=world.concurrency)


def _erlang(service: float, world: Conditions) -> Policy:
    return ErlangC(
        target=world.target,
        service=service,
        concurrency=world.concurrency,
        period=world.poll,
        maximum=world.maximum,
    )


POLICIES: dict[str, tuple[str, Builder]] = {
    "ours": ("Cotenant's own: size by the arrival rate, clear the backlog", _ours),
    "seed": ("the literal rule: above the target one more, below it one less", _literal),
    "hpa": ("HorizontalPodAutoscaler on backlog seconds for each replica", _hpa),
    "keda": ("a KEDA ScaledObject on a list's length", _keda),
    "knative": ("the Knative Pod Autoscaler, by concurrency", _knative),
    "erlang": ("Erlang C on the arrival rate, alone", _erlang),
}
"""What each policy is, and how it is built."""


def check(names: Sequence[str]) -> Sequence[str]:
    """Returns the names if all are policies."""
    for name in names:
        if name not in POLICIES:
            raise BadInput(f"policy: {name[:40]!r} is not known; there are {', '.join(POLICIES)}")
    return names


def build(name: str, service: float, conditions: Conditions) -> Policy:
    """Builds a policy that is told `service` as the processing time."""
    return POLICIES[name][1](service, conditions)

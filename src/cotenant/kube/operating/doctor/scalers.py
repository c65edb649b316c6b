"""Checks GpuScalers that cannot do their work for long, and targets that several autoscalers scale."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from cotenant.core.errors import BadInput
from cotenant.core.finding import WARNING, Finding, Kind
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.remedies import few
from cotenant.kube.operating.doctor.subject import ClusterSubject
from cotenant.kube.scaler.conflicts import Aim, aim_of, autoscalers_by_aim
from cotenant.kube.scaler.resource import READY, GpuScaler, read_spec

_LONG = timedelta(minutes=10)
"""A queue that restarts, or a worker that loads, is no fault for a finding."""
_LONGEST = 300
"""Characters of a scaler's own words."""

NOT_READY = Kind(
    "scaler-not-ready",
    WARNING,
    "its workload keeps the replicas that it has: it is neither sized nor released",
)
CONFLICT = Kind(
    "scalers-conflict", WARNING, "only one of them may scale it: a GpuScaler changes nothing until then"
)


def not_ready(facts: Facts) -> Iterator[Finding]:
    for scaler in facts.scalers:
        meta = scaler.metadata
        for each in scaler.status.conditions:
            since = each.last_transition_time
            if each.type != READY or each.status != "False" or each.reason == "Conflict":
                continue
            if since is None or facts.now - since < _LONG:
                continue
            said = " ".join(each.message.split())[:_LONGEST]
            yield NOT_READY.at(
                f"gpuscaler {meta.namespace}/{meta.name}",
                f"the GpuScaler {meta.namespace}/{meta.name} is not Ready since {since:%Y-%m-%d %H:%M:%S}: "
                f"{each.reason}: {said}",
                f"kubectl describe gpuscaler -n {meta.namespace} {meta.name}; its states: docs/gpuscaler.md",
            )


def conflicts(facts: Facts) -> Iterator[Finding]:
    """By what people have written, so that it is found also while no server decides."""
    by_aim: dict[Aim, list[str]] = {}
    for scaler in facts.scalers:
        aim = _acts_on(scaler)
        if aim is not None:
            by_aim.setdefault(aim, []).append(f"GpuScaler {scaler.metadata.name}")
    others = autoscalers_by_aim(facts.hpas, facts.scaled_objects)
    for aim, scalers in by_aim.items():
        all_ = [*scalers, *([others[aim]] if aim in others else [])]
        if len(all_) > 1:
            namespace, _, kind, name = aim
            yield CONFLICT.at(
                f"{kind.lower()} {namespace}/{name}",
                f"{kind} {namespace}/{name} is scaled by {few(all_)}",
                "delete all but one, or set mode: observe in the GpuScaler that only watches",
            )


def _acts_on(scaler: GpuScaler) -> Aim | None:
    try:
        spec = read_spec(scaler)
    except BadInput:
        return None
    return aim_of(spec.target, scaler.metadata.namespace) if spec.mode == "act" else None


SUBJECT = ClusterSubject(checks=(not_ready, conflicts))

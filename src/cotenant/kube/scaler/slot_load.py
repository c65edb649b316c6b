"""Bounds what `inFlight: {slots: true}` counts by what the replicas can be working on while nothing waits.

The pod condition GPUIdle says that a replica works at once, and that it is idle only after ten seconds, or
thirty for one that works every few seconds. Redis gives the next message to the worker that has waited for
longest, so a few messages a minute make every replica look busy. Sized by that count alone a workload would
get more replicas, all of which look busy again, up to its maximum (tried: 30 replicas for a load of 0.8).

An empty queue tells more: then the replicas that are there are enough. So while nothing waits, no more is
counted than the load for which this many replicas are right. More replicas are asked for when messages wait.
"""

from __future__ import annotations

from dataclasses import replace

from cotenant.core.queueing import servers
from cotenant.core.scaling import GROWTH, LATENESS, UNSEEN
from cotenant.core.scaling_input import Sample, ScalingPolicy

_STEPS = 10
"""Halvings: to a thousandth of the replicas."""
_UNKNOWN = 1.0
"""Seconds that a message takes, before that is known."""


def bounded(sample: Sample, policy: ScalingPolicy, service: float | None) -> Sample:
    """Returns the sample with no more in flight than its replicas are enough for, if its queue is empty."""
    if sample.backlog != 0 or not sample.in_flight or not sample.ready or policy.concurrency > 1:
        return sample
    most = _load_of(sample.ready, policy, service or policy.service or _UNKNOWN)
    return replace(sample, in_flight=min(sample.in_flight, most))


def _load_of(replicas: int, policy: ScalingPolicy, service: float) -> float:
    """Returns the largest load, in busy replicas, that a decision would not size above this many."""
    low, high = 0.0, float(replicas)
    margin = (1 + GROWTH) * (1 + UNSEEN)
    for _ in range(_STEPS):
        load = (low + high) / 2
        if max(servers(load * margin, policy.target / service, LATENESS, replicas + 1)) <= replicas:
            low = load
        else:
            high = load
    return low

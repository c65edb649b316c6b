"""Workloads that are made by a seed."""

from __future__ import annotations

import random
from array import array

from cotenant.simulate.scaling.workload import Workload


def at(*times: float, service: float = 1.0) -> Workload:
    """Requests at these times, all of the same length."""
    return Workload(array("d", times), array("d", [service] * len(times)))


def steady(
    rate: float, service: float, seconds: float, seed: int = 1, *, exponential: bool = True
) -> Workload:
    """Poisson arrivals; service times are exponential or all the same."""
    return ramp(rate, rate, service, seconds, seed, exponential=exponential)


def ramp(
    low: float, high: float, service: float, seconds: float, seed: int = 1, *, exponential: bool = True
) -> Workload:
    """Poisson arrivals whose rate goes from `low` to `high`."""
    chance, now, times = random.Random(seed), 0.0, [0.0]
    while now < seconds:
        now += chance.expovariate(low + (high - low) * now / seconds)
        times.append(now)
    services = [chance.expovariate(1 / service) if exponential else service for _ in times]
    return Workload(array("d", times), array("d", services))


def on_off(rate: float, service: float, on: float, off: float, seconds: float, seed: int = 1) -> Workload:
    """Poisson arrivals for `on` seconds, nothing for `off` seconds, again and again."""
    busy = steady(rate, service, seconds * on / (on + off), seed)
    times = [now + off * int(now // on) for now in busy.arrivals]
    return Workload(array("d", times), busy.services)

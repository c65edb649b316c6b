"""Sizes a pool of servers with Erlang C: how many are needed so that few messages wait longer than a target.

Arrivals at random, `load` servers busy on average. A fixed utilisation is too much for slow messages in a
small pool and too little for quick ones: with 20 busy servers, messages of 0.1 s need 21 of them for a target
of 5 s; messages of 5 s need 26 for a target of 3 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, floor, sqrt

LARGE = 10_000.0
"""Busy servers. Above it the square-root rule is as good, and costs no loop."""
_SQUARE_ROOTS = 3.0
_NEGLIGIBLE = 1e-12


def servers(
    load: float, patience: float, lateness: Sequence[tuple[float, float]], limit: int
) -> tuple[int, ...]:
    """Returns the fewest servers for each (chance, worth) of `lateness`, which goes from loose to strict.

    They keep the chance that a message waits for more than `patience`, in service times, within `chance`;
    or they are fewer, where one more would spare less than one late message in `worth` services. Never more
    than `limit`.
    """
    if load <= 0:
        return (0,) * len(lateness)
    if load >= limit:
        return (limit,) * len(lateness)
    if load > LARGE:
        return (min(limit, ceil(load + _SQUARE_ROOTS * sqrt(load))),) * len(lateness)
    n = floor(load)
    blocked = _erlang_b(n, load)
    n, blocked = n + 1, _one_more(n, load, blocked)
    late = _late(n, load, blocked, patience)
    found = list[int]()
    for chance, worth in lateness:
        while late > chance and n < limit:
            following = _one_more(n, load, blocked)
            then = _late(n + 1, load, following, patience)
            if worth * load * (late - then) <= 1:
                break
            n, blocked, late = n + 1, following, then
        found.append(n)
    return tuple(found)


def _erlang_b(n: int, load: float) -> float:
    """Returns the chance that all of n <= load servers are busy, by the sum for its reciprocal."""
    term = total = 1.0
    for left in range(n, 0, -1):
        term *= left / load
        total += term
        if term < total * _NEGLIGIBLE:
            break
    return 1 / total


def _one_more(n: int, load: float, blocked: float) -> float:
    """Returns Erlang B of n + 1 servers from that of n."""
    return load * blocked / (n + 1 + load * blocked)


def _late(n: int, load: float, blocked: float, patience: float) -> float:
    """Returns the chance to wait for more than `patience` with n > load servers: Erlang C and its tail."""
    waits = blocked / (1 - load / n * (1 - blocked))
    return waits * exp(-(n - load) * patience)

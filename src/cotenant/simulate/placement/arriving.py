"""Chooses which pods of a recording come, in which order and for how long: the same for every policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from random import Random

from cotenant.core.errors import BadInput
from cotenant.simulate.placement.workload import Recording, drawn, mean_stay, shuffled

MOST_ARRIVALS = 1_000_000
FULL, STEADY = 1.3, 1.0
"""What is asked for, as a multiple of the room: where nobody leaves, and with departures on average."""
LIFETIMES = 5.0
"""How long pods come and go, in mean stays; in the first half the cluster fills, and nothing is counted."""


@dataclass(frozen=True, slots=True)
class Coming:
    """How pods come and go."""

    recorded: bool = False
    """In the recorded order and at the recorded times, each once; otherwise at random."""
    load: float | None = None
    """What they ask for as a multiple of the room; None: as is usual."""
    count: int | None = None
    """How many come; None: as many as the load needs."""
    departures: bool = False
    keep: bool = False
    """Whether pods that run stay where they are, and only others come."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Pods by their position in the recording."""

    pods: list[int]
    stays: list[float | None]
    moments: list[float] | None
    """When each comes; None: time is counted in pods."""
    skip: int
    """The first of them, that are not counted."""
    kept: dict[int, float]
    """Pods that run already, with the time at which they end."""


def schedule(recording: Recording, sizes: Sequence[int], room: int, coming: Coming, seed: int) -> Schedule:
    """Returns who comes. `sizes`: the GPU memory that each pod asks for; `room`: what there is."""
    kept = [at for at, pod in enumerate(recording.pods) if coming.keep and pod.node]
    if coming.recorded:
        return _recorded(recording, kept, coming)
    new = [at for at, pod in enumerate(recording.pods) if not pod.node]
    drawn_from = list(range(len(sizes))) if recording.like_running else new
    if not sum(sizes[at] for at in drawn_from):
        raise BadInput("pods: no pod asks for GPU: there is nothing to place")
    if coming.departures:
        return _come_and_go(sizes, drawn_from, room, kept, coming, seed)
    load = FULL if coming.load is None else coming.load
    asked = load * room - sum(sizes[at] for at in kept)
    own = [sizes[at] for at in drawn_from]
    _check(coming.count if coming.count is not None else asked * len(own) / sum(own))
    if coming.keep:
        pods = _more(new, drawn_from, sizes, asked, coming.count, seed)
    else:
        pods = [drawn_from[at] for at in shuffled(own, asked, seed, coming.count)]
    if not pods:
        raise BadInput(f"load: what runs asks for {load:.0%} of the room already: raise it, or give --count")
    return Schedule(pods, [None] * len(pods), None, 0, dict.fromkeys(kept, inf))


def _more(
    new: Sequence[int],
    drawn_from: Sequence[int],
    sizes: Sequence[int],
    asked: float,
    count: int | None,
    seed: int,
) -> list[int]:
    """Returns those that wait, then random ones, until they ask for this many bytes, or exactly `count`."""
    chance, order = Random(seed), list(new)
    total = sum(sizes[at] for at in order)
    while total < asked if count is None else len(order) < count:
        order.append(chance.choice(drawn_from))
        total += sizes[order[-1]]
    return order if count is None else order[:count]


def _come_and_go(
    sizes: Sequence[int], drawn_from: Sequence[int], room: int, kept: list[int], coming: Coming, seed: int
) -> Schedule:
    asked = (STEADY if coming.load is None else coming.load) * room
    mean = mean_stay([sizes[at] for at in drawn_from], asked)
    count = round(LIFETIMES * mean) if coming.count is None else coming.count
    _check(count)
    pairs = list(drawn(len(drawn_from), mean, seed, count))
    chance = Random(f"those that run already, {seed}")
    ends = {at: chance.expovariate(1 / mean) for at in kept}
    skip = 0 if coming.keep else count // 2
    return Schedule([drawn_from[at] for at, _ in pairs], [stays for _, stays in pairs], None, skip, ends)


def _recorded(recording: Recording, kept: list[int], coming: Coming) -> Schedule:
    running = set(kept)
    order = [at for at in range(len(recording.pods)) if at not in running]
    created = _created(recording, order)
    if coming.departures and created is None:
        raise BadInput(
            "departures: with --arrivals trace they are as recorded, and times are missing: add the columns "
            "creation_time and deletion_time in seconds, or leave out --arrivals"
        )
    if created is not None:
        order.sort(key=lambda at: created[at])
    order = order if coming.count is None else order[: coming.count]
    if not order:
        raise BadInput("arrivals: no pod comes: with --keep-running and trace only those that wait do")
    stays: list[float | None] = [None] * len(order)
    if coming.departures and created is not None:
        ended = [recording.pods[at].ended for at in order]
        if all(each is None for each in ended):
            raise BadInput(
                "departures: no pod has a deletion_time: add the column, or leave out --arrivals: then pods "
                "stay for random times"
            )
        stays = [None if end is None else end - created[at] for at, end in zip(order, ended, strict=True)]
    moments = None if created is None else [created[at] for at in order]
    return Schedule(order, stays, moments, 0, dict.fromkeys(kept, inf))


def _created(recording: Recording, order: Sequence[int]) -> dict[int, float] | None:
    """Returns when each of these pods was created; None if that is not recorded."""
    found = {at: recording.pods[at].created for at in order}
    known = {at: time for at, time in found.items() if time is not None}
    if known and len(known) < len(order):
        raise BadInput(
            f"pods: {len(order) - len(known)} of {len(order)} have no creation_time: complete them, or leave "
            "out --arrivals"
        )
    return known or None


def _check(count: float) -> None:
    if count > MOST_ARRIVALS:
        raise BadInput(
            f"count: about {round(count)} pods would come: say with --count how many, at most {MOST_ARRIVALS}"
        )

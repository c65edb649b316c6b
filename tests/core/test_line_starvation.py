"""The line over time: jobs come, run and end, and nobody starves."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from math import inf

from core.lines import PATIENCE, asks, machine, remembered, wait
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.core.demand import Demand
from cotenant.core.gpu import GPU
from cotenant.core.ledger import Ledger
from cotenant.core.line import Waiting, serve
from cotenant.core.seen_pods import SeenPods

LONGEST = 50


@dataclass(frozen=True)
class Job:
    id: str
    arrival: int
    demand: Demand
    run: int


def simulate(gpus: list[GPU], jobs: list[Job], patience: float = PATIENCE) -> dict[str, int]:
    """When each job started. The line is served whenever a job comes or ends, as the machine does it."""
    ledger, line, started = Ledger(gpus), list[Waiting](), dict[str, int]()
    events = [(job.arrival, 1, job.id) for job in jobs]
    by_id = {job.id: job for job in jobs}
    heapq.heapify(events)
    while events:
        at, kind, id = heapq.heappop(events)
        if kind == 1:
            line.append(wait(id, by_id[id].demand, since=at))
        else:
            assert ledger.release(id)
        served = serve(ledger, line, at, patience, SeenPods())
        ledger, line = served.ledger, remembered(line, served)
        for grant in served.admitted:
            started[grant.id] = at
            heapq.heappush(events, (at + by_id[grant.id].run, 0, grant.id))
        assert all(ledger.granted(gpu.uuid) <= gpu.memory for gpu in gpus)
    assert not ledger.grants
    return started


runs = st.integers(1, LONGEST)


streams = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5), runs), min_size=1, max_size=60)


def stream(rows: list[tuple[int, int, int]]) -> list[Job]:
    """Small jobs one after the other, with these gaps between them."""
    jobs, at = list[Job](), 0
    for number, (gap, size, run) in enumerate(rows):
        at += gap
        jobs.append(Job(f"small-{number:03}", at, asks(size), run))
    return jobs


@settings(max_examples=150)
@given(
    st.lists(st.integers(10, 16), min_size=1, max_size=3),
    streams,
    st.integers(0, 100),
    st.data(),
)
def test_a_big_demand_starts_within_patience_and_the_longest_running_job(
    card_sizes: list[int], rows: list[tuple[int, int, int]], arrival: int, data: st.DataObject
) -> None:
    gpus, small = machine(*card_sizes), stream(rows)
    demand = data.draw(
        st.one_of(
            st.builds(asks, st.integers(6, max(card_sizes))),
            st.builds(lambda cards: Demand(whole=cards), st.integers(1, len(gpus))),
            st.builds(lambda size: asks(size, gpus=len(gpus)), st.integers(6, min(card_sizes))),
        )
    )
    big = Job("big", arrival, demand, LONGEST)
    started = simulate(gpus, [*small, big])
    assert set(started) == {job.id for job in [*small, big]}, "all start in the end"
    older = [started[job.id] for job in small if job.arrival <= arrival]
    assert started["big"] <= max([arrival + PATIENCE, *older]) + LONGEST


@settings(max_examples=100)
@given(streams, st.lists(st.tuples(st.integers(1, 3), runs), min_size=2, max_size=4))
def test_several_big_ones_start_one_after_the_other_at_the_latest(
    rows: list[tuple[int, int, int]], wholes: list[tuple[int, int]]
) -> None:
    small = [replace(job, arrival=job.arrival + 1) for job in stream(rows)]
    bigs = [Job(f"big-{at}", 0, Demand(whole=cards), run) for at, (cards, run) in enumerate(wholes)]
    running = [Job(f"a-{at}", 0, asks(6), LONGEST) for at in range(3)]
    started = simulate(machine(10, 10, 10), [*running, *bigs, *small])
    for at, big in enumerate(bigs, start=1):
        assert started[big.id] <= PATIENCE + at * LONGEST


def test_without_holding_a_steady_stream_would_starve_the_big_one() -> None:
    small = [Job(f"small-{number:03}", number * 4, asks(3), 15) for number in range(100)]
    big = Job("big", 1, asks(10), 5)
    started = simulate(machine(10), [*small, big])
    assert started["big"] <= 1 + PATIENCE + 15
    assert sum(started[job.id] < started["big"] for job in small) > 10, "it was passed while it was patient"
    assert simulate(machine(10), [*small, big], patience=inf)["big"] > small[-1].arrival

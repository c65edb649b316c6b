"""The simulated queue and its replicas."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulate.scaling import loads

from cotenant.simulate.scaling.faults import parse_fault
from cotenant.simulate.scaling.model_server import ModelServer


def erlang_c_wait(servers: int, rate: float, service: float) -> float:
    """The mean wait of an M/M/c queue, by Erlang's formula written out."""
    load = rate * service
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    waits = last / (sum(load**n / math.factorial(n) for n in range(servers)) + last)
    return waits * service / (servers - load)


@pytest.mark.parametrize(("servers", "rate"), [(1, 0.7), (3, 2.4), (8, 6.8)])
def test_random_arrivals_wait_as_long_as_queueing_theory_says(servers: int, rate: float) -> None:
    workload = loads.steady(rate, 1.0, 400_000 / rate)
    server = ModelServer(workload, servers, cold_start=10)
    server.advance(math.inf)
    measured = sum(server.waits) / len(server.waits)
    assert measured == pytest.approx(erlang_c_wait(servers, rate, 1.0), rel=0.05)


def test_concurrency_gives_as_many_slots_as_replicas_with_one_each() -> None:
    workload = loads.steady(3, 1.0, 2000)
    one, many = ModelServer(workload, 8, 10), ModelServer(workload, 2, 10, concurrency=4)
    one.advance(math.inf)
    many.advance(math.inf)
    assert list(one.waits) == list(many.waits)


def test_a_new_replica_serves_one_cold_start_after_it_was_asked_for() -> None:
    server = ModelServer(loads.at(0, 0, service=100), 1, cold_start=30)
    assert server.fleet().cold_starts == (30,)  # that of the first replica, before the begin
    server.advance(5)
    server.scale(2)
    server.advance(40)
    assert list(server.waits) == [0, 35]
    assert server.fleet().cold_starts == (30,)


def test_a_replica_costs_from_its_gpu_until_it_is_drained() -> None:
    server = ModelServer(loads.at(0, 10, service=20), 1, cold_start=30)
    server.advance(5)
    server.scale(2)  # loads until 35
    server.advance(12)
    server.scale(1)  # the loading one goes, after 7 s
    server.scale(0)  # the busy one goes at 20: it finishes its request
    server.advance(100)
    assert server.replica_seconds(100) == pytest.approx(7 + 20)
    assert list(server.waits) == [0]
    assert server.unstarted == 1


def test_waiting_then_loading_then_idle_replicas_are_removed_before_busy_ones() -> None:
    server = ModelServer(loads.at(0, service=50), 2, cold_start=30, cards=3)
    server.advance(1)
    server.scale(4)
    assert (server.fleet().ready, len(server.fleet().starting), server.waiting) == (2, 1, 1)
    server.scale(3)
    assert (server.fleet().ready, len(server.fleet().starting), server.waiting) == (2, 1, 0)
    server.scale(2)
    assert (server.fleet().ready, len(server.fleet().starting)) == (2, 0)
    server.scale(1)
    assert server.figures().in_flight == 1
    assert server.replica_seconds(1) == pytest.approx(2)  # nothing drains: the idle one went


def test_a_gpu_of_a_drained_replica_goes_to_the_one_that_waits() -> None:
    server = ModelServer(loads.at(0, 0, 0, 5, service=10), 2, cold_start=4, cards=2)
    server.advance(1)
    server.scale(1)  # its request ends at 10
    server.scale(2)
    assert server.fleet().waiting == 1
    server.advance(12)
    assert server.fleet().waiting == 0
    server.advance(100)
    assert list(server.waits) == [0, 0, 10, 9]  # the second is ready at 14


def test_figures_count_as_a_queue_does() -> None:
    server = ModelServer(loads.at(0, 1, 2, 3, service=2), 1, cold_start=10)
    server.advance(3.5)
    figures = server.figures()
    assert (figures.arrived, figures.completed, figures.in_flight, figures.backlog) == (4, 1, 1, 2)
    assert figures.concurrency_seconds == pytest.approx(2 + 2.5 + 1.5 + 0.5)


def test_a_poison_message_takes_one_slot_and_is_never_counted_as_completed_before_its_end() -> None:
    fault = parse_fault("poison@9+50")
    server = ModelServer(loads.at(*range(0, 60, 5), service=2), 1, cold_start=10, faults=[fault])
    server.advance(8.5)
    before = server.figures()
    assert (before.completed, before.in_flight, before.backlog) == (2, 0, 0)
    server.advance(55)
    during = server.figures()
    assert during.completed == before.completed
    assert during.in_flight == 1
    assert during.backlog == during.arrived - during.completed - 1
    server.advance(200)
    assert server.unstarted == 0
    assert server.figures().completed == 13


def test_two_replicas_go_on_beside_a_poison_message() -> None:
    fault = parse_fault("poison@10+500")
    server = ModelServer(loads.at(*range(0, 60, 5), service=2), 2, cold_start=10, faults=[fault])
    server.advance(100)
    assert server.unstarted == 0
    assert max(server.waits) < 2


def test_a_replica_does_not_become_ready_while_it_crashes() -> None:
    server = ModelServer(loads.at(0, service=5), 0, cold_start=10, faults=[parse_fault("crash-loop@5+60")])
    server.advance(1)
    server.scale(1)
    server.advance(70)
    assert server.fleet().starting == (69,)
    server.advance(80)
    assert server.fleet().cold_starts == (74,)


def test_no_gpu_is_given_while_the_cluster_is_full() -> None:
    server = ModelServer(loads.at(0, service=5), 0, cold_start=10, faults=[parse_fault("full@0+60")])
    server.advance(1)
    server.scale(1)
    assert (server.fleet().waiting, server.fleet().room) == (1, 0)
    server.advance(65)
    assert server.fleet().starting == (5,)


@given(st.integers(0, 10_000))
def test_every_request_is_started_once_and_in_order_whatever_is_asked_for(seed: int) -> None:
    chance = random.Random(seed)
    workload = loads.steady(chance.uniform(0.1, 5), chance.uniform(0.1, 5), 120, seed)
    faults = [
        parse_fault(f"{kind}@{chance.randrange(100)}+{chance.randrange(1, 60)}")
        for kind in ("full", "crash-loop")
    ]
    server = ModelServer(
        workload,
        chance.randrange(3),
        chance.choice([0, 3, 20]),
        concurrency=chance.choice([1, 1, 4]),
        cards=chance.choice([None, 2, 5]),
        faults=faults,
    )
    now = 0.0
    while now < 150:
        now += chance.uniform(0, 8)
        server.advance(now)
        figures, fleet = server.figures(), server.fleet()
        assert figures.arrived == figures.backlog + figures.in_flight + figures.completed
        assert fleet.ready + len(fleet.starting) + fleet.waiting == server.replicas
        server.scale(chance.randrange(8))
    server.scale(2)
    server.advance(now + 100_000)
    assert server.unstarted == 0
    assert len(server.waits) == len(workload.arrivals)
    assert min(server.waits) >= 0
    starts = [at + wait for at, wait in zip(workload.arrivals, server.waits, strict=True)]
    assert all(after >= before - 1e-9 for before, after in pairwise(starts))
    assert server.figures().completed == len(workload.arrivals)

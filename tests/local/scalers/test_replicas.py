"""Which replica goes first, what counts as what, and when a command that failed starts again."""

from dataclasses import replace

import pytest

from cotenant.core.grant import Share
from cotenant.local.job import Stopping
from cotenant.local.scalers.replicas import (
    Live,
    Phase,
    Replica,
    free_numbers,
    number_of,
    pause_after,
    removal_order,
)

NOW = 1000.0


@pytest.fixture
def live(make_job):
    def make(number, *, launched=900.0, job=True, granted=950.0, ready=True, idle=None, **fields):
        stopping = fields.pop("stopping", None)
        replica = Replica(number, "t", 900.0, launched, "id" if job else None, ready=ready, **fields)
        shares = (Share("GPU-0", 1),) if granted is not None else ()
        found = make_job(f"w-{number}", shares=shares, granted=granted, stopping=stopping) if job else None
        return Live(replica, found, idle, used=ready, now=NOW)

    return make


def test_phases(live):
    assert live(1, job=False, launched=None).phase is Phase.PAUSED
    assert live(1, job=False).phase is Phase.LAUNCHING
    assert live(1, granted=None).phase is Phase.WAITING
    assert live(1, ready=False).phase is Phase.LOADING
    assert live(1, idle=30.0).phase is Phase.IDLE
    assert live(1, idle=0.2).phase is Phase.BUSY
    assert live(1, idle=None).phase is Phase.BUSY, "what cannot be seen is not called idle"
    assert live(1, leaving=True).phase is Phase.LEAVING
    assert live(1, stopping=Stopping(1.0, 1.0, "x")).phase is Phase.LEAVING


def test_those_without_a_gpu_go_first_then_loading_idle_and_busy_ones(live):
    replicas = [
        live(1, idle=0.1),
        live(2, idle=5.0),
        live(3, idle=50.0),
        live(4, ready=False, granted=910.0),
        live(5, ready=False, granted=990.0),
        live(6, granted=None),
        live(7, job=False),
        live(8, job=False, launched=None),
        live(9, leaving=True),
    ]
    assert [each.replica.number for each in removal_order(replicas)] == [8, 7, 6, 5, 4, 3, 2, 1]


def test_one_that_is_replaced_counts_and_one_that_leaves_does_not(live):
    stopping = Stopping(1.0, 1.0, "x")
    assert live(1, stopping=stopping, replaced=True).counts
    assert not live(1, stopping=stopping, replaced=True, leaving=True).counts
    assert not live(1, leaving=True).counts


def test_one_that_fails_again_and_again_has_been_starting_since_the_first_time(live):
    assert live(1, ready=False).starting_for == 50.0
    assert live(1, ready=False, failures=3).starting_for == 100.0
    assert live(1, job=False, failures=3).starting_for == 100.0


def test_pauses_grow_as_those_of_the_kubelet():
    assert [pause_after(n) for n in range(1, 9)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert pause_after(10**6) == 300


def test_numbers_are_the_lowest_that_nobody_uses():
    assert free_numbers("w", {1, 3}, {"w-2", "x-4"}, 2) == [4, 5]
    assert free_numbers("w", set(), set(), 0) == []


def test_a_number_is_read_from_a_name_of_this_workload_only():
    assert number_of("room-scene", "room-scene-12") == 12
    for other in ("room-scene", "room-12", "room-scene-", "room-scene-x", "room-scene-²", "x-room-scene-1"):
        assert number_of("room-scene", other) is None


def test_a_replica_survives_json_also_from_a_newer_version():
    replica = Replica(2, "t", 1.0, 2.0, "id", ready=True, failures=2, again=3.0, failure="x")
    assert Replica.from_json({**replica.to_json(), "later": 1}) == replica
    assert replace(replica, ready=False) != replica

"""Scaling, laying over, and the bound."""

from __future__ import annotations

import pytest
from simulate.scaling import loads

from cotenant.core.errors import BadInput
from cotenant.simulate.scaling.workload import Workload


def test_scaling_keeps_the_proportions() -> None:
    scaled = Workload([0, 1, 2], [1, 2, 3]).scaled(4)
    assert list(scaled.services) == [2, 4, 6]


def test_service_times_that_are_all_zero_become_equal() -> None:
    assert list(Workload([0, 1], [0, 0]).scaled(4).services) == [4, 4]


def test_laid_over_itself_a_trace_keeps_its_shape_and_order() -> None:
    once = loads.at(0, 100, 200)
    over = once.overlaid(8, seed=3)
    assert len(over.arrivals) == 24
    assert list(over.arrivals) == sorted(over.arrivals)
    assert all(min(abs(at - each) for each in (0, 100, 200)) <= 5 for at in over.arrivals)
    assert list(over.arrivals) == list(once.overlaid(8, seed=3).arrivals)
    assert list(over.arrivals) != list(once.overlaid(8, seed=4).arrivals)


def test_too_many_copies_are_refused() -> None:
    with pytest.raises(BadInput, match=r"overlay: .* fewer copies"):
        Workload(range(1_000_000), range(1_000_000)).overlaid(21, 1)


def test_the_bound_is_one_replica_or_the_work_of_each_minute() -> None:
    workload = Workload([0, 10, 70], [100, 50, 5])
    assert workload.bound() == 150 + 60
    assert workload.bound(concurrency=2) == 75 + 60


def test_it_begins_with_the_work_of_two_minutes_at_seventy_percent() -> None:
    assert Workload([0, 60, 130], [100, 100, 1000]).first_replicas() == 3
    assert Workload([0], [0.1]).first_replicas() == 1

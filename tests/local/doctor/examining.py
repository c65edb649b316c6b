"""Runs the machine's doctor for tests: each fault is found, repaired if that is possible, and then gone."""

import time

from cotenant.local.doctor import checkup
from cotenant.local.doctor.libraries import System

GIB = 1 << 30
WELL = System((), driver_loaded=True, musl=None, preloads=())


def check(machine, *, fix=False, seen=WELL):
    return checkup.check(machine, seen, fix=fix, wait=lambda _seconds: time.sleep(0.02))


def kinds(outcomes):
    return [outcome.finding.kind for outcome in outcomes]


def assert_found(machine, *expected):
    """It is found twice, since looking changes nothing."""
    for _ in range(2):
        outcomes = check(machine)
        assert kinds(outcomes) == list(expected)
        assert all(outcome.left and outcome.finding.do for outcome in outcomes)


def assert_repaired(machine, *expected):
    """Found, fixed, and gone."""
    assert_found(machine, *expected)
    outcomes = check(machine, fix=True)
    assert kinds(outcomes) == list(expected)
    assert not any(outcome.left for outcome in outcomes), outcomes
    assert all(outcome.done for outcome in outcomes)
    assert check(machine) == ()
    assert check(machine, fix=True) == ()


def names(machine):
    return {job.name for job in machine.store.jobs()}

"""Which enforcer a node gets, and what every enforcer can do."""

import os
from pathlib import Path

import pytest
from hardware.test_slots import take_entry

from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.hardware import libraries, slots
from cotenant.hardware.enforcers.choosing import STRENGTH, choose, strongest
from cotenant.hardware.enforcers.enforcer import Attachment, Availability, Enforcer
from cotenant.hardware.enforcers.mps import Mps
from cotenant.hardware.enforcers.null import Null
from cotenant.hardware.enforcers.shim import Shim
from cotenant.hardware.enforcers.watch import Watch
from cotenant.hardware.nvml import CardProcess, CardReading, NoDriver, Readings

GIB = 1 << 30
LIMITS = slots.limits_of("u-1", "enforce", [Share("GPU-a", 4 * GIB)], lambda _: 0)


class Driver(Null):
    """As one that the driver itself enforces will be."""

    name = "driver"

    def __init__(self, version):
        self.version = version

    def availability(self):
        return Availability(self.version >= 615, f"driver {self.version}")


def test_the_strongest_that_is_available_is_chosen():
    shim = Shim(libraries.shim())
    driver = Driver(620)
    assert strongest([Null(), shim, driver]).enforcer is driver
    chosen = strongest([Null(), shim, Driver(580)])
    assert chosen.enforcer is shim
    assert chosen.passed_over == {"driver": "driver 580"}
    assert chosen.reason == f"{libraries.shim()} is there"


def test_without_any_the_limit_is_only_recorded_and_it_is_said_why():
    chosen = strongest([Shim(Path("/nonexistent/libcotenant.so"))])
    assert chosen.enforcer.name == "none"
    assert chosen.passed_over == {"shim": "/nonexistent/libcotenant.so is missing"}


def test_the_null_enforcer_keeps_the_record_and_claims_nothing(tmp_path):
    slot, null = tmp_path / "slot", Null()
    null.prepare(slot, LIMITS, slots.PRIVATE)
    assert slots.read_limits(slot) == LIMITS
    assert null.confirm(slot).state == "fails"
    null.change(slot, {"GPU-a": GIB})
    assert slots.read_limits(slot).cards[0].bytes == GIB
    assert null.process_environment(slot, {"A": "b"}) == {"A": "b"}
    assert null.container_attachment(slot) == Attachment()
    assert null.tear_down(slot)


@pytest.mark.parametrize(
    "enforcer",
    [Null(), Shim(libraries.shim()), Mps({}, 30), Watch(lambda: Readings(()))],
    ids=lambda each: each.name,
)
def test_each_enforcer_does_all_that_the_protocol_asks(enforcer: Enforcer):
    """mypy checks the types where they are used; this finds a member that is not used yet."""
    asked = [name for name in vars(Enforcer) if not name.startswith("_")]
    assert len(asked) > 6
    assert [name for name in asked if not hasattr(enforcer, name)] == []


def test_one_that_is_set_is_kept_and_what_it_cannot_do_is_said():
    shim = Shim(libraries.shim())
    old = Driver(580)
    kept = choose("driver", [old, shim])
    assert kept.enforcer is old, "nothing weaker takes its place unnoticed"
    assert kept.problem == "driver is asked for and cannot be used: driver 580"
    assert choose("shim", [Driver(620), shim]).enforcer is shim
    assert choose("none", [shim]).enforcer.name == "none"
    assert choose("auto", [old, shim]) == strongest([old, shim])
    with pytest.raises(ValueError, match="not built with"):
        choose("watch", [shim])


def test_the_order_is_that_of_what_can_be_bypassed():
    assert STRENGTH == ("driver", "shim", "watch", "none")


def watch(*processes):
    gpu = GPU("GPU-a", 0, "T4", 16 * GIB)
    return Watch(lambda: Readings((CardReading(gpu, 0, tuple(processes)),)))


def test_watching_needs_a_driver_that_tells_what_processes_hold():
    assert watch(CardProcess(7, GIB)).availability().available
    found = watch(CardProcess(7, None)).availability()
    assert not found.available
    assert "does not report what processes hold on GPU 0" in found.reason

    def gone():
        raise NoDriver("no driver")

    assert Watch(gone).availability() == (False, "no driver")


def test_who_is_only_watched_is_not_held(tmp_path):
    slot, enforcer = tmp_path / "slot", watch()
    enforcer.prepare(slot, LIMITS, slots.PRIVATE)
    found = enforcer.confirm(slot, [7])
    assert (found.state, found.by, found.free) == ("fails", "watch", {7})
    assert enforcer.container_attachment(slot) == Attachment()
    enforcer.change(slot, {"GPU-a": GIB})
    assert slots.read_limits(slot).cards[0].bytes == GIB
    assert enforcer.tear_down(slot)


def test_a_container_that_was_started_with_the_shim_is_still_held_by_it(tmp_path):
    slot, enforcer = tmp_path / "slot", watch()
    enforcer.prepare(slot, LIMITS, slots.PRIVATE)
    entry = take_entry(slot, 0, 100, (1,))
    assert enforcer.confirm(slot, [100]).by == "shim"
    assert enforcer.confirm(slot, [100, 101]).by == "watch"
    os.close(entry)

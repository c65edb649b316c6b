"""Which enforcer a node gets, and what every enforcer can do."""

from pathlib import Path

import pytest

from cotenant.core.grant import Share
from cotenant.hardware import libraries, slots
from cotenant.hardware.enforcers.choosing import strongest
from cotenant.hardware.enforcers.enforcer import Attachment, Availability, Enforcer
from cotenant.hardware.enforcers.mps import Mps
from cotenant.hardware.enforcers.null import Null
from cotenant.hardware.enforcers.shim import Shim

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
    "enforcer", [Null(), Shim(libraries.shim()), Mps({}, 30)], ids=lambda each: each.name
)
def test_each_enforcer_does_all_that_the_protocol_asks(enforcer: Enforcer):
    """mypy checks the types where they are used; this finds a member that is not used yet."""
    asked = [name for name in vars(Enforcer) if not name.startswith("_")]
    assert len(asked) > 6
    assert [name for name in asked if not hasattr(enforcer, name)] == []

"""Slots that the ledger does not know, that cannot be used, or whose limits differ."""

import os
import struct

import pytest
from local.doctor.examining import GIB, assert_found, assert_repaired, check

from cotenant.core.grant import Share
from cotenant.hardware import slots
from cotenant.local import slot_folder


def test_a_stray_slot(plain_machine, charge, make_job, dead):
    charge("train")
    stray = make_job(
        "stray", slot=plain_machine.home.slots / "stray", shares=(Share("GPU-0", GIB),), process=dead
    )
    slot_folder.make(plain_machine, stray)
    assert_repaired(plain_machine, "stray-slot")
    assert os.listdir(plain_machine.home.slots) == ["train"]


def test_a_file_among_the_slots(plain_machine):
    (plain_machine.home.slots / "notes.txt").write_text("hello")
    assert_repaired(plain_machine, "stray-slot")
    assert os.listdir(plain_machine.home.slots) == []


def test_a_living_command_that_the_ledger_does_not_know(plain_machine, charge, alive):
    job = charge("train", process=alive)
    with plain_machine.store.change() as books:
        del books.jobs[job.id]
    assert_repaired(plain_machine, "uncharged")
    assert plain_machine.store.jobs() == [job]


def test_a_slot_in_use_that_nothing_can_be_made_of(plain_machine, charge, dead):
    job = charge("train", process=dead)
    with plain_machine.store.change() as books:
        del books.jobs[job.id]
    held = slots.hold(job.slot)
    (job.slot / "limits").write_text("nonsense")
    (job.slot / "grant.json").unlink()
    assert_found(plain_machine, "unreadable-slot")
    assert check(plain_machine, fix=True)[0].left
    os.close(held)
    assert_repaired(plain_machine, "stray-slot")


def test_a_living_command_without_a_slot(plain_machine, charge, alive):
    job = charge("train", process=alive, slot=False)
    assert_repaired(plain_machine, "slot-lost")
    assert slots.read_limits(job.slot).cards[0].bytes == 4 * GIB


@pytest.mark.parametrize("content", [None, b"", b"COTLIMIT" + b"\xff" * 4096])
def test_limits_that_cannot_be_read(plain_machine, charge, alive, content):
    """`usage` stays the same file: whoever has it mapped stays counted."""
    job = charge("train", process=alive)
    before = (job.slot / "usage").stat().st_ino
    (job.slot / "limits").unlink() if content is None else (job.slot / "limits").write_bytes(content)
    assert_repaired(plain_machine, "slot-lost")
    assert slots.read_limits(job.slot) == slot_folder.limits_of(job, plain_machine.context_bytes)
    assert (job.slot / "usage").stat().st_ino == before


def test_usage_of_another_version(plain_machine, charge, alive):
    job = charge("train", process=alive)
    with open(job.slot / "usage", "r+b") as usage:
        usage.seek(8)
        usage.write(struct.pack("<I", 99))
    assert_repaired(plain_machine, "slot-lost")
    assert slots.read_usage(job.slot).processes == ()


def test_limits_beyond_what_is_charged(plain_machine, charge, alive):
    """They are put right in the same file, since programs have it mapped."""
    job = charge("train", process=alive)
    before = (job.slot / "limits").stat().st_ino
    slots.set_limits(job.slot, {"GPU-0": 9 * GIB})
    assert_repaired(plain_machine, "limits-differ")
    assert slots.read_limits(job.slot).cards[0].bytes == 4 * GIB
    assert (job.slot / "limits").stat().st_ino == before


@pytest.mark.parametrize(
    "change",
    [
        lambda limits: limits._replace(mode="observe"),
        lambda limits: limits._replace(owner="somebody"),
        lambda limits: limits._replace(cards=(limits.cards[0]._replace(uuid="GPU-9"),)),
    ],
)
def test_limits_for_something_else(plain_machine, charge, alive, change):
    job = charge("train", process=alive)
    right = slots.read_limits(job.slot)
    (job.slot / "limits").write_bytes(slots.encode(change(right)))
    assert_repaired(plain_machine, "limits-differ")
    assert slots.read_limits(job.slot) == right

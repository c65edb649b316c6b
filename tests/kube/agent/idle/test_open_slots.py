"""Files of slots that are kept open: the same figures, of the slot as it is now, and never more than a bound."""

from __future__ import annotations

import os

import pytest
from kube.agent.nodes import GIB, A, make

from cotenant.core.grant import Share
from cotenant.hardware import slots as slot_files
from cotenant.hardware.slots import SlotUnusable
from cotenant.kube.agent.idle import open_slots
from cotenant.kube.agent.idle.open_slots import OpenSlots

SHARE = Share(A, GIB)


def opened() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_it_reads_what_the_slot_says_each_time(slots):
    slot, files = make(slots, "slot-0001", SHARE), OpenSlots()
    assert files.read(slot) == (slot.activity(), slot_files.made_at(slot.folder))
    now = slot_files._now()
    slot_files.note_kernel(slot.folder, now)
    assert files.read(slot)[0].last == now


def test_a_slot_made_anew_is_another_one(slots):
    files = OpenSlots()
    first = make(slots, "slot-0001", SHARE)
    _, before = files.read(first)
    second = make(slots, "slot-0001", SHARE, uid="u-2")
    assert files.read(second)[1] > before


def test_what_is_not_kept_is_closed_and_a_slot_without_files_is_named(slots):
    files, before = OpenSlots(), opened()
    made = [make(slots, f"slot-000{at}", SHARE, uid=f"u-{at}") for at in range(3)]
    for slot in made:
        files.read(slot)
    assert opened() == before + 3
    files.keep(made[:1])
    assert opened() == before + 1
    assert slots.remove(made[1])
    with pytest.raises(SlotUnusable, match="cannot be read"):
        files.read(made[1])
    del files
    assert opened() == before


def test_no_more_files_are_kept_open_than_a_process_may_have(slots, monkeypatch):
    monkeypatch.setattr(open_slots, "_MOST", 2)
    files, before = OpenSlots(), opened()
    for at in range(5):
        slot = make(slots, f"slot-000{at}", SHARE, uid=f"u-{at}")
        assert files.read(slot) == (slot.activity(), slot_files.made_at(slot.folder))
    assert opened() == before + 2

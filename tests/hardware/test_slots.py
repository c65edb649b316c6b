"""Slots as the machine's side writes and reads them, and that they agree with the C header."""

import contextlib
import ctypes
import fcntl
import os
import re
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cotenant.core.errors import BadInput
from cotenant.core.mode import MODES
from cotenant.hardware import slots
from cotenant.hardware.slots import CardLimit, Limits

HEADER = Path(__file__).parents[2] / "csrc" / "include" / "cotenant_slot.h"
GIB = 1 << 30


def limits(*cards, mode="enforce"):
    return Limits("abc123", mode, tuple(CardLimit(uuid, size, 256 << 20) for uuid, size in cards))


@pytest.fixture
def slot(tmp_path):
    folder = tmp_path / "slot"
    slots.create(folder, limits(("GPU-a", 4 * GIB), ("GPU-b", 2 * GIB)))
    return folder


def take_entry(folder, index, pid, used, *, last_launch=0):
    """Write an entry as the shim does, and hold its lock by the descriptor returned."""
    fd = os.open(folder / "usage", os.O_RDWR)
    lock = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, (1 << 40) + index, 1, 0)
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, lock)
    os.pwrite(fd, struct.pack("<QQ", pid, last_launch), 4096 + 512 * index)
    os.pwrite(fd, struct.pack(f"<{len(used)}Q", *used), 4096 + 512 * index + 128)
    os.pwrite(fd, struct.pack("<Q", index + 1), 88)
    return fd


def test_layout_is_that_of_the_header(tmp_path):
    """The compiler checks our figures against the header itself, so that neither side can drift."""
    sizes = {
        "cot_limits": slots._LIMITS_SIZE,
        "cot_usage": slots._USAGE_SIZE,
        "cot_process": slots._PROCESS.size,
    }
    offsets = {
        "cot_limits": {
            "abi": 8,
            "cards": 12,
            "owner": 16,
            "mode": 80,
            "granule": 88,
            "made": slots._MADE,
            "card": slots._LIMITS_HEAD,
        },
        "cot_card_limit": {"bytes": slots._LIMIT_BYTES, "context_bytes": slots._LIMIT_BYTES + 8},
        "cot_usage": {
            **{name: slots._CLOSED + 8 * at for at, name in enumerate(slots.TOTALS)},
            "peak": slots._PEAK_AT,
            "process": slots._USAGE_HEAD,
        },
        "cot_process": {"pid": 0, "last_launch": 8, "last_alloc": 16, "used": 128},
    }
    checks = [f'_Static_assert(sizeof(struct {name}) == {size}, "{name}");' for name, size in sizes.items()]
    checks += [
        f'_Static_assert(offsetof(struct {name}, {field}) == {offset}, "{field}");'
        for name, fields in offsets.items()
        for field, offset in fields.items()
    ]
    source = tmp_path / "layout.c"
    source.write_text("\n".join(["#include <stddef.h>", f'#include "{HEADER}"', *checks]))
    compiler = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        "x86_64-linux-gnu.2.17",
        "-c",
        "-o",
        tmp_path / "x.o",
    ]
    compiled = subprocess.run([*compiler, source], capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr


def test_constants_are_those_of_the_header():
    text = HEADER.read_text()
    found = dict(re.findall(r"#define COT_(\w+) \(?([0-9a-z< ]+)\)?\n", text))
    assert int(found["ABI"].rstrip("u")) == slots.ABI
    assert int(found["CARDS"]) == slots.CARDS
    assert int(found["PROCESSES"]) == slots.PROCESSES
    assert found["LOCK_PROCESS"] == "1ull << 40"
    assert found["LOCK_OWNER"] == "1ull << 41"
    assert re.search(r"COT_OBSERVE = 0, COT_WARN = 1, COT_ENFORCE = 2", text)


def test_limits_come_back_as_written(slot):
    assert slots.read_limits(slot) == limits(("GPU-a", 4 * GIB), ("GPU-b", 2 * GIB))


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_survives(mode):
    assert slots.decode(slots.encode(limits(("GPU-a", 1), mode=mode))).mode == mode


def test_more_cards_than_a_slot_holds_are_bad_input():
    with pytest.raises(BadInput, match="17 GPUs"):
        slots.encode(limits(*((f"GPU-{n}", 1) for n in range(17))))


@pytest.mark.parametrize("damage", [b"", b"COTLIMIT", b"x" * slots._LIMITS_SIZE])
def test_damaged_limits_are_told(slot, damage):
    (slot / "limits").write_bytes(damage)
    with pytest.raises(slots.SlotUnusable):
        slots.read_limits(slot)


def test_limits_of_another_version_are_told(slot):
    data = bytearray((slot / "limits").read_bytes())
    data[8] = 9
    (slot / "limits").write_bytes(data)
    with pytest.raises(slots.SlotUnusable, match="version 1"):
        slots.read_limits(slot)


def test_usage_of_another_version_is_told(slot):
    with open(slot / "usage", "r+b") as file:
        file.seek(8)
        file.write(struct.pack("<I", 2))
    with pytest.raises(slots.SlotUnusable, match="version 1"):
        slots.read_usage(slot)


def test_usage_counts_the_living_only(slot):
    one = take_entry(slot, 0, 100, (10, 20), last_launch=7)
    two = take_entry(slot, 1, 200, (1, 2), last_launch=9)
    usage = slots.read_usage(slot)
    assert [process.pid for process in usage.processes] == [100, 200]
    assert (usage.used(0), usage.used(1)) == (11, 22)
    os.close(two)
    usage = slots.read_usage(slot)
    assert [process.pid for process in usage.processes] == [100]
    assert usage.used(0) == 10
    assert usage.last_active == 9, "what a dead process did last still counts as activity"
    os.close(one)


def test_a_slot_knows_when_it_was_made(slot, tmp_path):
    now = time.monotonic_ns()
    assert now - 60 * 10**9 < slots.made_at(slot) <= now
    slots.set_limits(slot, {"GPU-a": GIB})
    assert slots.made_at(slot) <= now, "a new size is no new slot"
    with pytest.raises(slots.SlotUnusable):
        slots.made_at(tmp_path / "none")


def test_a_slot_of_an_older_version_does_not_say_when_it_was_made(slot):
    (slot / "limits").write_bytes(slots.encode(slots.read_limits(slot)))
    assert slots.made_at(slot) == 0


def test_a_time_in_the_future_is_read_as_the_present(slot):
    """Processes write their times themselves."""
    held = take_entry(slot, 0, 100, (1, 1), last_launch=2**64 - 1)
    usage, activity = slots.read_usage(slot), slots.read_activity(slot)
    assert time.monotonic_ns() - usage.last_active < 60 * 10**9
    assert usage.last_active <= activity.last == activity.last_launch <= time.monotonic_ns()
    os.close(held)


def test_allocations_are_activity_and_no_launch(slot):
    fd = os.open(slot / "usage", os.O_RDWR)
    os.pwrite(fd, struct.pack("<QQ", 0, 5), slots._CLOSED + 32)
    os.close(fd)
    assert slots.read_activity(slot) == (5, 0)
    assert slots.read_usage(slot).last_active == 5


def test_activity_is_that_of_the_whole_usage(slot):
    """What ended processes did counts, and launches in a burst that nobody noted are noted once."""
    take = [take_entry(slot, index, 100 + index, (1, 1), last_launch=10 + index) for index in range(3)]
    os.close(take.pop())
    assert slots.read_activity(slot) == (12, 12)
    os.pwrite(take[0], struct.pack("<Q", 1), 4096 + 512 + slots._UNNOTED)
    before = time.monotonic_ns()
    noted = slots.read_activity(slot).last_launch
    assert noted >= before
    assert slots.read_activity(slot).last_launch == slots.read_usage(slot).last_active == noted
    for fd in take:
        os.close(fd)


@pytest.mark.parametrize("size", [0, 7, 4095])
def test_activity_of_a_damaged_slot_is_told(slot, size):
    os.truncate(slot / "usage", size)
    with pytest.raises(slots.SlotUnusable, match="version 1"):
        slots.read_activity(slot)


def test_entries_that_are_not_there_are_not_read(slot):
    with open(slot / "usage", "r+b") as file:
        file.seek(88)
        file.write(b"\xff" * 8)
        file.truncate(4096 + 700)
    assert slots.read_activity(slot) == (0, 0)


def test_a_kernel_that_the_driver_saw_counts_as_a_launch(slot, tmp_path):
    held = take_entry(slot, 0, 100, (1, 1), last_launch=7)
    slots.note_kernel(slot, 50)
    slots.note_kernel(slot, 40)
    assert slots.read_activity(slot).last_launch == 50, "time does not go back"
    os.pwrite(held, struct.pack("<Q", 2**64 - 1), slots._CLOSED + 32)
    slots.note_kernel(slot, 60)
    assert slots.read_activity(slot).last_launch == 60, "a time that cannot be is replaced"
    os.ftruncate(held, 10)
    slots.note_kernel(slot, 70)
    assert os.fstat(held).st_size == 10
    os.close(held)
    slots.note_kernel(tmp_path / "none", 80)


def note_import(fd, index, place, maker, size):
    os.pwrite(fd, struct.pack("<QQ", maker, size), 4096 + 512 * index + 384 + 16 * place)


def test_imported_memory_counts_once_and_only_when_its_maker_is_gone(slot):
    maker = take_entry(slot, 0, 100, (50,))
    importers = [take_entry(slot, 1, 200, (1,)), take_entry(slot, 2, 300, (1,))]
    for index, fd in enumerate(importers, 1):
        note_import(fd, index, 0, 100 << 32 | 5 << 24 | 0 << 16 | 1, 50)
    assert slots.read_usage(slot).used(0) == 52
    os.close(maker)
    assert slots.read_usage(slot).used(0) == 52
    assert [process.used[0] for process in slots.read_usage(slot).processes] == [51, 1]
    note_import(importers[0], 1, 0, 100 << 32 | 1 << 31 | 5 << 24 | 0 << 16 | 1, 50)  # charged by a process
    assert slots.read_usage(slot).processes[0].used[0] == 1
    for fd in importers:
        os.close(fd)


def test_what_processes_claim_to_have_imported_is_bounded(slot):
    fd = take_entry(slot, 0, 100, (1,))
    for place, maker in enumerate(
        (2**64 - 1, 2**31 - 1, 0x7FFF0000, 1, 0xFFFF, 0xFF0001, 9 << 32 | 2, 0x0F0003)
    ):
        note_import(fd, 0, place, maker, 2**64 - 1)
    usage = slots.read_usage(slot)
    assert all(usage.used(card) < 2**63 for card in range(16))
    os.close(fd)


def test_a_held_slot_cannot_be_closed(slot):
    held = slots.hold(slot)
    assert slots.is_held(slot)
    assert not slots.close(slot)
    os.close(held)
    assert not slots.is_held(slot)
    assert slots.close(slot)
    assert struct.unpack("<Q", (slot / "usage").read_bytes()[80:88]) == (1,)


def test_a_process_in_the_slot_keeps_it_open(slot):
    entry = take_entry(slot, 3, 100, (1,))
    assert not slots.close(slot)
    os.close(entry)
    assert slots.close(slot)


def test_a_child_that_inherits_the_descriptor_keeps_the_slot(slot):
    held = slots.hold(slot)
    child = subprocess.Popen(["sleep", "30"], pass_fds=[held])
    os.close(held)
    try:
        assert not slots.close(slot)
    finally:
        child.kill()
        child.wait()
    assert slots.close(slot)


def test_the_held_descriptor_is_inheritable_and_out_of_the_way(slot):
    held = slots.hold(slot)
    assert held >= 200
    assert os.get_inheritable(held)
    os.close(held)


def test_a_slot_is_closed_by_force_whoever_has_a_lock_on_it(slot):
    held = slots.hold(slot)
    assert slots.close(slot, force=True)
    assert os.pread(held, 8, slots._CLOSED) == struct.pack("<Q", 1)
    os.close(held)


def _with_zeros(file):
    file.seek(0, os.SEEK_END)
    file.write(bytes(8 << 20))


def _with_a_hole(file):
    file.truncate(1 << 40)


def _beyond_its_end(file):
    keep_size = 1
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.fallocate(file.fileno(), keep_size, ctypes.c_long(1 << 20), ctypes.c_long(8 << 20)) == 0


@pytest.mark.parametrize("grow", [_with_zeros, _with_a_hole, _beyond_its_end])
def test_usage_that_was_made_larger_is_cut_to_its_size(on_tmpfs, grow):
    slots.create(on_tmpfs / "slot", limits(("GPU-a", 4 * GIB)))
    entry = take_entry(on_tmpfs / "slot", 1023, 100, (7,))
    with (on_tmpfs / "slot" / "usage").open("r+b") as file:
        grow(file)
    assert slots.cut(on_tmpfs / "slot") >= 8 << 20
    found = os.fstat(entry)
    assert (found.st_size, found.st_blocks * 512) == (slots._USAGE_SIZE, slots._USAGE_SIZE)
    assert slots.read_usage(on_tmpfs / "slot").used(0) == 7, "what it counts is untouched"
    assert slots.cut(on_tmpfs / "slot") == 0
    os.close(entry)


@pytest.mark.parametrize("size", [0, 100, 4096, 4096 + 100, 4096 + 512 + 3])
def test_usage_that_was_made_smaller_is_no_trouble_to_its_readers(slot, size):
    """Its processes write it, and may do so wrongly."""
    entry = take_entry(slot, 1, 100, (7,))
    os.ftruncate(entry, size)
    if size < 4096:
        with pytest.raises(slots.SlotUnusable):
            slots.read_usage(slot)
    else:
        assert slots.read_usage(slot).processes == ()
    assert slots.is_held(slot)
    assert slots.cut(slot) == 0
    os.close(entry)


def test_what_processes_claim_is_bounded(slot):
    entries = [take_entry(slot, at, 1 << 63, (2**64 - 1,) * 16) for at in range(8)]
    os.pwrite(entries[0], struct.pack("<16Q", *[2**64 - 1] * 16), slots._PEAK_AT)
    usage = slots.read_usage(slot)
    assert usage.used(0) < 2**63
    assert usage.peak[0] < 2**63
    for each in entries:
        os.close(each)


def test_a_full_tmpfs_closes_no_slot_and_breaks_nothing(on_tmpfs, slot):
    """The closing mark needs a page if a process made a hole in the file."""
    slots.create(on_tmpfs / "slot", limits(("GPU-a", 1)))
    keep_size_and_punch = 3
    with (on_tmpfs / "slot" / "usage").open("r+b") as file:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.fallocate(file.fileno(), keep_size_and_punch, ctypes.c_long(0), ctypes.c_long(4096)) == 0
    with (on_tmpfs / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))
    assert not slots.close(on_tmpfs / "slot")
    (on_tmpfs / "filler").unlink()
    assert slots.close(on_tmpfs / "slot")


def test_a_slot_that_was_never_made_is_nobodys(tmp_path):
    assert slots.close(tmp_path / "none")
    assert not slots.is_held(tmp_path / "none")


def test_limits_change_in_place(slot):
    inode = (slot / "limits").stat().st_ino
    slots.set_limits(slot, {"GPU-b": 5 * GIB})
    assert [card.bytes for card in slots.read_limits(slot).cards] == [4 * GIB, 5 * GIB]
    assert (slot / "limits").stat().st_ino == inode


def test_files_are_private_unless_the_folder_is_for_all(tmp_path):
    slots.create(tmp_path / "mine", limits(("GPU-a", 1)))
    slots.create(tmp_path / "ours", limits(("GPU-a", 1)), permissions=slots.SHARED)
    assert (tmp_path / "mine" / "usage").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "ours").stat().st_mode & 0o777 == 0o777
    assert (tmp_path / "ours" / "usage").stat().st_mode & 0o777 == 0o666


def test_a_container_may_count_in_its_slot_and_only_read_its_limits(tmp_path):
    before = os.umask(0o077)
    try:
        slots.create(tmp_path / "slot", limits(("GPU-a", 1)), permissions=slots.MOUNTED)
    finally:
        os.umask(before)
    modes = [(tmp_path / "slot" / name).stat().st_mode & 0o777 for name in (".", "usage", "limits")]
    assert modes == [0o755, 0o666, 0o644]

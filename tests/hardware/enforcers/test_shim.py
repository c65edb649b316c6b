"""The shim as an enforcer: what it puts in place, and what it can say about whether it holds."""

import os
from pathlib import Path

import pytest
from hardware.test_slots import take_entry

from cotenant.core.errors import CotenantError
from cotenant.core.grant import Share
from cotenant.hardware import libraries, slots
from cotenant.hardware.enforcers.shim import Shim, is_preloaded, without_slot

GIB = 1 << 30
LIMITS = slots.limits_of("u-1", "enforce", [Share("GPU-a", 4 * GIB)], lambda _: 256 << 20)


@pytest.fixture
def slot(tmp_path):
    return tmp_path / "slots" / "s"


@pytest.fixture
def shim(tmp_path, slot):
    made = Shim(libraries.shim(), tmp_path / "node")
    made.prepare(slot, LIMITS, slots.MOUNTED)
    return made


def test_a_prepared_slot_has_its_limits_and_what_containers_mount(shim, slot):
    assert slots.read_limits(slot) == LIMITS
    for mount in shim.container_attachment(slot).mounts:
        assert mount.host.exists(), "the container runtime would create a folder in its place"
    files = {str(mount.container): mount.host for mount in shim.container_attachment(slot).mounts}
    assert files["/etc/ld.so.preload"].read_text() == "/run/cotenant/lib/libcotenant.so\n"
    assert files["/run/cotenant/lib/libcotenant.so"].read_bytes() == libraries.shim().read_bytes()


def test_a_library_that_a_container_runtime_replaced_by_a_folder_is_restored(shim, tmp_path):
    library = tmp_path / "node" / "lib" / "libcotenant.so"
    library.unlink()
    library.mkdir()
    shim.prepare(tmp_path / "other", LIMITS, slots.MOUNTED)
    assert library.is_file()


def test_a_running_containers_library_is_never_written_over(shim, tmp_path):
    library = tmp_path / "node" / "lib" / "libcotenant.so"
    inode = library.stat().st_ino
    shim.install()
    assert library.stat().st_ino == inode, "the same content is left alone"
    library.write_bytes(b"an older version")
    with library.open("rb") as mapped:
        shim.install()
        assert mapped.read() == b"an older version"
    assert library.stat().st_ino != inode


def test_it_is_available_where_its_library_is(shim, tmp_path):
    assert shim.availability().available
    missing = Shim(tmp_path / "libcotenant.so", tmp_path / "node")
    assert missing.availability() == (False, f"{tmp_path}/libcotenant.so is missing")
    with pytest.raises(CotenantError, match="Install Cotenant from a wheel"):
        missing.install()


def test_that_it_holds_is_known_once_a_process_counts_in_the_slot(shim, slot):
    assert shim.confirm(slot)[:2] == ("unknown", "no process uses the slot")
    command = slots.hold(slot)
    assert shim.confirm(slot)[:2] == ("unknown", "the command runs, and no process of it has used a GPU yet")
    entry = take_entry(slot, 0, 100, (1,))
    assert shim.confirm(slot)[:2] == ("holds", "processes that use a GPU with the shim: 1")
    another = take_entry(slot, 1, 101, (1,))
    assert shim.confirm(slot)[:2] == ("holds", "processes that use a GPU with the shim: 2")
    for descriptor in (another, entry, command):
        os.close(descriptor)
    assert shim.confirm(slot).state == "unknown"


def test_it_does_not_hold_for_a_process_that_the_driver_reports_and_that_has_no_entry(shim, slot):
    """The loader goes on without a preload that it cannot read."""
    entry = take_entry(slot, 0, 100, (1,))
    assert shim.confirm(slot, [100]).state == "holds"
    found = shim.confirm(slot, [100, 101])
    assert found == ("fails", "processes that use a GPU without the shim: 101", {101}, "watch", {101})
    os.close(entry)
    assert shim.confirm(slot, [100]).free == {100}, "an entry whose lock is gone is no entry"


@pytest.mark.parametrize("lost", ["limits", "usage"])
def test_it_does_not_hold_in_a_slot_without_its_files(shim, slot, lost):
    (slot / lost).unlink()
    found = shim.confirm(slot, [7])
    assert (found.state, found.free) == ("fails", {7})
    assert f"{slot}/{lost} cannot be read: No such file" in found.reason


def test_a_limit_changes_under_running_processes(shim, slot):
    entry = take_entry(slot, 0, 100, (1,))
    shim.change(slot, {"GPU-a": GIB})
    assert slots.read_limits(slot).cards[0].bytes == GIB
    assert not shim.tear_down(slot)
    os.close(entry)
    assert shim.tear_down(slot)


def test_a_process_outside_the_slot_has_nothing_of_it():
    shim = Shim(Path("/native/libcotenant.so"))
    outside = {"HOME": "/h", "LD_PRELOAD": "/a.so"}
    inside = shim.process_environment(Path("/slots/s"), outside)
    assert inside["COTENANT_SLOT"] == "/slots/s"
    assert is_preloaded(inside)
    assert not is_preloaded(outside)
    assert without_slot(inside) == outside

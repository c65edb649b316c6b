"""Permissions of local mode's files, the ledger's lock, and where the slots are."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from local.doctor.examining import WELL, assert_repaired, check, kinds

from cotenant.core.checkup import findings
from cotenant.local import home as homes
from cotenant.local.doctor import places
from cotenant.local.doctor.checkup import SUBJECTS
from cotenant.local.doctor.facts import MachineFacts
from cotenant.local.doctor.places import PathAccess, filesystem_of
from cotenant.local.machine import Machine
from cotenant.local.store import LedgerStore


def test_a_folder_that_this_user_cannot_write(plain_machine):
    locked = PathAccess(Path("/x"), 0o700, 0o700, 0, writable=False)
    (finding,) = findings(SUBJECTS, MachineFacts(plain_machine.home, WELL, access=(locked,)))
    assert (finding.kind, finding.target, finding.repair) == ("not-writable", "/x", None)
    assert "chown" in finding.do


def test_others_may_write_to_a_home_of_ones_own(plain_machine):
    plain_machine.home.folder.chmod(0o770)
    assert_repaired(plain_machine, "wrong-mode")
    assert plain_machine.home.folder.stat().st_mode & 0o777 == 0o750


def test_a_home_for_all_that_others_cannot_write(tmp_path, plain_cards):
    base = tmp_path / "all"
    base.mkdir()
    base.chmod(0o777)
    place = homes.prepare(base, tmpfs=tmp_path)
    machine = Machine(place, LedgerStore(place), plain_cards, Path("/nonexistent"), 0)
    assert check(machine) == ()
    place.ledger.chmod(0o600)
    place.slots.chmod(0o700)
    machine.store.jobs()
    outcomes = check(machine)
    assert {outcome.finding.target for outcome in outcomes} >= {str(place.ledger), str(place.slots)}
    assert set(kinds(outcomes)) == {"wrong-mode"}
    assert not any(outcome.left for outcome in check(machine, fix=True))
    assert place.ledger.stat().st_mode & 0o777 == 0o666
    assert place.slots.stat().st_mode & 0o777 == 0o777
    machine.store.close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_a_ledger_that_another_user_made():
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        base.chmod(0o755)
        place = homes.prepare(base / "home", tmpfs=base)
        place.folder.chmod(0o755)
        place.ledger.touch(0o644)
        child = os.fork()
        if child == 0:
            os.setresuid(65534, 65534, 65534)
            unwritable = {each.path for each in places.access(place) if not each.writable}
            os._exit(0 if {place.folder, place.ledger} <= unwritable else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_lock_that_is_not_let_go_of(plain_machine, charge, dead):
    """Nothing is tried meanwhile: it would wait for ever."""
    charge("gone", process=dead)
    script = (
        "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, 2); print(1, flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, plain_machine.home.lock],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdout.readline()
    began = time.monotonic()
    outcomes = check(plain_machine, fix=True)
    assert time.monotonic() - began < 10
    assert kinds(outcomes) == ["lock-held", "dead-owner"]
    assert f"pid {holder.pid}" in outcomes[0].finding.found
    assert all(outcome.left for outcome in outcomes)
    assert "locked" in outcomes[1].done
    holder.communicate()
    assert_repaired(plain_machine, "dead-owner")


def test_slots_on_a_disk(plain_machine):
    facts = MachineFacts(plain_machine.home, WELL, filesystem="ext4")
    assert [finding.kind for finding in findings(SUBJECTS, facts)] == ["slots-on-disk"]
    assert filesystem_of(Path("/proc/self")) == "proc"
    assert filesystem_of(Path("/dev/shm")) == "tmpfs"

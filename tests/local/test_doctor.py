"""Each fault is put in by hand; doctor finds it, repairs what can be repaired, and then finds nothing."""

import os
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.demand import Demand
from cotenant.core.grant import Share
from cotenant.hardware import slots
from cotenant.hardware.accounting import GpuAccount
from cotenant.hardware.enforcers.shim import LIBRARY as SHIM
from cotenant.hardware.nvml import CardProcess
from cotenant.local import home as homes
from cotenant.local import slot_folder
from cotenant.local.doctor import places, report
from cotenant.local.doctor.examination import Card, Facts, Holding
from cotenant.local.doctor.findings import findings
from cotenant.local.doctor.lowering import Held, lowered
from cotenant.local.doctor.places import Access, filesystem_of
from cotenant.local.doctor.system import CUDA, NVML, Library, Preload, System
from cotenant.local.machine import Machine
from cotenant.local.processes import identify
from cotenant.local.store import Store

GIB = 1 << 30
WELL = System((), driver_loaded=True, musl=None, preloads=())


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(report, "SECOND_LOOK", 0.02)
    monkeypatch.setattr(places, "LOCK_PATIENCE", 0.3)
    monkeypatch.setattr(places, "filesystem_of", lambda path: "tmpfs")  # tests live on a disk


@pytest.fixture
def alive():
    """A process that does nothing, as others see it."""
    process = subprocess.Popen(["sleep", "60"])
    yield identify(process.pid)
    process.kill()
    process.wait()


@pytest.fixture
def charge(plain_machine, make_job):
    """Puts a job into the ledger, with a slot if it has a grant."""

    def put(id, *, slot=True, uuid="GPU-0", memory=4 * GIB, waits=False, **fields):
        machine = plain_machine
        shares = () if waits else (Share(uuid, memory),)
        given = {"slot": machine.home.slots / id, "shares": shares, "granted": None if waits else 1.0}
        job = make_job(id, memory, **{**given, **fields})
        with machine.store.change() as books:
            books.jobs[id] = job
        if slot and job.shares:
            slot_folder.make(machine, job)
        return job

    return put


def check(machine, *, fix=False, seen=WELL):
    return report.check(machine, seen, fix=fix)


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


def test_nothing_is_wrong(plain_machine, charge):
    charge("train")
    charge("later", waits=True)
    assert check(plain_machine) == ()
    assert names(plain_machine) == {"train", "later"}


def test_a_dead_owner(plain_machine, charge, dead):
    charge("train")
    gone = charge("gone", process=dead)
    assert_repaired(plain_machine, "dead-owner")
    assert names(plain_machine) == {"train"}
    assert not gone.slot.exists()


def test_a_dead_command_whose_child_lives_is_well(plain_machine, charge, dead):
    job = charge("train", process=dead)
    held = slots.hold(job.slot)
    assert check(plain_machine) == ()
    os.close(held)
    assert kinds(check(plain_machine)) == ["dead-owner"]


def test_a_dead_waiter(plain_machine, charge, dead):
    charge("later", waits=True, process=dead)
    assert_repaired(plain_machine, "dead-waiter")
    assert names(plain_machine) == set()


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


def test_a_card_that_shrank(plain_machine, charge, alive):
    """What lies unused is given up, in the ledger and in the slots alike."""
    jobs = [charge(name, memory=size * GIB, process=alive) for name, size in (("a", 6), ("b", 5), ("c", 4))]
    reading = plain_machine.cards.cards[0]
    plain_machine.cards.cards[0] = reading._replace(gpu=replace(reading.gpu, memory=9 * GIB))
    assert_repaired(plain_machine, "over-granted")
    granted = {job.name: job.grant.memory for job in plain_machine.store.jobs()}
    assert granted == {"a": 3 * GIB, "b": 3 * GIB, "c": 3 * GIB}
    assert {job.name: slots.read_limits(job.slot).cards[0].bytes for job in jobs} == granted


def test_a_whole_card_that_shrank(plain_machine, charge, alive):
    job = charge(
        "train", process=alive, demand=Demand(whole=1), shares=(Share("GPU-0", 16 * GIB, whole=True),)
    )
    reading = plain_machine.cards.cards[0]
    plain_machine.cards.cards[0] = reading._replace(gpu=replace(reading.gpu, memory=15 * GIB))
    assert_repaired(plain_machine, "over-granted")
    assert plain_machine.store.jobs()[0].shares == (Share("GPU-0", 15 * GIB, whole=True),)
    assert slots.read_limits(job.slot).cards[0].bytes == 15 * GIB


def test_what_is_in_use_is_not_taken_away(plain_machine, charge, alive):
    charge("train", memory=12 * GIB, process=alive)
    reading = plain_machine.cards.cards[0]
    plain_machine.cards.cards[0] = reading._replace(
        gpu=replace(reading.gpu, memory=10 * GIB),
        used=12 * GIB,
        processes=(CardProcess(alive.pid, 12 * GIB),),
    )
    outcomes = check(plain_machine, fix=True)
    assert "over-granted" in kinds(outcomes)
    assert outcomes[0].left
    assert "in use" in outcomes[0].done
    assert plain_machine.store.jobs()[0].grant.memory == 12 * GIB


@given(
    st.dictionaries(
        st.text("abcdef", min_size=1, max_size=2),
        st.tuples(st.integers(1, 64), st.integers(0, 64)),
        max_size=8,
    ),
    st.integers(0, 200),
)
def test_lowering_keeps_what_is_used_and_takes_no_more_than_needed(sizes, capacity):
    grants = {name: Held(granted * GIB, min(granted, used) * GIB) for name, (granted, used) in sizes.items()}
    after = {name: held.granted for name, held in grants.items()} | lowered(grants, capacity * GIB)
    assert all(after[name] >= held.used for name, held in grants.items())
    assert all(0 < after[name] <= held.granted for name, held in grants.items())
    total = sum(after.values())
    most = max(capacity * GIB, sum(held.used for held in grants.values()))
    assert total <= most + len(grants) * slots.GRANULE
    before = sum(held.granted for held in grants.values())
    assert total >= min(before, capacity * GIB) - len(grants)


@pytest.mark.parametrize("damage", ["text", "row", "card", "table"])
def test_a_damaged_ledger(plain_machine, charge, alive, damage):
    job = charge("train", process=alive)
    store, ledger = plain_machine.store, plain_machine.home.ledger
    with store.change() as books:
        books.know_cards({reading.gpu.uuid: reading.gpu for reading in plain_machine.cards.cards})
        statement = {
            "row": "UPDATE jobs SET record = '{\"id\": 1}'",
            "card": "UPDATE cards SET record = '[1'",
            "table": "DROP TABLE cards",
        }
        if damage in statement:
            books._connection.execute(statement[damage])
    if damage == "text":
        store.close()
        for file in ledger.parent.glob("ledger.sqlite3*"):
            file.write_bytes(b"this is no ledger" * 1000)
    assert_repaired(plain_machine, "ledger-damaged")
    assert store.jobs() == [job]
    assert ledger.with_name("ledger.sqlite3.damaged").exists()


def test_a_ledger_of_a_newer_version_is_left_alone(plain_machine, charge):
    charge("train")
    with plain_machine.store.change() as books:
        books._connection.execute("PRAGMA user_version = 99")
    plain_machine.store.close()
    assert_found(plain_machine, "ledger-unusable")
    outcomes = check(plain_machine, fix=True)
    assert outcomes[0].left
    assert not list(plain_machine.home.folder.glob("*.damaged"))


def test_others_may_write_to_a_home_of_ones_own(plain_machine):
    plain_machine.home.folder.chmod(0o770)
    assert_repaired(plain_machine, "wrong-mode")
    assert plain_machine.home.folder.stat().st_mode & 0o777 == 0o750


def test_a_home_for_all_that_others_cannot_write(tmp_path, plain_cards):
    base = tmp_path / "all"
    base.mkdir()
    base.chmod(0o777)
    place = homes.prepare(base, tmpfs=tmp_path)
    machine = Machine(place, Store(place), plain_cards, Path("/nonexistent"), 0)
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


def test_a_sick_card(plain_machine):
    reading = plain_machine.cards.cards[1]
    plain_machine.cards.cards[1] = reading._replace(
        gpu=replace(reading.gpu, healthy=False), problem="3 uncorrected memory errors since it was reset"
    )
    assert_found(plain_machine, "sick-card")
    assert check(plain_machine, fix=True)[0].left
    assert "GPU 1" in check(plain_machine)[0].finding.found


def test_memory_outside_any_grant(plain_machine, charge, alive):
    reading = plain_machine.cards.cards[0]
    plain_machine.cards.cards[0] = reading._replace(
        used=3 * GIB, processes=(CardProcess(alive.pid, 3 * GIB),)
    )
    assert_found(plain_machine, "outside")
    finding = check(plain_machine)[0].finding
    assert finding.severity == "warning"
    assert f"3Gi of GPU 0 are held outside any grant: pid {alive.pid} (3Gi)" in finding.found
    charge("train", memory=14 * GIB, process=identify(1))
    crowded = check(plain_machine)[0].finding
    assert crowded.severity == "error"
    assert "1Gi of what is granted is not there" in crowded.means


def test_memory_that_no_process_answers_for(plain_machine):
    reading = plain_machine.cards.cards[0]
    plain_machine.cards.cards[0] = reading._replace(used=2 * GIB)
    assert "2Gi that no process answers for" in check(plain_machine)[0].finding.found
    plain_machine.cards.cards[0] = reading._replace(used=3 << 20)
    assert check(plain_machine) == ()


def test_a_process_of_a_grant_without_the_shim(plain_machine, charge, alive):
    charge("train", process=alive)
    reading = plain_machine.cards.cards[0]
    plain_machine.cards.cards[0] = reading._replace(used=GIB, processes=(CardProcess(alive.pid, GIB),))
    assert_found(plain_machine, "escaped")
    finding = check(plain_machine)[0].finding
    assert finding.severity == "error"
    assert f"pid {alive.pid} of train holds 1Gi of GPU 0" in finding.found


def test_a_context_that_is_larger_than_thought(plain_machine, make_job):
    job = make_job("train", shares=(Share("GPU-0", 4 * GIB),))
    reading = plain_machine.cards.cards[0]
    account = GpuAccount({}, 0, 0)
    held = Holding(job, 7, told=GIB, counted=GIB // 2)
    facts = Facts(plain_machine.home, WELL, cards=(Card(reading, account, (held,)),))
    assert [finding.kind for finding in findings(facts)] == ["undercounted"]
    close = held._replace(counted=GIB - (1 << 20))
    assert findings(facts._replace(cards=(Card(reading, account, (close,)),))) == ()


def test_what_is_gone_at_the_second_look_was_nothing(plain_machine):
    broken = Facts(plain_machine.home, WELL, access=(Access(Path("/x"), 0o700, 0o700, 0, writable=False),))
    looks = iter([broken, broken._replace(access=()), broken, broken])
    assert report.diagnose(lambda: next(looks)) == ()
    assert [finding.kind for finding in report.diagnose(lambda: next(looks))] == ["not-writable"]


def test_slots_on_a_disk(plain_machine):
    facts = Facts(plain_machine.home, WELL, filesystem="ext4")
    assert [finding.kind for finding in findings(facts)] == ["slots-on-disk"]
    assert filesystem_of(Path("/proc/self")) == "proc"
    assert filesystem_of(Path("/dev/shm")) == "tmpfs"


@pytest.mark.parametrize(
    ("cuda", "nvml", "loaded", "driver", "expected"),
    [
        (None, None, True, None, []),
        (None, "no program finds it", True, "no GPU", ["no-nvml"]),
        (None, "no program finds it", False, "no GPU", ["no-nvml"]),
        ("no program finds it", "no program finds it", False, "no GPU", ["no-driver"]),
        (None, None, True, "no GPU: Driver/library version mismatch", ["no-driver"]),
        ("cannot be loaded", None, True, None, ["no-cuda"]),
    ],
)
def test_what_is_missing_of_the_driver(plain_machine, cuda, nvml, loaded, driver, expected):
    libraries_ = (Library(CUDA, cuda), Library(NVML, nvml), Library(SHIM, None))
    seen = System(libraries_, driver_loaded=loaded, musl=None, preloads=())
    facts = Facts(plain_machine.home, seen, driver=driver)
    assert [finding.kind for finding in findings(facts)] == expected


def test_musl_and_preloads_are_told(plain_machine):
    seen = System(
        (), driver_loaded=True, musl="sh is made for musl", preloads=(Preload("/x", "here", "is bad"),)
    )
    found = findings(Facts(plain_machine.home, seen))
    assert [finding.kind for finding in found] == ["musl", "preload-conflict"]

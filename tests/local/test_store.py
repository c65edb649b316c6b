"""The ledger's file: what is committed stays, what is not never was, what is wrong with it is said."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import LedgerUnusable
from cotenant.core.gpu import GPU
from cotenant.local import home
from cotenant.local.store import HISTORY, LedgerStore


@pytest.fixture
def place(tmp_path):
    return home.prepare(tmp_path / "home", tmpfs=tmp_path)


@pytest.fixture
def store(place):
    store = LedgerStore(place)
    yield store
    store.close()


def put(store, *jobs):
    with store.change() as books:
        books.jobs.update({job.id: job for job in jobs})


def test_what_is_put_is_there_for_the_next(place, store, make_job):
    put(store, make_job("a"), make_job("b"))
    assert {job.id for job in LedgerStore(place).jobs()} == {"a", "b"}
    with store.change() as books:
        del books.jobs["a"]
    assert [job.id for job in LedgerStore(place).jobs()] == ["b"]


def test_a_change_that_fails_never_was(store, make_job):
    def fail():
        with store.change() as books:
            books.jobs.clear()
            books.remember(Demand(Memory(bytes=1)))
            raise RuntimeError

    put(store, make_job("a"))
    with pytest.raises(RuntimeError):
        fail()
    assert [job.id for job in store.jobs()] == ["a"]
    with store.change() as books:
        assert books.history() == []


def test_only_one_changes_at_a_time(place, make_job):
    order = []

    def second():
        with LedgerStore(place).change():
            order.append("second")

    with LedgerStore(place).change():
        other = threading.Thread(target=second)
        other.start()
        time.sleep(0.1)
        order.append("first")
    other.join()
    assert order == ["first", "second"]


def test_a_killed_writer_lets_go_and_leaves_nothing(place, store, make_job):
    put(store, make_job("a"))
    script = textwrap.dedent("""
        import pathlib, sys, time
        from cotenant.local import home
        from cotenant.local.store import LedgerStore
        place = home.prepare(pathlib.Path(sys.argv[1]), tmpfs=pathlib.Path(sys.argv[2]))
        with LedgerStore(place).change() as books:
            books.jobs.clear()
            books.write()
            print("writing", flush=True)
            time.sleep(60)
    """)
    child = subprocess.Popen(
        [sys.executable, "-c", script, place.folder, place.folder.parent], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "writing\n"
    child.kill()
    child.wait()
    child.stdout.close()
    with store.change() as books:
        assert set(books.jobs) == {"a"}


def test_signals_wait_while_the_ledger_is_held(store):
    got = []
    before = signal.signal(signal.SIGTERM, lambda *_: got.append(True))
    try:
        with store.change():
            signal.raise_signal(
                signal.SIGTERM
            )  # to this thread: others that the tests left behind take it at once
            time.sleep(0.01)
            assert not got
        assert got
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_place_in_line_goes_by_who_came_first(store, make_job):
    jobs = [make_job(id, since=since) for id, since in (("c", 3.0), ("a", 1.0), ("b", 1.0))]
    put(store, *jobs)
    assert [store.ahead_of(job)[0] for job in jobs] == [2, 0, 1]
    assert store.ahead_of(jobs[0])[1].id == "a"


def test_history_keeps_the_last_ones(store):
    with store.change() as books:
        for size in range(1, HISTORY + 11):
            books.remember(Demand(Memory(bytes=size)))
    with store.change() as books:
        sizes = [demand.memory.bytes for demand in books.history()]
    assert sizes == list(range(HISTORY + 10, 10, -1))


def test_cards_are_remembered(store):
    known = {
        "GPU-0": GPU("GPU-0", 0, "T4", 1 << 30),
        "MIG-1": GPU("MIG-1", 1, "A100", 1 << 30, parent="GPU-1"),
    }
    with store.change() as books:
        books.know_cards(known)
    assert store.cards() == known


@pytest.mark.parametrize("content", [b"not a ledger" * 200, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_is_told_with_what_to_do(place, store, make_job, content):
    put(store, make_job("a"))
    store.close()
    place.ledger.write_bytes(content)
    for attempt in (store.jobs, lambda: put(store, make_job("b"))):
        with pytest.raises(LedgerUnusable, match=r"ledger\.sqlite3 is damaged .*cotenant doctor --fix"):
            attempt()


def test_a_row_that_cannot_be_read_is_told(place, store, make_job):
    put(store, make_job("a"))
    with sqlite3.connect(place.ledger) as ledger:
        ledger.execute("UPDATE jobs SET record = '{}'")
    ledger.close()
    with pytest.raises(LedgerUnusable, match="doctor --fix"):
        store.jobs()


def test_a_newer_ledger_is_left_alone(place, store):
    put(store)
    with sqlite3.connect(place.ledger) as ledger:
        ledger.execute("PRAGMA user_version = 99")
    ledger.close()
    with pytest.raises(LedgerUnusable, match="newer Cotenant"):
        LedgerStore(place).jobs()


def test_an_empty_file_is_a_new_ledger(place, make_job):
    place.ledger.write_bytes(b"")
    put(LedgerStore(place), make_job("a"))
    assert len(LedgerStore(place).jobs()) == 1


def test_a_new_file_in_its_place_is_noticed(place, store, make_job):
    put(store, make_job("a"))
    with store.locked():
        LedgerStore(place).set_aside()
    put(store, make_job("b"))
    assert [job.id for job in LedgerStore(place).jobs()] == ["b"]


def test_a_ledger_for_all_is_everybody_s(tmp_path, make_job):
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o777)
    place = home.prepare(tmp_path / "home", tmpfs=tmp_path)
    before = os.umask(0o077)
    try:
        store = LedgerStore(place)
        put(store, make_job("a"))
        files = sorted(place.folder.iterdir())
    finally:
        os.umask(before)
    assert len(files) >= 3
    assert {file.name: file.stat().st_mode & 0o777 for file in files if file.is_file()} == {
        file.name: 0o666 for file in files if file.is_file()
    }

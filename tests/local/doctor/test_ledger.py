"""A ledger that is damaged or cannot be used, and jobs in it that have ended."""

import os

import pytest
from local.doctor.examining import assert_found, assert_repaired, check, kinds, names

from cotenant.hardware import slots


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

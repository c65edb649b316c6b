"""A machine on which faults can be made, without long waits."""

import subprocess

import pytest
from local.doctor.examining import GIB

from cotenant.core.grant import Share
from cotenant.local import slot_folder
from cotenant.local.doctor import places
from cotenant.local.processes import identify


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
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

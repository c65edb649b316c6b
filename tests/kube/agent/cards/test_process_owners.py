"""Whose a process is, remembered as long as it is the same process, and not for ever."""

from __future__ import annotations

import shutil

import pytest

from cotenant.kube.agent.cards.cgroups import Owner
from cotenant.kube.agent.cards.process_owners import Owned, ProcessOwners

UID, OTHER = "12345678-0000-0000-0000-000000000001", "12345678-0000-0000-0000-000000000002"
ID = "a" * 64


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def processes(tmp_path, now):
    return ProcessOwners(tmp_path, lambda: now[0])


def start(proc, pid, uid=UID, own=7, fresh=True):
    folder = proc / str(pid)
    if fresh:
        shutil.rmtree(folder, ignore_errors=True)
        (
            proc / f"other-{pid}-{uid[-1:]}-{own}"
        ).mkdir()  # so that the entry's inode is not used again at once
        folder.mkdir()
    path = f"/kubepods/burstable/pod{uid}/{ID}" if uid else "/user.slice"
    (folder / "cgroup").write_text(f"0::{path}\n")
    (folder / "status").write_text(f"Name:\tx\nNSpid:\t{pid}\t{own}\n")


def test_processes_of_pods_and_others_are_told_apart_and_those_that_ended_left_out(tmp_path, processes):
    start(tmp_path, 10)
    start(tmp_path, 11, uid="")
    assert processes.of([10, 11, 12]) == Owned({10: Owner(UID, ID), 11: None}, {10: 7})


def test_the_same_process_is_not_read_again_for_a_minute(tmp_path, processes, now):
    start(tmp_path, 10)
    processes.of([10])
    start(tmp_path, 10, OTHER, fresh=False)
    now[0] = 59.0
    assert processes.of([10]).owners == {10: Owner(UID, ID)}
    now[0] = 61.0
    assert processes.of([10]).owners == {10: Owner(OTHER, ID)}


def test_another_process_with_the_pid_of_an_earlier_one_is_read(tmp_path, processes):
    start(tmp_path, 10)
    processes.of([10])
    start(tmp_path, 10, OTHER, own=8)
    assert processes.of([10]) == Owned({10: Owner(OTHER, ID)}, {10: 8})


def test_what_has_left_the_gpus_is_forgotten(tmp_path, processes):
    start(tmp_path, 10)
    processes.of([10])
    processes.of([])
    start(tmp_path, 10, OTHER, fresh=False)
    assert processes.of([10]).owners == {10: Owner(OTHER, ID)}


def test_a_process_of_this_machine_is_no_pod_s():
    import os

    found = ProcessOwners().of([os.getpid(), 2**22 + 1])
    assert list(found.owners) == [os.getpid()]

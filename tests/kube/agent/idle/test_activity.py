"""The activity of a pod's containers, from real slots and from what the driver saw."""

from __future__ import annotations

import os
import struct
import time
from datetime import UTC, datetime

import pytest
from kube.agent.nodes import GIB, A, B, make, pod, shimmed
from msgspec.structs import replace

from cotenant.core.grant import Share
from cotenant.hardware import slots as files
from cotenant.hardware.enforcers.null import Null
from cotenant.kube.agent.cards.cgroups import Owner
from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.agent.idle.activity import ActivityReader
from cotenant.kube.agent.idle.verdict import SECOND
from cotenant.kube.agent.node_pods import PodsNow
from cotenant.kube.agent.slots.node_slots import NodeSlots
from cotenant.kube.api.objects import ContainerState, ContainerStatus, Running

ID = "0123456789abcdef" * 4
SHARE = Share(A, GIB)
NOTHING = Sight((), {}, 0.0, granted=True)


@pytest.fixture
def slots(tmp_path):
    return shimmed(tmp_path / "cotenant")


@pytest.fixture
def reader(slots):
    return ActivityReader(slots, time.monotonic_ns())


def status(container="main", *, running=True, ready=True, id=ID):
    state = ContainerState(running=Running() if running else None)
    return ContainerStatus(container, state, ready=ready, container_id=f"containerd://{id}" if id else "")


def running(*statuses, slots=(("main", SHARE),), **more):
    made = pod("web", *slots, **more)
    return replace(made, status=replace(made.status, container_statuses=statuses or (status(),)))


def note(slot, *, launch=0, alloc=0):
    fd = os.open(slot.folder / "usage", os.O_RDWR)
    os.pwrite(fd, struct.pack("<QQ", launch, alloc), files._CLOSED + 32)
    os.close(fd)


def read(reader, *pods, sight=NOTHING, unlimited=None):
    return reader.read(PodsNow(tuple(pods)), sight, unlimited or {})


def only(reader, *pods, **more):
    (found,) = read(reader, *pods, **more).values()
    (activity,) = found
    return activity


def test_the_last_launch_or_allocation_counts(slots, reader):
    slot = make(slots, "d-0", SHARE)
    made, now = files.made_at(slot.folder), time.monotonic_ns()
    assert only(reader, running()).last == made
    assert not only(reader, running()).used
    note(slot, launch=now - 3, alloc=now - 2)
    found = only(reader, running())
    assert (found.last, found.used, found.unseen, found.starting) == (now - 2, True, None, None)
    note(slot, launch=now - 1, alloc=now - 2)
    assert only(reader, running()).last == now - 1


def test_pods_in_observe_mode_count_too(slots, reader):
    slot = make(slots, "d-0", SHARE, mode="observe")
    note(slot, launch=time.monotonic_ns())
    assert only(reader, running()).used


def test_a_container_that_restarts_has_its_gpu_anew(slots, reader):
    slot = make(slots, "d-0", SHARE)
    before = files.made_at(slot.folder)
    note(slot, launch=time.monotonic_ns())
    make(slots, "d-0", SHARE)
    found = only(reader, running())
    assert found.last > before
    assert not found.used


def test_a_container_that_loads_is_not_idle_until_it_is_ready_or_has_launched(slots, reader):
    slot = make(slots, "d-0", SHARE)
    note(slot, alloc=time.monotonic_ns())
    loading = running(status(ready=False))
    assert "loading" in (only(reader, loading).starting or "")
    assert only(reader, running()).starting is None
    note(slot, launch=time.monotonic_ns())
    assert only(reader, loading).starting is None, "it was unready later, for another reason"


def test_a_container_that_has_ended_is_not_loading(slots, reader):
    make(slots, "d-0", SHARE)
    assert only(reader, running(status(running=False, ready=False))).starting is None


def test_a_container_that_has_not_started_is_not_idle(slots, reader):
    make(slots, "d-0", SHARE)
    both = running(
        status(),
        status("second", running=False, ready=False, id=""),
        slots=(("main", SHARE), ("second", SHARE)),
    )
    (found,) = read(reader, both).values()
    assert [each.starting for each in found] == [None, "has not started"]


def test_a_slot_that_is_gone_is_unknown_when_two_looks_have_missed_it(slots, reader):
    """One look alone may fall into the moment in which a slot is replaced."""
    assert read(reader, running()) == {}
    assert only(reader, running()).unseen == "its slot on the node is gone"
    make(slots, "d-0", SHARE)
    assert only(reader, running()).unseen is None
    slots.remove(slots.find("d-0"))
    assert read(reader, running()) == {}


def test_a_slot_of_another_pod_of_the_same_name_does_not_count(slots, reader):
    make(slots, "d-0", SHARE, uid="u-0")
    read(reader, running())
    assert only(reader, running()).unseen == "its slot on the node is gone"


def test_pods_that_end_or_have_no_valid_grant_are_left_out(slots, reader):
    make(slots, "d-0", SHARE)
    leaving = running()
    leaving = replace(leaving, metadata=replace(leaving.metadata, deletion_timestamp=datetime.now(UTC)))
    pending = running(phase="Pending")
    forged = running(grant="{}")
    assert read(reader, leaving) == read(reader, pending) == read(reader, forged) == {}


def test_a_program_without_the_shim_is_not_measured(slots, reader):
    make(slots, "d-0", SHARE)
    found = only(reader, running(), unlimited={"d-0": frozenset({7})})
    assert "without the shim" in (found.unseen or "")
    assert only(reader, running(), unlimited={"d-0": frozenset(), "d-1": frozenset({7})}).unseen is None


def test_another_enforcer_does_not_measure(tmp_path):
    slots = NodeSlots(tmp_path / "cotenant", Null())
    make(slots, "d-0", SHARE)
    found = only(ActivityReader(slots, 0), running())
    assert found.unseen == "kernel launches are not recorded under the enforcer 'none'"


def test_a_kernel_that_runs_for_long_is_activity_and_the_next_agent_knows_it(slots, reader):
    slot = make(slots, "d-0", SHARE)
    note(slot, launch=1)
    at = time.monotonic()
    owner = Owner("u-1", f"cri-containerd-{ID}.scope")
    seen = Sight((), {}, at, granted=True, busy={A: {owner: 80}, B: {}})
    assert only(reader, running(), sight=seen).last == round(at * SECOND)
    again = ActivityReader(slots, time.monotonic_ns())
    assert only(again, running()).last == round(at * SECOND)


@pytest.mark.parametrize(
    "busy",
    [
        {B: {Owner("u-1", ID): 80}},
        {A: {Owner("u-2", ID): 80}},
        {A: {Owner("u-1", "f" * 64): 80}},
        {A: {Owner("u-1", ID): 0}},
        {},
    ],
)
def test_kernels_of_others_or_on_other_gpus_are_not_activity(slots, reader, busy):
    slot = make(slots, "d-0", SHARE)
    made = files.made_at(slot.folder)
    seen = Sight((), {}, time.monotonic(), granted=True, busy=busy)
    assert only(reader, running(), sight=seen).last == made


@pytest.mark.parametrize("size", [0, 7, 4096, 5000])
def test_a_slot_that_its_container_damaged_says_so_of_its_own_pod_only(slots, reader, size):
    slot, other = make(slots, "d-0", SHARE), make(slots, "d-1", SHARE, uid="u-2", name="two")
    note(other, launch=time.monotonic_ns())
    os.truncate(slot.folder / "usage", size)
    found = read(reader, running(), running(uid="u-2"))
    assert found["u-2"][0].used
    assert (found["u-1"][0].unseen is None) == (size >= 4096)


def test_times_in_the_future_are_work_of_that_container_alone(slots, reader):
    slot = make(slots, "d-0", SHARE)
    note(slot, launch=2**64 - 1, alloc=2**63)
    found = only(reader, running())
    assert 0 <= time.monotonic_ns() - found.last < 60 * SECOND


def test_a_slot_of_an_older_version_counts_from_this_agents_start(slots):
    slot = make(slots, "d-0", SHARE)
    (slot.folder / "limits").write_bytes(files.encode(slot.limits))
    assert only(ActivityReader(slots, 5), running()).last == 5

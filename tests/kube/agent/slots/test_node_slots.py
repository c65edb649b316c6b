"""Slots on a node's disk: made whole or not at all, and never taken from somebody who lives in them."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
from kube.agent.nodes import GIB, A, B, api_with, make, pod, shimmed
from kube.fakeapi import after

from cotenant.core.errors import CotenantError
from cotenant.core.grant import Share
from cotenant.hardware import slots as files
from cotenant.kube.agent.cards.cgroups import Owner
from cotenant.kube.agent.classic.pod_resources import Holder, PodResourcesUnavailable
from cotenant.kube.agent.slots.cleaning import Cleaning
from cotenant.kube.agent.slots.mounting import mount_slots
from cotenant.kube.agent.slots.node_slots import BadSlotKey, NodeSlots, SlotHeld
from cotenant.kube.api.errors import Unreachable

FOUR = Share(A, 4 * GIB)


def test_a_slot_is_read_back_with_its_owner(slots):
    made = make(slots, "slot-0003", FOUR, Share(B, GIB, 30), Share("GPU-c", 8 * GIB, whole=True))
    assert slots.read() == [made]
    assert (made.owner.uid, str(made.owner)) == ("u-1", "default/web/main")
    assert [made.bytes_on(uuid) for uuid in (A, B, "GPU-c", "GPU-d")] == [4 * GIB, GIB, 8 * GIB, 0]
    assert [made.is_whole(uuid) for uuid in (A, "GPU-c")] == [False, True]
    assert made.usage().processes == ()
    assert slots.keys() == ["slot-0003"]


def test_the_owner_is_told_outside_the_folder_that_the_container_sees(slots):
    made = make(slots, "slot-0000", FOUR)
    assert sorted(each.name for each in made.folder.iterdir()) == ["limits", "usage"]
    assert sorted(each.name for each in made.folder.parent.iterdir()) == ["folder", "owner.json"]


def test_a_slot_made_anew_is_another(slots):
    old = make(slots, "slot-0000", FOUR)
    mapped = os.open(old.folder / "usage", os.O_RDONLY)
    new = make(slots, "slot-0000", Share(A, 2 * GIB), uid="u-2")
    assert slots.read() == [new]
    assert new.limits.owner == "u-2"
    closed = os.pread(mapped, 8, files._CLOSED)
    os.close(mapped)
    assert closed == b"\1" + bytes(7), "a process that has the old one mapped can no longer begin"


@pytest.mark.parametrize("what", ["make", "remove", "prepare"])
def test_a_slot_in_which_somebody_lives_stays(slots, what):
    old = make(slots, "slot-0000", FOUR)
    held = files.hold(old.folder)
    try:
        if what == "make":
            with pytest.raises(SlotHeld, match="default/web/main"):
                make(slots, "slot-0000", FOUR, uid="u-2")
        elif what == "remove":
            assert not slots.remove(old)
        else:
            slots.prepare("slot-0000")
        assert slots.read() == [old]
    finally:
        os.close(held)
    make(slots, "slot-0000", FOUR, uid="u-2")


def test_a_device_that_goes_to_another_container_has_no_limits_until_that_starts(slots):
    make(slots, "slot-0000", FOUR)
    folder = slots.prepare("slot-0000")
    assert folder.is_dir()
    assert list(folder.iterdir()) == []
    assert slots.read() == []


def test_what_a_container_runtime_made_for_want_of_a_file_is_no_slot(slots):
    """It makes a folder of every mount source that is missing."""
    (slots.prepare("slot-0000") / "usage").mkdir()
    assert slots.read() == []
    assert make(slots, "slot-0000", FOUR).limits.owner == "u-1"


def test_only_the_slot_that_was_meant_is_removed(slots):
    old = make(slots, "slot-0000", FOUR)
    new = make(slots, "slot-0000", FOUR, uid="u-2")
    assert not slots.remove(old)
    assert slots.remove(new)
    assert slots.read() == []
    assert not slots.remove(new)


def test_a_damaged_record_leaves_what_the_limits_tell(slots):
    made = make(slots, "slot-0000", FOUR)
    (made.folder.parent / "owner.json").write_text("{")
    [found] = slots.read()
    assert (found.owner.uid, found.shares) == ("u-1", (FOUR,))


@pytest.mark.parametrize(
    "device", ["", "..", ".", "slot-0000/..", "a/b", "-a", "a.", "GPU-a", "slot-0000\n", "a" * 129]
)
def test_what_cannot_name_a_folder_is_no_key(slots, device):
    with pytest.raises(BadSlotKey):
        slots.folder(device)


MAKE_FOR_EVER = """
import sys
from pathlib import Path
from kube.agent.nodes import make, shimmed, A, GIB
from cotenant.core.grant import Share
slots = shimmed(Path(sys.argv[1]))
print("go", flush=True)
for n in range(10**9):
    make(slots, "slot-0000", Share(A, GIB), uid=f"u-{n}")
"""


@pytest.mark.parametrize("seconds", [-0.01, *(0.003 * n for n in range(12))])
def test_an_agent_killed_at_any_moment_leaves_a_whole_slot_or_none(tmp_path, seconds):
    root = tmp_path / "cotenant"
    command = [sys.executable, "-c", MAKE_FOR_EVER, str(root)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": "tests"}
    ) as agent:
        agent.stdout.readline()
        time.sleep(0.01 + seconds)
        agent.send_signal(signal.SIGKILL)
    slots = shimmed(root)
    for slot in slots.read():
        assert slot.owner.uid == slot.limits.owner
        assert slot.owner.name == "web", "the record is there before the limits are"
        assert (slot.folder / "usage").stat().st_size == files._USAGE_SIZE
    slots.sweep()
    left = files.names(root / "slots" / "slot-0000")  # it may not have come so far as to make the folder
    assert set(left) <= {"folder", "owner.json"}
    assert make(slots, "slot-0000", FOUR, uid="after").limits.owner == "after"


class Record:
    def __init__(self, **holders) -> None:
        self.listed = holders
        self.fails = None

    async def holders(self):
        if self.fails:
            raise self.fails
        return {device.replace("_", "-"): (holder,) for device, holder in self.listed.items()}


@pytest.mark.asyncio
async def test_the_slot_of_a_pod_that_is_gone_is_removed(slots):
    make(slots, "slot-0000", FOUR)
    living = make(slots, "slot-0001", FOUR, uid="u-2", name="other")
    record = Record(slot_0001=Holder("default", "other", "main"))
    api = api_with(pod("other", uid="u-2"))
    [removed] = await Cleaning(slots, record, api).clean()
    assert removed.key == "slot-0000"
    assert slots.read() == [living]
    assert api.calls == [("get", "pods", "web")], "what the kubelet lists is not asked for"


@pytest.mark.asyncio
@pytest.mark.parametrize("now", [pod(phase="Succeeded"), pod(phase="Failed"), pod(uid="u-9")])
async def test_the_slot_of_a_pod_that_has_ended_or_was_made_anew_is_removed(slots, now):
    make(slots, "slot-0000", FOUR)
    assert await Cleaning(slots, Record(), api_with(now)).clean()


@pytest.mark.asyncio
async def test_a_kubelet_that_lists_nothing_yet_ends_no_slot(slots):
    make(slots, "slot-0000", FOUR)
    assert await Cleaning(slots, Record(), api_with(pod())).clean() == []
    assert slots.read()


@pytest.mark.asyncio
async def test_a_slot_that_is_lived_in_or_cannot_be_asked_about_stays(slots):
    made = make(slots, "slot-0000", FOUR)
    held = files.hold(made.folder)
    assert await Cleaning(slots, Record(), api_with(), frozenset).clean() == []
    of_pod = lambda: {Owner("u-1", "9f"), Owner("u-2", "7e")}  # noqa: E731
    assert await Cleaning(slots, Record(), api_with(), of_pod).clean() == []
    os.close(held)
    down = api_with()
    down.fails["get"] = Unreachable("no answer")
    assert await Cleaning(slots, Record(), down).clean() == []
    silent = Record()
    silent.fails = PodResourcesUnavailable("no socket")
    with pytest.raises(PodResourcesUnavailable):
        await Cleaning(slots, silent, api_with()).clean()
    assert await Cleaning(slots, Record(), api_with()).clean() == [made]


@pytest.mark.asyncio
async def test_a_lock_on_the_slot_of_a_pod_that_is_gone_counts_only_while_a_process_of_it_lives(slots):
    """Its descriptor was passed to a process of another pod."""
    made = make(slots, "slot-0000", FOUR)
    passed = files.hold(made.folder)
    of_others = lambda: {Owner("u-2", "7e")}  # noqa: E731
    assert await Cleaning(slots, Record(), api_with(pod()), of_others).clean() == [], "its pod is there"
    assert await Cleaning(slots, Record(), api_with(), of_others).clean() == [made]
    assert slots.read() == []
    os.close(passed)


@pytest.mark.asyncio
async def test_usage_that_a_container_made_larger_is_cut_and_reported(slots):
    made = make(slots, "slot-0000", FOUR)
    make(slots, "slot-0001", FOUR, uid="u-2", name="other")
    with (made.folder / "usage").open("ab") as usage:
        usage.write(bytes(3 << 20))
    (slots.prepare("slot-0002") / "usage").mkdir()
    reported = []
    Cleaning(slots, Record(), api_with(), oversized=reported.append).cut()
    assert reported == [("slot-0000", made, 3 << 20)]
    assert (made.folder / "usage").stat().st_size == files._USAGE_SIZE


def test_a_tmpfs_that_a_container_has_filled_takes_the_slot_of_another(tmp_path):
    root = tmp_path / "cotenant"
    try:
        mount_slots(root, 4 << 20)
    except CotenantError:
        pytest.skip("only root can mount a tmpfs")
    try:
        slots = shimmed(root)
        filler = make(slots, "slot-0000", FOUR)
        with (filler.folder / "usage").open("ab", buffering=0) as usage, contextlib.suppress(OSError):
            while usage.write(bytes(4096)):
                pass
        assert make(slots, "slot-0001", FOUR, uid="u-2", name="other").usage().processes == ()
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True)


@pytest.mark.asyncio
async def test_a_slot_that_was_taken_anew_while_it_was_asked_about_stays(slots):
    make(slots, "slot-0000", FOUR)

    api = api_with()
    api.fates["get"] = [after(lambda _: make(slots, "slot-0000", FOUR, uid="u-2", name="next"))]
    assert await Cleaning(slots, Record(), api).clean() == []
    assert [slot.owner.uid for slot in slots.read()] == ["u-2"]


def test_a_slot_that_is_the_same_is_not_read_again_and_every_change_of_it_is_seen(slots):
    made = make(slots, "slot-0001", Share(A, GIB))
    assert slots.read() == [made]
    assert slots.find("slot-0001") is made
    slots.enforcer.change(made.folder, {A: 2 * GIB})
    changed = slots.find("slot-0001")
    assert changed.bytes_on(A) == 2 * GIB
    again = make(slots, "slot-0001", Share(A, GIB), uid="u-2")
    assert (again.owner.uid, slots.read()) == ("u-2", [again])
    assert slots.remove(again)
    assert (slots.find("slot-0001"), slots.read(), slots._known) == (None, [], {})


def test_what_another_reader_of_the_folder_changes_is_seen_too(slots):
    other = NodeSlots(slots.root, slots.enforcer)
    first = make(slots, "slot-0001", Share(A, GIB))
    assert other.find("slot-0001") == first
    make(slots, "slot-0001", Share(A, GIB), uid="u-2")
    assert other.find("slot-0001").owner.uid == "u-2"


def test_known_slots_are_not_read_again_for_a_while_and_show_every_change_of_the_agents(slots, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("cotenant.kube.agent.slots.node_slots.time.monotonic", lambda: now[0])
    assert slots.known() == []
    one = make(slots, "slot-0000", FOUR)
    assert slots.known() == [one]
    assert slots.known() is slots.known(), "nothing was read"
    other = make(slots, "slot-0001", FOUR, uid="u-2")
    assert slots.known() == [one, other]
    assert slots.remove(one)
    assert slots.known() == [other]
    slots.prepare("slot-0001")
    assert slots.known() == []

    again = make(slots, "slot-0000", FOUR)
    assert slots.known() == [again]
    (again.folder / "limits").unlink()  # by nobody that the agent knows of
    now[0] += 11
    assert slots.known() == []


def test_a_reading_during_a_change_is_not_believed(slots):
    """Readers are in threads."""
    before = slots.read()
    prepare, seen = slots.enforcer.prepare, []

    class Enforcer:
        def __getattr__(self, name):
            return getattr(enforcer, name)

        def prepare(self, *given):
            seen.append(slots.read())
            return prepare(*given)

    enforcer, slots.enforcer = slots.enforcer, Enforcer()
    made = make(slots, "slot-0000", FOUR)
    assert seen == [before] == [[]]
    assert slots.known() == [made]

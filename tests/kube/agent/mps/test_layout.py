"""Which daemon serves whom, and what containers are started with."""

from pathlib import Path

import pytest
from kube.agent.nodes import CARDS, GIB, A, B, make

from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.hardware.mps.cards import ComputeFacts, objection
from cotenant.kube.agent.mps.layout import daemon_for, folders_of, link, plans
from cotenant.kube.agent.mps.settings import MpsSettings
from cotenant.kube.agent.mps.supervising import shared_memory_fault

HALF = Share(A, 4 * GIB, 50)


def test_one_daemon_for_all_gpus_or_one_for_each():
    gpus = tuple(CARDS.values())
    assert plans("off", gpus) == []
    assert plans("node", gpus) == [("node", gpus)]
    assert plans("node", gpus)[0].environment() == {}
    assert [plan.key for plan in plans("card", gpus)] == [A, B]
    assert plans("card", gpus)[0].environment() == {"CUDA_VISIBLE_DEVICES": A}
    assert plans("node", ())[0].key == "node", "the GPUs may come later"


def test_a_container_is_served_by_the_daemon_of_its_gpu():
    assert daemon_for("card", [HALF]) == A
    assert daemon_for("node", [HALF]) == "node"
    assert daemon_for("off", [HALF]) is None
    assert daemon_for("node", [Share(A, GIB)]) is None, "it asked for no compute"
    assert daemon_for("card", [HALF, Share(B, GIB, 50)]) is None, "no process can use two daemons"
    assert daemon_for("node", [HALF, Share(B, GIB, 50)]) == "node"


def test_what_is_mounted_depends_on_no_pod_and_no_version(tmp_path):
    folders = folders_of(MpsSettings(daemons="card"), str(tmp_path))
    folders.make()
    assert folders.attachment().mounts == (
        (Path("/run/cotenant/mps"), tmp_path / "mps" / "pipes", True),
        (Path("/dev/shm"), tmp_path / "mps" / "shm", False),
    )
    assert (tmp_path / "mps" / "shm").stat().st_mode & 0o7777 == 0o1777
    assert folders.place(A).pipe == tmp_path / "mps" / "pipes" / A
    elsewhere = folders_of(MpsSettings(shared_memory="/dev/shm"), str(tmp_path))
    assert elsewhere.attachment().mounts[1].host == Path("/dev/shm")


def test_a_slot_points_at_its_daemon_as_the_container_sees_it(slots):
    slot = make(slots, "slot-0001", HALF)
    link(slot, A)
    assert (slot.folder / "mps").readlink() == Path("/run/cotenant/mps") / A
    link(slot, "node")
    assert (slot.folder / "mps").readlink() == Path("/run/cotenant/mps/node")
    link(slot, None)
    assert not (slot.folder / "mps").is_symlink()
    again = make(slots, "slot-0001", Share(A, GIB))
    assert slots.find("slot-0001") == again, "the next owner's slot has none"


def test_a_daemon_must_have_the_shared_memory_that_containers_get(tmp_path):
    folders = folders_of(MpsSettings(), str(tmp_path))
    assert "mps.shared_memory" in shared_memory_fault(folders)
    folders.make()
    assert "containers get that as their /dev/shm" in shared_memory_fault(folders)
    assert shared_memory_fault(folders, own=tmp_path / "mps" / "shm") is None


@pytest.mark.parametrize(
    ("gpu", "facts", "one", "words"),
    [
        (CARDS[A], ComputeFacts((6, 0)), True, "compute capability is 6.0: shares of compute need 7.0"),
        (CARDS[A], ComputeFacts((8, 0), prohibited=True), True, "compute mode is PROHIBITED"),
        (GPU("MIG-1", 8, "A100", GIB, parent=A), ComputeFacts((8, 0)), True, "MIG instance"),
    ],
)
def test_gpus_that_mps_cannot_serve(gpu, facts, one, words):
    assert words in objection(gpu, facts, one_daemon=one)


def test_gpus_that_it_can():
    assert objection(CARDS[A], ComputeFacts((7, 0), exclusive=True), one_daemon=True) is None
    assert objection(CARDS[A], None, one_daemon=True) is None
    assert objection(GPU("MIG-1", 8, "A100", GIB, parent=A), ComputeFacts((8, 0)), one_daemon=False) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("pinned_memory", "1.5G"), ("pinned_memory", "abc"), ("program", "mps"), ("shared_memory", "shm")],
)
def test_settings_that_make_no_sense_name_their_field(field, value):
    with pytest.raises(BadInput, match=f"^{field}: "):
        MpsSettings(**{field: value})

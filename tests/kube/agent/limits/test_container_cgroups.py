"""Which cgroup has which slot: by the mounts of its processes, in the folders that the kubelet's two drivers make."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.kube.agent.limits.container_cgroups import ContainerCgroups, has_mounted

UID = "1dced007-ada6-4951-b979-2c8433c100bc"
OTHER = "ffffffff-ada6-4951-b979-2c8433c100bc"


class Node:
    """Folders like those of cgroup v2 and /proc."""

    def __init__(self, root: Path) -> None:
        self.cgroup, self.proc, self.slots = root / "cgroup", root / "proc", root / "run" / "slots"
        self.cgroup.mkdir()
        (self.cgroup / "cgroup.procs").touch()
        self.found = ContainerCgroups(self.cgroup, self.proc)

    def slot(self, key: str) -> Path:
        folder = self.slots / key / "folder"
        folder.mkdir(parents=True)
        return folder

    def container(self, path: str, *pids: int) -> Path:
        folder = self.cgroup / path
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
        return folder

    def process(self, pid: int, *roots: str, device: str | None = None) -> None:
        at = self.slots.stat().st_dev
        number = device or f"{at >> 8 & 0xFFF}:{at & 0xFF}"
        folder = self.proc / str(pid)
        folder.mkdir(parents=True)
        lines = [f"22 1 {number} {root} /run/cotenant/slot ro - tmpfs cotenant rw" for root in roots]
        (folder / "mountinfo").write_text("\n".join(["20 1 0:5 / / rw - overlay overlay rw", *lines, ""]))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize(
    "pod",
    [
        f"kubepods/burstable/pod{UID}",
        f"kubepods/pod{UID}",
        f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID.replace('-', '_')}.slice",
        f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID.replace('-', '_')}.slice",
        f"testbed/kubepods/besteffort/pod{UID}",
    ],
)
def test_containers_of_one_pod_are_told_apart_by_their_mounts(node: Node, pod: str):
    one, two = node.slot("slot-0000"), node.slot("slot-0001")
    first = node.container(f"{pod}/aaaa", 11)
    second = node.container(f"{pod}/bbbb", 12, 13)
    node.container(f"{pod}/pause", 14)
    node.process(11, "/slots/slot-0000/folder")
    node.process(12)
    node.process(13, "/cotenant/slots/slot-0001/folder")
    node.process(14)
    for _ in range(2):
        assert node.found.of_slot(UID, one) == [first]
        assert node.found.of_slot(UID, two) == [second]
    assert node.found.of_slot(OTHER, one) == []


def test_a_container_that_has_no_process_or_no_mounts_yet_is_found_later(node: Node):
    slot = node.slot("slot-0000")
    assert node.found.of_slot(UID, slot) == []
    folder = node.container(f"kubepods/pod{UID}/aaaa")
    assert node.found.of_slot(UID, slot) == []
    (folder / "cgroup.procs").write_text("11\n")
    node.process(11)
    assert node.found.of_slot(UID, slot) == []
    (node.proc / "11" / "mountinfo").unlink()
    (node.proc / "11").rmdir()
    node.process(11, "/slots/slot-0000/folder")
    assert node.found.of_slot(UID, slot) == [folder]


def test_what_is_known_stays_known_whatever_the_program_does(node: Node):
    """It may move into cgroups below, and take the mount out of its own mount namespace."""
    slot = node.slot("slot-0000")
    folder = node.container(f"kubepods/pod{UID}/aaaa", 11)
    node.process(11, "/slots/slot-0000/folder")
    assert node.found.of_slot(UID, slot) == [folder]
    (folder / "cgroup.procs").write_text("")
    node.container(f"kubepods/pod{UID}/aaaa/child", 12)
    node.process(12)
    assert node.found.of_slot(UID, slot) == [folder]


def test_processes_below_a_container_show_it_too(node: Node):
    slot = node.slot("slot-0000")
    folder = node.container(f"kubepods/pod{UID}/aaaa")
    node.container(f"kubepods/pod{UID}/aaaa/init", 11)
    node.process(11, "/slots/slot-0000/folder")
    assert node.found.of_slot(UID, slot) == [folder]


def test_another_cgroup_of_the_same_name_is_another(node: Node):
    slot = node.slot("slot-0000")
    folder = node.container(f"kubepods/pod{UID}/aaaa", 11)
    node.process(11, "/slots/slot-0000/folder")
    assert node.found.of_slot(UID, slot) == [folder]
    folder.rename(folder.with_name("old"))
    (folder.with_name("old") / "cgroup.procs").unlink()
    node.container(f"kubepods/pod{UID}/aaaa", 21)
    node.process(21)
    assert node.found.of_slot(UID, slot) == []
    node.found.forget_gone()


@pytest.mark.parametrize(
    ("root", "device"),
    [
        ("/slots/slot-0000/folder//deleted", None),
        ("/slots/slot-0000/.retired//deleted", None),
        ("/slots/slot-0000/folder", "0:99999"),
        ("/slots/slot-00001/folder", None),
        ("/slots/slot-0000/folder/usage", None),
    ],
    ids=["deleted", "retired", "of another filesystem", "of another slot", "a file in it"],
)
def test_what_is_not_the_slots_folder_now_does_not_count(node: Node, root: str, device: str | None):
    slot = node.slot("slot-0000")
    node.process(11, root, device=device)
    assert not has_mounted(11, slot, node.proc)


def test_a_process_that_has_ended_has_nothing(node: Node):
    assert not has_mounted(404, node.slot("slot-0000"), node.proc)
    assert not has_mounted(404, node.slots / "gone", node.proc)


def test_a_program_that_hid_its_mounts_is_found_by_the_id_that_the_kubelet_reports(node: Node):
    slot, other = node.slot("slot-0000"), node.slot("slot-0001")
    id = "9f" * 32
    folder = node.container(
        f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{id}.scope", 11
    )
    node.process(11)
    assert node.found.of_slot(UID, slot) == []
    node.found.ids = {slot: frozenset({id}), other: frozenset()}
    assert node.found.of_slot(UID, other) == []
    assert node.found.of_slot(UID, slot) == [folder]


def test_a_program_with_very_many_mounts_costs_no_more_than_a_few(node: Node):
    slot = node.slot("slot-0000")
    node.process(11, "/slots/slot-0000/folder")
    with (node.proc / "11" / "mountinfo").open("a") as file:
        file.write("30 1 0:7 / /a rw - tmpfs x rw\n" * 100_000)
    assert has_mounted(11, slot, node.proc)

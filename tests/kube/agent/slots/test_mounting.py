"""The tmpfs of the slots: it has a size, and hides no slot that a container uses."""

import os
import subprocess

import pytest
from kube.agent.nodes import GIB, A, make, shimmed

from cotenant.core.errors import BadInput, CotenantError
from cotenant.core.grant import Share
from cotenant.kube.agent.settings import AgentSettings
from cotenant.kube.agent.slots.mounting import has_own_tmpfs, mount_slots

MIB = 1 << 20


@pytest.fixture
def root(tmp_path):
    """The folder of the slots. What is mounted there is taken away at the end."""
    folder = tmp_path / "run dir" / "cotenant"
    probe = tmp_path / "probe"
    probe.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "cotenant", probe], check=False).returncode:
        pytest.skip("only root can mount a tmpfs")
    subprocess.run(["umount", probe], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=False, capture_output=True)


def size_of(folder):
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize


def test_slots_get_a_tmpfs_of_their_own_with_a_size(root):
    assert mount_slots(root, 8 * MIB) == "mounted"
    assert (has_own_tmpfs(root), size_of(root)) == (True, 8 * MIB)
    with pytest.raises(OSError, match="No space left"):
        (root / "filler").write_bytes(bytes(9 * MIB))


def test_another_size_changes_the_one_that_is_there(root):
    mount_slots(root, 8 * MIB)
    made = make(shimmed(root), "slot-0000", Share(A, GIB))
    assert mount_slots(root, 16 * MIB) == "resized"
    assert size_of(root) == 16 * MIB
    assert shimmed(root).read() == [made]


def test_slots_that_are_there_are_not_hidden(root):
    slots = shimmed(root)
    made = make(slots, "slot-0000", Share(A, GIB))
    assert mount_slots(root, 8 * MIB) == "in use"
    assert (has_own_tmpfs(root), slots.read()) == (False, [made])
    assert slots.remove(made)
    assert mount_slots(root, 8 * MIB) == "mounted"


def test_what_cannot_be_mounted_is_said_with_what_to_do(root):
    said = r"a tmpfs of 8Mi cannot be mounted at .*: Invalid argument.*slots_size"
    with pytest.raises(CotenantError, match=said):
        mount_slots(root, 8 * MIB, "no:such:context_t:s0")


@pytest.mark.parametrize("label", ['a:b:c",size=9', "container_file_t", "a:b:c:s0 d", "x" * 10])
def test_a_label_is_an_selinux_context(label):
    with pytest.raises(BadInput, match="slots_label"):
        AgentSettings(slots_label=label)
    AgentSettings(slots_label="system_u:object_r:container_file_t:s0:c1,c2")


@pytest.mark.parametrize(
    ("line", "own"),
    [
        ("36 35 0:31 / /run/cotenant rw - tmpfs cotenant rw,size=1024k", True),
        ("36 35 0:31 / /run/cotenant rw master:1 shared:2 - tmpfs cotenant rw", True),
        ("36 35 0:25 /cotenant /run/cotenant rw master:1 - tmpfs tmpfs rw", False),
        ("36 35 0:25 / /run rw master:1 - tmpfs tmpfs rw", False),
        ("36 35 8:1 / /run/cotenant rw - ext4 /dev/sda1 rw", False),
    ],
    ids=["its own", "its own in a container", "a folder of the host's /run", "no mount", "a disk"],
)
def test_its_own_is_told_from_a_folder_of_another(tmp_path, line, own):
    (tmp_path / "mountinfo").write_text(f"35 1 8:1 / / rw - ext4 /dev/sda1 rw\n{line}\n")
    assert has_own_tmpfs("/run/cotenant", tmp_path / "mountinfo") is own

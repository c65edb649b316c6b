"""Whose a process is, its cgroup says, and nothing that it can write itself."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.kube.agent.cards.cgroups import (
    Owner,
    own_pid,
    owner_of_cgroup,
    owners_of_processes,
    owners_on_node,
)

UID = "0a1b2c3d-1111-2222-3333-444455556666"
OTHER = "ffffffff-1111-2222-3333-444455556666"
SLICE = UID.replace("-", "_")
ID = "9f" * 32


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods/burstable/pod{UID}/{ID}",
        f"/kubepods/besteffort/pod{UID}/{ID}",
        f"/kubepods/pod{UID}/{ID}",
        f"/own-root/kubepods/burstable/pod{UID}/{ID}",
        f"/kubepods/burstable/pod{UID}",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice/cri-containerd-{ID}.scope",
        f"/kubepods.slice/kubepods-pod{SLICE}.slice/crio-{ID}.scope/container",
        f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{SLICE}.slice/x",
        f"/docker/{ID}/kubelet/kubepods/burstable/pod{UID}/{ID}",
        # as seen from a cgroup namespace of its own
        f"/../../kubepods-besteffort-pod{SLICE}.slice/cri-containerd-{ID}.scope",
        f"/../../../burstable/pod{UID}/{ID}",
        f"/../../pod{UID}/{ID}",
        # the container ends, or makes groups below its own
        f"/kubepods/burstable/pod{UID}/{ID} (deleted)",
        f"/kubepods/burstable/pod{UID}/{ID}/kubepods/pod{OTHER}/x",
        f"/kubepods/burstable/pod{UID}/{ID}/user.slice",
        f"/kubepods/burstable/pod{UID}/{ID}/x\r0::/kubepods/pod{OTHER}/x",
        f"/kubepods/burstable/pod{UID}/{ID}/x\u20280::/kubepods/pod{OTHER}/x",
        f"/kubepods.slice/kubepods-pod{SLICE}.slice/cri.scope/kubepods-pod{OTHER.replace('-', '_')}.slice",
    ],
)
def test_a_process_of_a_pod_is_known_by_its_cgroup(path):
    def pod_of_cgroup(text):
        found = owner_of_cgroup(text)
        return found and found.uid

    assert pod_of_cgroup(f"0::{path}\n") == UID
    v1 = "\n".join(
        f"{at}:{name}:{path}" for at, name in enumerate(["cpu,cpuacct", "memory", "name=systemd"], 1)
    )
    assert pod_of_cgroup(v1 + "\n") == UID
    assert pod_of_cgroup(f"{v1}\n13:rdma:/\n0::/\n") == UID


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "0::/\n",
        "0::/system.slice/docker.service\n",
        f"0::/docker/{ID}\n",
        f"0::/user.slice/user-1000.slice/user@1000.service/kubepods/pod{UID}/x\n",
        f"0::/user.slice/user-1000.slice/user@1000.service/kubepods-pod{SLICE}.slice\n",
        f"0::/../../../user.slice/kubepods/pod{UID}\n",
        f"0::/system.slice/pod{UID}/x\n",
        f"0::/../../system.slice/pod{UID}/x\n",
        f"0::/kubepods/podX{UID}\n",
        f"0::/kubepods/pod{UID}x\n",
        f"0::/kubepods/pod{UID.upper()}\n",
        f"0::/kubepods/pod{SLICE}\n",
        f"0::/kubepods.slice/kubepods-pod{UID}.slice\n",
        f"0::/kubepods/burstable/other/pod{UID}\n",
        f"0::/kubepods/pod{ID[:32]}/{ID}\n",  # a static pod: the API server knows it by another UID
        f"0:kubepods/pod{UID}\n",
        f"x::/kubepods/pod{UID}\n",
        f"/kubepods/pod{UID}\n",
        f"1:memory:/kubepods/pod{UID}/x\n2:cpu:/kubepods/pod{OTHER}/x\n",
    ],
)
def test_whatever_else_is_no_pod(text):
    assert owner_of_cgroup(text) is None


@given(st.text(alphabet=st.sampled_from(f"{UID}pod/:_.\n0kubes-slice ")) | st.text())
def test_any_text_is_read(text):
    found = owner_of_cgroup(text)
    assert found is None or (found.uid in text.replace("_", "-") and found.cgroup in text)


def test_processes_are_looked_up_and_those_that_ended_are_left_out(tmp_path):
    for pid, text in ((1, "0::/init.scope\n"), (2, f"0::/kubepods/pod{UID}/x\n")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(text)
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "cgroup").write_bytes(b"0::/kubepods/\xff\xfe\n")
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "cgroup").write_bytes(f"0::/kubepods/pod{UID}/x\r0::/kubepods/pod{OTHER}\n".encode())
    owner = Owner(UID, "x")
    found = owners_of_processes([1, 2, 3, 4, 5], tmp_path)
    assert found == {1: None, 2: owner, 4: None, 5: Owner(UID, "x\r0::")}


@pytest.mark.parametrize(
    ("path", "cgroup"),
    [
        (f"/kubepods/burstable/pod{UID}/{ID}", ID),
        (f"/kubepods/burstable/pod{UID}/{ID} (deleted)", ID),
        (f"/kubepods/burstable/pod{UID}/{ID}/made/by/{OTHER}", ID),
        (f"/../../kubepods-pod{SLICE}.slice/cri-containerd-{ID}.scope/x", f"cri-containerd-{ID}.scope"),
        (f"/kubepods/burstable/pod{UID}", ""),
    ],
)
def test_the_container_of_a_process_is_the_cgroup_below_its_pod_s(path, cgroup):
    assert owner_of_cgroup(f"0::{path}\n") == Owner(UID, cgroup)
    assert owner_of_cgroup(f"1:cpu:/kubepods/pod{UID}\n2:memory:{path}\n") == Owner(UID, cgroup)


def test_the_containers_with_a_process_on_the_node_are_listed_without_the_reader_s_own_pod(tmp_path):
    of = {"self": OTHER, "1": OTHER, "2": UID, "3": UID}
    for pid, uid in of.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cgroup").write_text(f"0::/kubepods/pod{uid}/{ID}\n")
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "cgroup").write_text("0::/system.slice/sshd.service\n")
    assert owners_on_node(tmp_path) == {Owner(UID, ID)}
    assert owners_on_node(tmp_path / "missing") == frozenset()


@pytest.mark.parametrize(
    ("status", "pid"),
    [
        (b"Name:\tx\nNSpid:\t4711\t7\nThreads:\t1\n", 7),
        (b"NSpid:\t4711\n", 4711),
        (b"Name:\tx\n", 4711),
    ],
    ids=["in a container", "on the host", "a kernel without it"],
)
def test_a_process_knows_itself_by_its_innermost_pid(tmp_path, status, pid):
    (tmp_path / "4711").mkdir()
    (tmp_path / "4711" / "status").write_bytes(status)
    assert own_pid(4711, tmp_path) == pid
    assert own_pid(4712, tmp_path) is None
    assert own_pid(os.getpid()) == os.getpid()

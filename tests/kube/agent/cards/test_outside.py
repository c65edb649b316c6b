"""What no grant covers is outside; whose a process is, its cgroup tells and nothing that it can write itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.core.gpu import GPU
from cotenant.hardware.nvml import CardProcess, CardReading
from cotenant.kube.agent.cards.outside import NOISE, STEP, outside_of, pod_of_cgroup, pods_of_processes

GIB = 2**30
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
    assert pod_of_cgroup(text) is None


@given(st.text(alphabet=st.sampled_from(f"{UID}pod/:_.\n0kubes-slice ")) | st.text())
def test_any_text_is_read(text):
    found = pod_of_cgroup(text)
    assert found is None or found in text.replace("_", "-")


def test_processes_are_looked_up_and_those_that_ended_are_left_out(tmp_path):
    for pid, text in ((1, "0::/init.scope\n"), (2, f"0::/kubepods/pod{UID}/x\n")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(text)
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "cgroup").write_bytes(b"0::/kubepods/\xff\xfe\n")
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "cgroup").write_bytes(f"0::/kubepods/pod{UID}/x\r0::/kubepods/pod{OTHER}\n".encode())
    assert pods_of_processes([1, 2, 3, 4, 5], tmp_path) == {1: None, 2: UID, 4: None, 5: UID}


def card(*processes: tuple[int, int | None], used: int | None = None) -> CardReading:
    total = sum(size or 0 for _, size in processes) if used is None else used
    return CardReading(
        GPU("GPU-0", 0, "A100", 80 * GIB), total, tuple(CardProcess(pid, size) for pid, size in processes)
    )


def outside(reading, pods=None, granted=None, counted=None, before=None):
    return outside_of(reading, pods or {}, granted or {}, counted or {}, before).bytes


def test_an_idle_card_has_nothing_outside():
    assert outside(card()) == 0


def test_what_a_grant_covers_is_not_outside():
    assert outside(card((5, 4 * GIB), (6, GIB)), {5: UID, 6: UID}, {UID: 8 * GIB}) == 0


def test_what_a_pod_holds_beyond_its_grant_is_outside():
    assert outside(card((5, 4 * GIB), (6, 6 * GIB)), {5: UID, 6: UID}, {UID: 8 * GIB}) == 2 * GIB


def test_a_process_of_no_pod_is_outside():
    assert outside(card((5, 3 * GIB)), {5: None}) == 3 * GIB


def test_a_pod_without_a_grant_on_this_card_is_outside():
    assert outside(card((5, 3 * GIB), (6, GIB)), {5: OTHER, 6: UID}, {UID: GIB}) == 3 * GIB


def test_it_is_rounded_up_so_that_it_seldom_changes():
    assert outside(card((5, 1)), {5: None}) == STEP
    assert outside(card((5, GIB + 1)), {5: None}) == GIB + STEP
    assert outside(card((5, GIB + STEP)), {5: None}) == GIB + STEP


def test_a_process_that_ended_meanwhile_is_not_counted():
    assert outside(card((5, 3 * GIB), (6, GIB)), {6: UID}, {UID: GIB}) == 0


def test_memory_that_no_process_answers_for_counts_when_it_is_seen_twice():
    reading = card((5, 4 * GIB), used=5 * GIB)
    first = outside_of(reading, {5: UID}, {UID: 4 * GIB}, {}, 0)
    assert (first.bytes, first.unexplained) == (0, GIB)
    assert outside_of(reading, {5: UID}, {UID: 4 * GIB}, {}, first.unexplained).bytes == GIB
    assert outside_of(reading, {5: UID}, {UID: 4 * GIB}, {}, None).bytes == GIB, "nothing is known yet"


def test_a_few_mib_on_a_card_that_nobody_uses_are_noise():
    assert outside(card(used=NOISE)) == 0
    assert outside(card(used=NOISE + 1)) == NOISE + STEP
    assert outside(card(used=NOISE), granted={UID: GIB}) == NOISE, "a grant cannot have them"


def test_where_the_driver_does_not_tell_processes_the_slots_do():
    reading = card((5, None), (6, None), used=10 * GIB)
    assert outside(reading, {5: UID, 6: None}, {UID: 8 * GIB}, {UID: 7 * GIB}) == 3 * GIB
    assert outside(reading, {5: UID}, {UID: 4 * GIB}, {UID: 7 * GIB}) == 6 * GIB, "no more than the grant"
    assert outside(reading, {5: UID}, {}, {UID: 7 * GIB}) == 10 * GIB
    assert outside(card((5, None), used=GIB), {5: UID}, {UID: 4 * GIB}, {UID: 2 * GIB}) == 0


sizes = st.integers(min_value=0, max_value=100 * GIB)
owners = st.sampled_from([UID, OTHER, None])


@given(
    st.lists(st.tuples(sizes, owners), max_size=6),
    st.dictionaries(st.sampled_from([UID, OTHER]), sizes),
    sizes,
    st.none() | sizes,
)
def test_outside_and_what_grants_cover_explain_all_that_is_in_use(processes, granted, more, before):
    told = [(pid, size) for pid, (size, _) in enumerate(processes)]
    reading = card(*told, used=sum(size for _, size in told) + more)
    pods = {pid: owner for pid, (_, owner) in enumerate(processes)}
    found = outside_of(reading, pods, granted, {}, before)
    assert found.bytes >= 0
    assert found.bytes % STEP == 0
    assert found.unexplained == more
    strangers = sum(size for size, owner in processes if owner is None)
    assert found.bytes >= strangers
    assert found.bytes < reading.used + STEP
    if before is None and more > NOISE:
        assert found.bytes + sum(granted.values()) >= reading.used

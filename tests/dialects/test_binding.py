"""What a bound pod and its containers find: names and values as the guides of each system print them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

import pytest
from dialects.spelling import GI, MI, gpu, read

from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.dialects.aliyun import Aliyun
from cotenant.dialects.binding import bind_annotations, environment
from cotenant.dialects.dialect import ContainerDemand, SlotDemand
from cotenant.dialects.nvidia import Nvidia
from cotenant.dialects.pod_grant import PodGrant, SlotGrant, read_grant
from cotenant.dialects.registry import Dialects
from cotenant.dialects.volcano import Volcano

UID = "0b8a4f7e-6a7e-4c8e-9d5b-3f1a2b3c4d5e"
NOW = 1593764466550835304
MIB = Dialects(aliyun=Aliyun(unit="MiB"), nvidia=Nvidia(enabled=True))


def slot(*members: ContainerDemand | None, position: int = 0) -> SlotDemand:
    present = tuple(member for member in members if member is not None)
    assert len(present) == len(members)
    return SlotDemand(present[-1].container, position, present[-1].demand, present)


def found(
    slots: Sequence[SlotDemand],
    shares: Sequence[Sequence[Share]],
    gpus: Sequence[GPU],
    dialects: Dialects = MIB,
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """The pod's annotations, and each container's environment as the downward API gives it."""
    grant = PodGrant(
        UID,
        tuple(
            SlotGrant(one.container, tuple(given), tuple(m.container for m in one.members[:-1]))
            for one, given in zip(slots, shares, strict=True)
        ),
    )
    annotations = bind_annotations(slots, grant, {each.uuid: each for each in gpus}, NOW, dialects)
    assert read_grant(annotations["cotenant.dev/grant"], UID) == grant
    env = {
        member.container: {
            variable.name: variable.value
            if variable.annotation is None
            else annotations[variable.annotation]  # a missing one would be a broken promise
            for variable in environment(one, member, dialects)
        }
        for one in slots
        for member in one.members
    }
    return annotations, {name: {key: str(value) for key, value in each.items()} for name, each in env.items()}


def test_volcanos_guide() -> None:
    asked = read({"volcano.sh/gpu-memory": 1024}, MIB, container="cuda-container")
    annotations, env = found([slot(asked)], [[Share("GPU-0", GI)]], [gpu(0, 11178 * MI)])
    assert env["cuda-container"] == {
        "VOLCANO_GPU_MEMORY_TOTAL": "11178",
        "VOLCANO_GPU_ALLOCATED": "1024",
        "NVIDIA_VISIBLE_DEVICES": "0",
    }
    assert annotations["volcano.sh/gpu-index"] == "0"
    assert annotations["volcano.sh/predicate-time"] == "1593764466550835304"
    assert annotations["volcano.sh/gpu-assigned"] == "true"
    assert not any("ALIYUN" in key for key in annotations)


def test_volcanos_guide_to_gpu_number() -> None:
    asked = read({"volcano.sh/gpu-number": 2}, MIB)
    cards = [gpu(0, 11178 * MI), gpu(1, 11178 * MI)]
    whole = [Share(each.uuid, each.memory, whole=True) for each in cards]
    annotations, env = found([slot(asked)], [whole], cards)
    assert env["main"]["NVIDIA_VISIBLE_DEVICES"] == "0,1"
    assert env["main"]["VOLCANO_GPU_ALLOCATED"] == "2"
    assert annotations["volcano.sh/gpu-index"] == "0,1"


def test_volcanos_factor_does_not_change_what_programs_see() -> None:
    tens = Dialects(volcano=Volcano(memory_factor=10))
    asked = read({"volcano.sh/gpu-memory": 100}, tens)
    _, env = found([slot(asked)], [[Share("GPU-0", 1000 * MI)]], [gpu(0, 11178 * MI)], tens)
    assert env["main"]["VOLCANO_GPU_ALLOCATED"] == "1000"
    assert env["main"]["VOLCANO_GPU_MEMORY_TOTAL"] == "11178"


def test_aliyuns_guide() -> None:
    asked = read({"aliyun.com/gpu-mem": 3803}, MIB, container="binpack-1")
    annotations, env = found([slot(asked)], [[Share("GPU-0", 3803 * MI)]], [gpu(0, 7606 * MI)])
    assert env["binpack-1"] == {
        "NVIDIA_VISIBLE_DEVICES": "0",
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_POD": "3803",
        "ALIYUN_COM_GPU_MEM_CONTAINER": "3803",
        "ALIYUN_COM_GPU_MEM_DEV": "7606",
    }
    assert {key: text for key, text in annotations.items() if "cotenant" not in key} == {
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "ALIYUN_COM_GPU_MEM_DEV": "7606",
        "ALIYUN_COM_GPU_MEM_POD": "3803",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1593764466550835304",
        "scheduler.framework.gpushare.allocation": '{"0":{"0":3803}}',
    }


def test_aliyun_in_gib() -> None:
    gib = Dialects()
    asked = read({"aliyun.com/gpu-mem": 3}, gib)
    annotations, env = found([slot(asked)], [[Share("GPU-1", 3 * GI)]], [gpu(1, 7606 * MI)], gib)
    assert env["main"]["ALIYUN_COM_GPU_MEM_CONTAINER"] == "3"
    assert env["main"]["ALIYUN_COM_GPU_MEM_DEV"] == "7"
    assert annotations["scheduler.framework.gpushare.allocation"] == '{"0":{"1":3}}'


def test_aliyun_containers_on_two_cards_are_told_apart() -> None:
    one, two = (read({"aliyun.com/gpu-mem": size}, MIB, container=f"c{size}") for size in (1000, 2000))
    annotations, env = found(
        [slot(one), slot(two, position=1)],
        [[Share("GPU-1", 1000 * MI)], [Share("GPU-0", 2000 * MI)]],
        [gpu(0, 16000 * MI), gpu(1, 8000 * MI)],
    )
    assert env["c1000"]["NVIDIA_VISIBLE_DEVICES"] == env["c1000"]["ALIYUN_COM_GPU_MEM_IDX"] == "1"
    assert env["c2000"]["NVIDIA_VISIBLE_DEVICES"] == env["c2000"]["ALIYUN_COM_GPU_MEM_IDX"] == "0"
    assert env["c1000"]["ALIYUN_COM_GPU_MEM_DEV"] == "8000"
    assert env["c2000"]["ALIYUN_COM_GPU_MEM_DEV"] == "16000"
    assert env["c1000"]["ALIYUN_COM_GPU_MEM_POD"] == env["c2000"]["ALIYUN_COM_GPU_MEM_POD"] == "3000"
    assert annotations["ALIYUN_COM_GPU_MEM_IDX"] == "0,1"
    assert annotations["scheduler.framework.gpushare.allocation"] == '{"0":{"1":1000},"1":{"0":2000}}'


def decoded_as_upstream_does(text: str) -> Mapping[int, int]:
    """`kubectl inspect gpushare` decodes map[int]map[string]int and adds up each card."""
    cards: dict[int, int] = {}
    for container, memory in json.loads(text).items():
        int(container)
        for index, amount in memory.items():
            cards[int(index)] = cards.get(int(index), 0) + amount
    return cards


def test_an_aliyun_container_on_several_cards() -> None:
    asked = read({"aliyun.com/gpu-mem": 3}, MIB, annotations={"gpu-count.cotenant.dev/main": "2"})
    assert asked is not None
    half = asked.demand.per_card(0)
    annotations, env = found(
        [slot(asked)],
        [[Share("GPU-3", half), Share("GPU-0", half)]],
        [gpu(0, 16000 * MI), gpu(3, 8000 * MI)],
    )
    assert env["main"]["NVIDIA_VISIBLE_DEVICES"] == "0,3"
    assert env["main"]["ALIYUN_COM_GPU_MEM_DEV"] == "8000"
    assert decoded_as_upstream_does(annotations["scheduler.framework.gpushare.allocation"]) == {0: 2, 3: 2}


def test_native_pods_get_uuids_and_compute() -> None:
    asked = read({"cotenant.dev/gpu-memory": "4Gi", "cotenant.dev/gpu-compute": "30"})
    annotations, env = found([slot(asked)], [[Share("GPU-0", 4 * GI, 30)]], [gpu(0, 80 * GI)])
    assert env["main"] == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-0",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
    }
    assert annotations["devices.cotenant.dev/main"] == "GPU-0"
    assert annotations["compute.cotenant.dev/main"] == "30"
    assert set(annotations) == {
        "cotenant.dev/grant",
        "devices.cotenant.dev/main",
        "compute.cotenant.dev/main",
        "mps-memory.cotenant.dev/main",
    }


def test_nvidia_pods_get_uuids() -> None:
    asked = read({"nvidia.com/gpu": 1}, MIB)
    _, env = found([slot(asked)], [[Share("GPU-0", 80 * GI, whole=True)]], [gpu(0, 80 * GI)])
    assert env["main"] == {"NVIDIA_VISIBLE_DEVICES": "GPU-0"}


def test_a_mig_instance_goes_by_its_uuid_in_every_dialect() -> None:
    """Index 0 is the whole card to NVIDIA's runtime: the container would see its neighbours."""
    instance = gpu(0, 10 * GI, parent="GPU-whole")
    for limits in ({"volcano.sh/gpu-memory": 1024}, {"aliyun.com/gpu-mem": 1024}):
        _, env = found([slot(read(limits, MIB))], [[Share("GPU-0", GI)]], [instance])
        assert env["main"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-0"


@pytest.mark.parametrize("limits", [{"volcano.sh/gpu-memory": 1024}, {"aliyun.com/gpu-mem": 1024}])
def test_beside_mig_instances_a_whole_card_goes_by_its_uuid(limits: Mapping[str, object]) -> None:
    """Instances shift every count of the node's cards: an index would show a stranger's card."""
    cards = [gpu(2, 10 * GI, parent="GPU-cut"), gpu(3, 10 * GI, parent="GPU-cut"), gpu(1, 80 * GI)]
    _, env = found([slot(read(limits, MIB))], [[Share("GPU-1", GI)]], cards)
    assert env["main"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"


def test_a_pod_in_three_dialects_finds_all_of_them() -> None:
    asked = [
        read({"aliyun.com/gpu-mem": 1024}, MIB, container="a"),
        read({"volcano.sh/gpu-memory": 1024}, MIB, container="v"),
        read({"cotenant.dev/gpu-memory": "1Gi"}, MIB, container="n"),
    ]
    annotations, env = found(
        [slot(each, position=at) for at, each in enumerate(asked)],
        [[Share("GPU-0", GI)]] * 3,
        [gpu(0, 80 * GI)],
    )
    assert [env[name]["NVIDIA_VISIBLE_DEVICES"] for name in "avn"] == ["0", "0", "GPU-0"]
    assert annotations["ALIYUN_COM_GPU_MEM_POD"] == "1024"
    assert annotations["volcano.sh/gpu-index"] == "0"


def test_an_init_container_speaks_its_own_dialect_in_anothers_slot() -> None:
    first = read({"aliyun.com/gpu-mem": 1024}, MIB, container="first")
    main = read({"cotenant.dev/gpu-memory": "4Gi"}, MIB, container="main")
    annotations, env = found([slot(first, main)], [[Share("GPU-0", 4 * GI)]], [gpu(0, 80 * GI)])
    assert env["first"]["NVIDIA_VISIBLE_DEVICES"] == "0"
    assert env["first"]["ALIYUN_COM_GPU_MEM_CONTAINER"] == "1024"
    assert env["first"]["ALIYUN_COM_GPU_MEM_POD"] == "4096"
    assert env["main"] == {"NVIDIA_VISIBLE_DEVICES": "GPU-0"}
    assert decoded_as_upstream_does(annotations["scheduler.framework.gpushare.allocation"]) == {0: 4096}


ANNOTATION = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


@pytest.mark.parametrize("name", ["x" * 63, "a", "0", "a-b", "9" * 63])
def test_every_annotation_has_a_name_that_the_api_server_takes(name: str) -> None:
    """The same rule holds for the keys that the downward API refers to."""
    limits = {"aliyun.com/gpu-mem": 1, "volcano.sh/gpu-memory": 1, "cotenant.dev/gpu-memory": "1Gi"}
    for resource, amount in limits.items():
        annotations, _ = found(
            [slot(read({resource: amount}, MIB, container=name))], [[Share("GPU-0", GI)]], [gpu(0, GI)]
        )
        for key, text in annotations.items():
            assert ANNOTATION.fullmatch(key), key
            assert len(key.split("/")[0]) <= 253
            assert isinstance(text, str)


def test_what_is_written_at_bind_may_be_written_by_the_server_alone() -> None:
    for resource in ("aliyun.com/gpu-mem", "volcano.sh/gpu-memory", "cotenant.dev/gpu-memory"):
        annotations, _ = found([slot(read({resource: GI}, MIB))], [[Share("GPU-0", GI)]], [gpu(0, GI)])
        assert all(MIB.only_server_writes(key) for key in annotations)
    for free in (
        "cotenant.dev/gpu-model",
        "gpu-count.cotenant.dev/main",
        "cotenant.dev/enforce",
        "volcano.sh/other",
    ):
        assert not MIB.only_server_writes(free)

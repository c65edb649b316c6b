"""How a container finds the MPS of its node, and when it is left alone."""

from __future__ import annotations

import pytest
from kube.admitted import admitted, environment
from kube.builders import container, pod

PIPE = "CUDA_MPS_PIPE_DIRECTORY"
OURS = "/run/cotenant/slot/mps"


def test_a_container_that_asks_for_compute_reads_its_own_annotations_and_finds_the_nodes_mps() -> None:
    mutation = admitted(pod(container("a", memory="1Gi", compute="30"), container("b", memory="2Gi")))
    assert environment(mutation, "a") == {
        "NVIDIA_VISIBLE_DEVICES": {"from": "devices.cotenant.dev/a"},
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": {"from": "compute.cotenant.dev/a"},
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": {"from": "mps-memory.cotenant.dev/a"},
        PIPE: OURS,
    }
    assert environment(mutation, "b") == {"NVIDIA_VISIBLE_DEVICES": {"from": "devices.cotenant.dev/b"}}
    assert mutation.warnings == ()


def test_what_an_author_sets_himself_is_replaced_where_it_is_ours_to_say() -> None:
    own = container("a", memory="1Gi", compute="30")
    own["env"] = [
        {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": "100"},
        {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "0=80G"},
    ]
    found = environment(admitted(pod(own)), "a")
    assert found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == {"from": "compute.cotenant.dev/a"}
    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == {"from": "mps-memory.cotenant.dev/a"}


def test_an_author_who_says_where_mps_is_keeps_that() -> None:
    own = container("a", memory="1Gi", compute="30")
    own["env"] = [{"name": PIPE, "value": "/mine"}]
    mutation = admitted(pod(own))
    assert environment(mutation, "a")[PIPE] == "/mine"
    assert "only if the MPS daemon runs that the container itself names" in mutation.warnings[0]
    own = container("a", memory="1Gi", compute="30")
    own["volumeMounts"] = [{"name": "mps", "mountPath": "/tmp/nvidia-mps/"}]
    assert PIPE not in environment(admitted(pod(own)), "a")


@pytest.mark.parametrize("path", ["/dev/shm", "/dev/shm/", "//dev/shm", "dev/shm", "/dev/../dev/shm"])
def test_shared_memory_of_its_own_keeps_a_container_from_mps_and_that_is_said(path: str) -> None:
    own = container("a", memory="1Gi", compute="30")
    own["volumeMounts"] = [{"name": "shm", "mountPath": path}]
    mutation = admitted(pod(own))
    assert PIPE not in environment(mutation, "a")
    (warning,) = mutation.warnings
    assert "container 'a': cotenant.dev/gpu-compute is counted, and not enforced" in warning


def test_admitted_twice_is_admitted_once() -> None:
    first = admitted(pod(container("a", memory="1Gi", compute="30")))
    assert admitted(first.pod).patch == []

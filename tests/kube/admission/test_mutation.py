"""What admission makes of a pod."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kube.admitted import ALL, FORGED, admitted, amounts, containers, environment
from kube.builders import (
    COMPUTE,
    MEMORY,
    SLOT,
    WHOLE,
    container,
    pod,
)

from cotenant.core.errors import BadInput
from cotenant.kube.admission.mutation import mutate
from cotenant.kube.admission.settings import AdmissionSettings


def test_a_native_container_gets_a_slot_and_sees_its_cards_through_its_own_annotation() -> None:
    mutation = admitted(pod(container("main", memory="4Gi")))
    assert amounts(mutation, "main") == {MEMORY: "4Gi", SLOT: "1"}
    assert containers(mutation)["main"]["env"] == [
        {
            "name": "NVIDIA_VISIBLE_DEVICES",
            "valueFrom": {
                "fieldRef": {
                    "apiVersion": "v1",
                    "fieldPath": "metadata.annotations['devices.cotenant.dev/main']",
                }
            },
        }
    ]
    assert mutation.pod["spec"]["schedulerName"] == "cotenant"
    assert "runtimeClassName" not in mutation.pod["spec"]
    assert "hostPath" not in json.dumps(mutation.pod)


def test_volcanos_guide_runs_unchanged() -> None:
    body = pod(
        {
            "name": "cuda-container",
            "image": "nvidia/cuda:9.0-devel",
            "command": ["sleep"],
            "args": ["100000"],
            "resources": {"limits": {"volcano.sh/gpu-memory": 1024}},
        },
        schedulerName="volcano",
    )
    mutation = admitted(body)
    assert amounts(mutation, "cuda-container") == {MEMORY: "1Gi", SLOT: "1"}
    assert environment(mutation, "cuda-container") == {
        "NVIDIA_VISIBLE_DEVICES": {"from": "devices.cotenant.dev/cuda-container"},
        "VOLCANO_GPU_ALLOCATED": "1024",
        "VOLCANO_GPU_MEMORY_TOTAL": {"from": "card-memory.cotenant.dev/cuda-container"},
    }
    assert mutation.pod["spec"]["schedulerName"] == "cotenant"
    assert mutation.warnings == ()


def test_aliyuns_guide_runs_unchanged() -> None:
    mutation = admitted(pod(container("binpack-1", **{"aliyun.com/gpu-mem": 3803})))
    assert amounts(mutation, "binpack-1") == {MEMORY: "3803Mi", SLOT: "1"}
    assert environment(mutation, "binpack-1") == {
        "NVIDIA_VISIBLE_DEVICES": {"from": "devices.cotenant.dev/binpack-1"},
        "ALIYUN_COM_GPU_MEM_IDX": {"from": "devices.cotenant.dev/binpack-1"},
        "ALIYUN_COM_GPU_MEM_POD": {"from": "ALIYUN_COM_GPU_MEM_POD"},
        "ALIYUN_COM_GPU_MEM_CONTAINER": "3803",
        "ALIYUN_COM_GPU_MEM_DEV": {"from": "card-memory.cotenant.dev/binpack-1"},
    }


def test_cards_asked_for_in_a_dialect_count_as_native_cards() -> None:
    mutation = admitted(
        pod(container("a", **{"volcano.sh/gpu-number": 2}), container("b", **{"nvidia.com/gpu": "1"}))
    )
    assert amounts(mutation, "a") == {WHOLE: "2", SLOT: "1"}
    assert amounts(mutation, "b") == {WHOLE: "1", SLOT: "1"}


def test_compute_is_told_to_mps() -> None:
    mutation = admitted(pod(container("main", memory="4Gi", compute="30")))
    env = environment(mutation, "main")
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == {"from": "compute.cotenant.dev/main"}


def test_the_holder_asks_for_what_its_slot_is_worth() -> None:
    """Kubernetes counts max(largest init container, sum of containers): 10Gi here; the slots are charged 16Gi."""
    body = pod(
        container("a", memory="4Gi"),
        container("b", memory="6Gi"),
        init=[container("big", memory="10Gi", compute="50")],
    )
    mutation = admitted(body)
    assert amounts(mutation, "big") == {MEMORY: "10Gi", COMPUTE: "50", SLOT: "1"}
    assert amounts(mutation, "a") == {MEMORY: "10Gi", COMPUTE: "50", SLOT: "1"}
    assert amounts(mutation, "b") == {MEMORY: "6Gi", SLOT: "1"}
    for name in ("big", "a"):
        assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" in environment(mutation, name)


def test_the_authors_figure_stays_if_it_is_the_largest() -> None:
    """10Gi over three cards is two bytes more when it is rounded up on each."""
    body = pod(
        container("main", memory="10Gi"),
        init=[container("fetch", memory="1Gi")],
        annotations={"gpu-count.cotenant.dev/main": "3"},
    )
    assert amounts(admitted(body), "main")[MEMORY] == "10Gi"


def test_the_holder_is_spread_over_as_many_cards_as_its_slot() -> None:
    body = pod(
        container("main", memory="4Gi"),
        init=[container("fetch", memory="20Gi")],
        annotations={"gpu-count.cotenant.dev/fetch": "2"},
    )
    mutation = admitted(body)
    assert amounts(mutation, "main")[MEMORY] == "20Gi"
    assert mutation.pod["metadata"]["annotations"] == {
        "gpu-count.cotenant.dev/fetch": "2",
        "gpu-count.cotenant.dev/main": "2",
    }


def test_an_init_only_pod_gives_its_first_container_the_slot() -> None:
    mutation = admitted(pod(container("main"), container("other"), init=[container("fetch", memory="3Gi")]))
    assert amounts(mutation, "main") == {MEMORY: "3Gi", SLOT: "1"}
    assert environment(mutation, "main") == {
        "NVIDIA_VISIBLE_DEVICES": {"from": "devices.cotenant.dev/main"},
    }
    assert environment(mutation, "fetch") == {
        "NVIDIA_VISIBLE_DEVICES": {"from": "devices.cotenant.dev/fetch"},
    }


def test_the_other_containers_of_a_gpu_pod_see_no_card() -> None:
    """An image that says NVIDIA_VISIBLE_DEVICES=all would see them all under the pod's runtime class."""
    curious = {**container("curious"), "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    mutation = admitted(pod(container("main", memory="4Gi"), container("plain"), curious))
    assert environment(mutation, "plain") == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert environment(mutation, "curious") == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert "resources" not in containers(mutation)["plain"]


def test_ours_replace_the_authors_variables_and_stand_in_front() -> None:
    main = container("main", memory="4Gi")
    main["env"] = [
        {"name": "FIRST", "value": "1"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "SEES", "value": "$(NVIDIA_VISIBLE_DEVICES)"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "0,1"},
    ]
    mutation = admitted(pod(main))
    assert [each["name"] for each in containers(mutation)["main"]["env"]] == [
        "NVIDIA_VISIBLE_DEVICES",
        "FIRST",
        "SEES",
    ]
    assert environment(mutation, "main")["NVIDIA_VISIBLE_DEVICES"] == {"from": "devices.cotenant.dev/main"}


@pytest.mark.parametrize("name", ["main", "plain"])
def test_a_second_value_behind_ours_would_win_and_is_taken_out(name: str) -> None:
    mutation = admitted(pod(container("main", memory="4Gi"), container("plain")))
    right = environment(mutation, name)
    containers(mutation)[name]["env"].append({"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"})
    again = admitted(mutation.pod)
    assert len(containers(again)[name]["env"]) == 1
    assert environment(again, name) == right


def test_ours_stay_where_another_webhook_moved_them() -> None:
    mutation = admitted(pod(container("main", **{"aliyun.com/gpu-mem": 1024})))
    env = mutation.pod["spec"]["containers"][0]["env"]
    env.reverse()
    env.insert(2, {"name": "INJECTED", "value": "x"})
    assert admitted(mutation.pod).patch == []


def test_grants_that_a_pod_brings_along_are_taken_from_it() -> None:
    body = pod(
        container("main", memory="4Gi"),
        annotations={**FORGED, "cotenant.dev/gpu-model": "A100", "a/~b": "kept"},
    )
    mutation = admitted(body)
    assert mutation.pod["metadata"]["annotations"] == {"cotenant.dev/gpu-model": "A100", "a/~b": "kept"}


def test_a_pod_without_gpu_is_untouched() -> None:
    body = pod(
        {**container("main"), "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]},
        nodeName="node-1",
        schedulerName="volcano",
        annotations={"volcano.sh/gpu-index": "7", "a": "b"},
    )
    mutation = admitted(body, AdmissionSettings(runtime_class="nvidia"))
    assert mutation.patch == []
    assert mutation.pod == body
    assert mutation.demand.slots == ()


def test_a_pod_without_gpu_does_not_keep_a_forged_grant() -> None:
    """The ledger is rebuilt from grants: one that nobody gave must not be there."""
    mutation = admitted(pod(container("main"), annotations={**FORGED, "a": "b"}))
    assert not any("cotenant.dev/" in key for key in mutation.pod["metadata"]["annotations"])
    assert mutation.pod["metadata"]["annotations"]["volcano.sh/gpu-index"] == "7"
    assert mutation.pod["spec"] == pod(container("main"))["spec"]


def test_a_gpu_pod_that_names_its_node_is_refused() -> None:
    with pytest.raises(
        BadInput, match=r"spec.nodeName: 'node-1': .*leave it out, and choose nodes by nodeSelector"
    ):
        mutate(pod(container("main", memory="4Gi"), nodeName="node-1"), AdmissionSettings(), ALL)


@pytest.mark.parametrize(
    ("named", "ours", "result", "warned"),
    [
        (None, "cotenant", "cotenant", False),
        ("default-scheduler", "cotenant", "cotenant", False),
        ("volcano", "cotenant", "cotenant", False),
        ("cotenant", "cotenant", "cotenant", False),
        ("their-own", "cotenant", "their-own", True),
        ("volcano", "default-scheduler", "default-scheduler", False),
        (None, "default-scheduler", None, False),
    ],
)
def test_the_scheduler(named: str | None, ours: str, result: str | None, warned: bool) -> None:
    spec = {} if named is None else {"schedulerName": named}
    mutation = admitted(pod(container("main", memory="4Gi"), **spec), AdmissionSettings(scheduler=ours))
    assert mutation.pod["spec"].get("schedulerName") == result
    assert bool(mutation.warnings) is warned
    assert all("'their-own' is kept" in warning for warning in mutation.warnings)


def test_the_runtime_class_is_set_where_it_is_configured_and_none_is_named() -> None:
    nvidia = AdmissionSettings(runtime_class="nvidia")
    assert admitted(pod(container("a", memory="1Gi")), nvidia).pod["spec"]["runtimeClassName"] == "nvidia"
    kata = pod(container("a", memory="1Gi"), runtimeClassName="kata")
    assert admitted(kata, nvidia).pod["spec"]["runtimeClassName"] == "kata"


@pytest.mark.parametrize(
    "path",
    [
        "/etc/ld.so.preload",
        "/run/cotenant/slot",
        "//run/cotenant",
        "/var/run/cotenant/lib",
        "/run/x/../cotenant",
    ],
)
def test_a_mount_over_the_limit_is_refused(path: str) -> None:
    body = container("main", memory="4Gi") | {"volumeMounts": [{"name": "v", "mountPath": path}]}
    with pytest.raises(BadInput, match=r"container 'main': volumeMounts: .*choose another path"):
        mutate(pod(body), AdmissionSettings(), ALL)


@pytest.mark.parametrize("path", ["/etc", "/run", "/run/cotenantx", "/data/etc/ld.so.preload", 7, None])
def test_other_mounts_are_left_alone(path: Any) -> None:
    body = container("main", memory="4Gi") | {"volumeMounts": [{"name": "v", "mountPath": path}]}
    assert containers(admitted(pod(body)))["main"]["volumeMounts"] == body["volumeMounts"]


@pytest.mark.parametrize("env", ["x", {"a": 1}, [1], ["x"]])
def test_an_environment_that_is_none_is_refused(env: Any) -> None:
    with pytest.raises(BadInput, match=r"container 'main': env: this must be"):
        mutate(pod({**container("main", memory="1Gi"), "env": env}), AdmissionSettings(), ALL)


def test_names_of_any_kind_in_an_environment_do_no_harm() -> None:
    odd = [{"name": ["NVIDIA_VISIBLE_DEVICES"]}, {"name": {}}, {"name": None}, {}]
    mutation = admitted(pod({**container("main", memory="1Gi"), "env": odd}))
    assert mutation.pod["spec"]["containers"][0]["env"][1:] == odd


def test_deeply_nested_parts_that_are_none_of_ours_do_no_harm() -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"x": deep}
    body = pod(container("main", memory="1Gi"), volumes=deep)
    assert [operation["path"] for operation in mutate(body, AdmissionSettings(), ALL).patch] == [
        "/spec/containers/0/resources/limits/cotenant.dev~1gpu-slot",
        "/spec/containers/0/resources/requests",
        "/spec/containers/0/env",
        "/spec/schedulerName",
    ]

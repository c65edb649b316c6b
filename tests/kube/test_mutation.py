"""What admission makes of a pod."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kube.pods import (
    COMPUTE,
    GI,
    MEMORY,
    SLOT,
    WHOLE,
    applied,
    container,
    counted_by_kubernetes,
    defaulted,
    json_values,
    pod,
    slots,
)

from cotenant.core.errors import BadInput
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.dialects.aliyun import Aliyun
from cotenant.dialects.binding import bind_annotations
from cotenant.dialects.nvidia import Nvidia
from cotenant.dialects.pod_grant import PodGrant, SlotGrant
from cotenant.dialects.quantity import parse_whole
from cotenant.dialects.registry import Dialects
from cotenant.kube.mutation import Mutation, mutate
from cotenant.kube.settings import Admission

ALL = Dialects(aliyun=Aliyun(unit="MiB"), nvidia=Nvidia(enabled=True))


def admitted(body: dict[str, Any], admission: Admission | None = None, dialects: Dialects = ALL) -> Mutation:
    """The mutation, after checking what holds for every one of them."""
    before = copy.deepcopy(body)
    mutation = mutate(body, admission or Admission(), dialects)
    assert body == before, "the pod that came stays as it is"
    assert applied(body, json.loads(json.dumps(mutation.patch))) == mutation.pod
    return mutation


def containers(mutation: Mutation) -> dict[str, dict[str, Any]]:
    spec = mutation.pod["spec"]
    return {each["name"]: each for each in (*spec.get("initContainers", ()), *spec["containers"])}


def amounts(mutation: Mutation, name: str) -> dict[str, Any]:
    resources = containers(mutation)[name]["resources"]
    ours = {key: value for key, value in resources["limits"].items() if key.startswith("cotenant.dev/")}
    assert ours == {key: value for key, value in resources["requests"].items() if key in ours}
    return ours


def environment(mutation: Mutation, name: str) -> dict[str, Any]:
    """By name: a value, or the annotation that it is read from."""
    found = {}
    for each in containers(mutation)[name].get("env", ()):
        assert not isinstance(found.get(each["name"]), dict), "each of ours stands there once"
        path = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        found[each["name"]] = {"from": path[len("metadata.annotations['") : -2]} if path else each["value"]
    return found


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


FORGED = {
    "cotenant.dev/grant": '{"version":1}',
    "cotenant.dev/retry": "1",
    "devices.cotenant.dev/main": "all",
    "compute.cotenant.dev/main": "100",
    "card-memory.cotenant.dev/main": "1",
    "ALIYUN_COM_GPU_MEM_IDX": "0",
    "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
    "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1",
    "scheduler.framework.gpushare.allocation": "{}",
    "volcano.sh/gpu-index": "7",
    "volcano.sh/predicate-time": "1",
    "volcano.sh/gpu-assigned": "true",
}


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
    mutation = admitted(body, Admission(runtime_class="nvidia"))
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
        mutate(pod(container("main", memory="4Gi"), nodeName="node-1"), Admission(), ALL)


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
    mutation = admitted(pod(container("main", memory="4Gi"), **spec), Admission(scheduler=ours))
    assert mutation.pod["spec"].get("schedulerName") == result
    assert bool(mutation.warnings) is warned
    assert all("'their-own' is kept" in warning for warning in mutation.warnings)


def test_the_runtime_class_is_set_where_it_is_configured_and_none_is_named() -> None:
    nvidia = Admission(runtime_class="nvidia")
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
        mutate(pod(body), Admission(), ALL)


@pytest.mark.parametrize("path", ["/etc", "/run", "/run/cotenantx", "/data/etc/ld.so.preload", 7, None])
def test_other_mounts_are_left_alone(path: Any) -> None:
    body = container("main", memory="4Gi") | {"volumeMounts": [{"name": "v", "mountPath": path}]}
    assert containers(admitted(pod(body)))["main"]["volumeMounts"] == body["volumeMounts"]


@pytest.mark.parametrize("env", ["x", {"a": 1}, [1], ["x"]])
def test_an_environment_that_is_none_is_refused(env: Any) -> None:
    with pytest.raises(BadInput, match=r"container 'main': env: this must be"):
        mutate(pod({**container("main", memory="1Gi"), "env": env}), Admission(), ALL)


def test_names_of_any_kind_in_an_environment_do_no_harm() -> None:
    odd = [{"name": ["NVIDIA_VISIBLE_DEVICES"]}, {"name": {}}, {"name": None}, {}]
    mutation = admitted(pod({**container("main", memory="1Gi"), "env": odd}))
    assert mutation.pod["spec"]["containers"][0]["env"][1:] == odd


def test_deeply_nested_parts_that_are_none_of_ours_do_no_harm() -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"x": deep}
    body = pod(container("main", memory="1Gi"), volumes=deep)
    assert [operation["path"] for operation in mutate(body, Admission(), ALL).patch] == [
        "/spec/containers/0/resources/limits/cotenant.dev~1gpu-slot",
        "/spec/containers/0/resources/requests",
        "/spec/containers/0/env",
        "/spec/schedulerName",
    ]


@given(json_values)
def test_any_json_is_admitted_or_refused(body: Any) -> None:
    try:
        mutation = admitted(body)
    except BadInput:
        return
    assert admitted(mutation.pod).patch == []


@given(json_values)
def test_anything_beside_a_demand_is_admitted_or_refused(value: Any) -> None:
    main = container("main", memory="1Gi")
    for body in (
        pod({**main, "env": [value]}),
        pod({**main, "resources": {"limits": {MEMORY: "1Gi"}, "requests": value}}),
        pod(main, annotations=None, schedulerName=value, runtimeClassName=value, nodeName=value),
        {**pod(main), "metadata": value},
    ):
        try:
            mutation = admitted(body, Admission(runtime_class="nvidia"))
        except BadInput:
            continue
        assert admitted(mutation.pod, Admission(runtime_class="nvidia")).patch == []


names = st.sampled_from(["a", "b", "c", "d", "e", "x" * 63])
sizes = st.sampled_from([1, 2, 3, 1000, 2**20, GI, 4 * GI, 4 * GI + 1, 10**9])
asked = st.one_of(
    st.just({}),
    st.just({}),
    st.builds(lambda size: {MEMORY: str(size)}, sizes),
    st.builds(lambda size: {MEMORY: f"{size}Mi"}, st.integers(1, 9)),
    st.builds(lambda size, percent: {MEMORY: size, COMPUTE: percent}, sizes, st.integers(1, 100)),
    st.builds(lambda cards: {WHOLE: cards}, st.integers(0, 3)),
    st.builds(lambda size: {"aliyun.com/gpu-mem": size}, st.integers(0, 9000)),
    st.builds(lambda size: {"volcano.sh/gpu-memory": str(size)}, st.integers(1, 9000)),
    st.builds(lambda cards: {"volcano.sh/gpu-number": cards}, st.integers(1, 2)),
    st.builds(lambda cards: {"nvidia.com/gpu": cards}, st.integers(1, 2)),
)
variables = st.lists(
    st.builds(
        lambda name, value: {"name": name, "value": value},
        st.sampled_from(["A", "NVIDIA_VISIBLE_DEVICES", "VOLCANO_GPU_ALLOCATED", "ALIYUN_COM_GPU_MEM_DEV"]),
        st.sampled_from(["all", "0", ""]),
    ),
    max_size=3,
)


@st.composite
def any_container(draw: st.DrawFn, name: str, *, init: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"name": name}
    limits = {**draw(asked), **draw(st.sampled_from([{}, {"cpu": "1"}]))}
    if limits or draw(st.booleans()):
        body["resources"] = {"limits": limits}
        if draw(st.booleans()):
            body["resources"]["requests"] = dict(limits)
    if draw(st.booleans()):
        body["env"] = draw(variables)
    if init and draw(st.booleans()):
        body["restartPolicy"] = "Always"
    return body


@st.composite
def any_pod(draw: st.DrawFn) -> dict[str, Any]:
    chosen = draw(st.lists(names, min_size=1, max_size=6, unique=True))
    first = draw(st.integers(0, len(chosen) - 1))
    init = [draw(any_container(name, init=True)) for name in chosen[:first]]
    running = [draw(any_container(name, init=False)) for name in chosen[first:]]
    counts = {
        f"gpu-count.cotenant.dev/{each['name']}": str(draw(st.integers(1, 3)))
        for each in (*init, *running)
        if MEMORY in each.get("resources", {}).get("limits", {}) and draw(st.booleans())
    }
    forged = draw(st.sampled_from([{}, FORGED, {"mine": "1"}]))
    spec = draw(st.sampled_from([{}, {"schedulerName": "default-scheduler"}, {"schedulerName": "x"}]))
    body = pod(*running, init=init, annotations={**counts, **forged}, **spec)
    if draw(st.booleans()) and not body["metadata"]["annotations"]:
        body["metadata"] = draw(st.sampled_from([{}, None, {"annotations": None}]))
    return body


def canonical(body: Mapping[str, Any]) -> dict[str, Any]:
    """With every quantity of ours written as another text of the same value."""
    result: dict[str, Any] = copy.deepcopy(dict(body))
    spec = result["spec"]
    for each in (*(spec.get("initContainers") or ()), *spec["containers"]):
        for amounts_ in (each.get("resources") or {}).values():
            for key in amounts_:
                if key != "cpu":
                    amounts_[key] = f"{parse_whole(amounts_[key], key, '1')}000m"
    return result


def whole(text: object) -> int:
    return parse_whole(text, "it", "1")


@settings(max_examples=300, deadline=None)
@given(any_pod())
def test_every_pod(body: dict[str, Any]) -> None:
    admission = Admission(runtime_class="nvidia")
    try:
        mutation = admitted(body, admission)
    except BadInput as refused:
        message = str(refused)
        assert "they use one slot" in message or "cannot be spread" in message
        return

    assert admitted(mutation.pod, admission).patch == [], "the second time nothing changes"
    stored = defaulted(mutation.pod)
    assert [each for each in admitted(stored, admission).patch if mutation.demand.slots] == []
    assert admitted(canonical(stored), admission).patch == [], "nor if the figures are written otherwise"

    before, after = slots(body, ALL), slots(stored, ALL)
    assert [(slot.container, slot.demand) for slot in before.slots] == [
        (slot.container, slot.demand) for slot in after.slots
    ]
    assert [[member.container for member in slot.members] for slot in before.slots] == [
        [member.container for member in slot.members] for slot in after.slots
    ]
    assert counted_by_kubernetes(stored, SLOT, whole) == len(after.slots)
    assert counted_by_kubernetes(stored, WHOLE, whole) == after.whole
    assert counted_by_kubernetes(stored, MEMORY, whole) == sum(
        slot.demand.memory.bytes or 0 for slot in after.slots if slot.demand.memory
    )
    annotations = (mutation.pod.get("metadata") or {}).get("annotations") or {}
    if not after.slots:
        assert not any("cotenant.dev/" in key and "gpu-count" not in key for key in annotations)
        return
    assert not any(ALL.only_server_writes(key) for key in annotations)
    check_environment(mutation)


def check_environment(mutation: Mutation) -> None:
    """Every container sees its cards or none, and every annotation that it reads is written at bind."""
    users = {member.container for slot in mutation.demand.slots for member in slot.members}
    cards = {f"GPU-{index}": GPU(f"GPU-{index}", index, "T4", 2**50) for index in range(3)}
    grant = PodGrant(
        "uid",
        tuple(
            SlotGrant(
                slot.container,
                tuple(
                    Share(f"GPU-{index}", slot.demand.per_card(2**50), slot.demand.compute)
                    for index in range(slot.demand.gpus)
                ),
                tuple(member.container for member in slot.members[:-1]),
            )
            for slot in mutation.demand.slots
        ),
    )
    written = bind_annotations(mutation.demand.slots, grant, cards, 1, ALL)
    for name in containers(mutation):
        env = environment(mutation, name)
        if name not in users:
            assert env["NVIDIA_VISIBLE_DEVICES"] == "void"
            continue
        assert env["NVIDIA_VISIBLE_DEVICES"] == {"from": f"devices.cotenant.dev/{name}"}
        for value in env.values():
            assert isinstance(value, str) or value["from"] in written

"""What holds for every pod that admission lets in, and that nothing else is let in."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from kube.admitted import ALL, FORGED, admitted, containers, environment
from kube.builders import (
    COMPUTE,
    GI,
    MEMORY,
    SLOT,
    WHOLE,
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
from cotenant.dialects.binding import bind_annotations
from cotenant.dialects.pod_grant import PodGrant, SlotGrant
from cotenant.dialects.quantity import parse_whole
from cotenant.kube.admission.mutation import Mutation
from cotenant.kube.admission.settings import AdmissionSettings


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
            mutation = admitted(body, AdmissionSettings(runtime_class="nvidia"))
        except BadInput:
            continue
        assert admitted(mutation.pod, AdmissionSettings(runtime_class="nvidia")).patch == []


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


@settings(max_examples=300)
@given(any_pod())
def test_every_pod(body: dict[str, Any]) -> None:
    admission = AdmissionSettings(runtime_class="nvidia")
    try:
        mutation = admitted(body, admission)
    except BadInput as refused:
        message = str(refused)
        assert any(
            words in message for words in ("they use one slot", "cannot be spread", "since it has no unit")
        )
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

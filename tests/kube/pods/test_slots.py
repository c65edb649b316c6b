"""Which containers share a slot, and what a slot is worth."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube.builders import GI, MEMORY, SLOT, container, json_values, pod, slots

from cotenant.core.demand import Demand, Memory
from cotenant.core.errors import BadInput
from cotenant.dialects.aliyun import Aliyun
from cotenant.dialects.nvidia import Nvidia
from cotenant.dialects.registry import Dialects


def shared(body: dict[str, Any], dialects: Dialects | None = None) -> dict[str, tuple[int, list[str]]]:
    """Of each slot: its memory in GiB, and who uses it."""
    return {
        slot.container: (
            slot.demand.per_card(0) * slot.demand.gpus // GI,
            [member.container for member in slot.members],
        )
        for slot in slots(body, dialects).slots
    }


def test_each_container_has_a_slot_of_its_own() -> None:
    body = pod(container("a", memory="4Gi"), container("plain"), container("b", memory="6Gi"))
    assert shared(body) == {"a": (4, ["a"]), "b": (6, ["b"])}
    assert slots(body).memory == 10 * GI


def test_an_init_container_shares_the_slot_of_the_gpu_container_that_follows() -> None:
    body = pod(
        container("plain"),
        container("a", memory="4Gi"),
        container("b", memory="6Gi"),
        init=[container("fetch", memory="1Gi")],
    )
    assert shared(body) == {"a": (4, ["fetch", "a"]), "b": (6, ["b"])}


def test_a_slot_is_worth_its_largest() -> None:
    body = pod(
        container("a", memory="4Gi"),
        container("b", memory="6Gi"),
        init=[container("small", memory="1Gi"), container("big", memory="10Gi")],
    )
    assert shared(body) == {"a": (10, ["small", "big", "a"]), "b": (6, ["b"])}
    assert slots(body).memory == 16 * GI


def test_a_sidecar_takes_over_from_the_init_containers_before_it() -> None:
    body = pod(
        container("main", memory="4Gi"),
        init=[
            container("one", memory="8Gi"),
            container("side", sidecar=True, memory="2Gi"),
            container("two", memory="5Gi"),
        ],
    )
    assert shared(body) == {"side": (8, ["one", "side"]), "main": (5, ["two", "main"])}


def test_a_sidecar_alone_has_its_slot() -> None:
    body = pod(container("main"), init=[container("side", sidecar=True, memory="2Gi")])
    assert shared(body) == {"side": (2, ["side"])}


def test_if_only_init_containers_ask_the_first_container_holds_their_slot() -> None:
    body = pod(container("main"), container("other"), init=[container("fetch", memory="3Gi")])
    assert shared(body) == {"main": (3, ["fetch", "main"])}


def test_init_containers_after_the_last_gpu_sidecar_are_held_by_the_first_container() -> None:
    body = pod(
        container("main"),
        init=[container("side", sidecar=True, memory="2Gi"), container("late", memory="3Gi")],
    )
    assert shared(body) == {"side": (2, ["side"]), "main": (3, ["late", "main"])}
    assert slots(body).memory == 5 * GI


def test_containers_know_their_number() -> None:
    body = pod(
        container("a", memory="1Gi"),
        container("b", memory="1Gi"),
        init=[container("i", memory="1Gi"), container("s", sidecar=True, memory="1Gi")],
    )
    assert {slot.container: slot.position for slot in slots(body).slots} == {"s": 3, "a": 0, "b": 1}


def test_the_slot_has_as_many_cards_as_any_wants_and_on_each_as_much_as_any_wants() -> None:
    body = pod(
        container("main", memory="8Gi"),
        init=[container("fetch", memory="10Gi")],
        annotations={"gpu-count.cotenant.dev/main": "2"},
    )
    (slot,) = slots(body).slots
    assert slot.demand == Demand(Memory(bytes=20 * GI), gpus=2)


def test_compute_is_the_largest_that_is_named() -> None:
    body = pod(
        container("main", memory="8Gi", compute="20"),
        init=[container("one", memory="1Gi", compute="70"), container("two", memory="1Gi")],
    )
    (slot,) = slots(body).slots
    assert slot.demand == Demand(Memory(bytes=8 * GI), compute=70)


def test_whole_cards_are_charged_as_cards() -> None:
    body = pod(container("a", whole="1"), container("b", memory="4Gi"), init=[container("fetch", whole="2")])
    demand = slots(body)
    assert demand.whole == 2
    assert demand.memory == 4 * GI
    assert demand.slots[0].demand == Demand(whole=2)


def test_dialects_mix_in_a_slot_and_in_a_pod() -> None:
    dialects = Dialects(aliyun=Aliyun(unit="MiB"), nvidia=Nvidia(enabled=True))
    body = pod(
        container("main", memory="4Gi"),
        container("cuda", **{"volcano.sh/gpu-memory": 2048}),
        container("card", **{"nvidia.com/gpu": 1}),
        init=[container("fetch", **{"aliyun.com/gpu-mem": 6144})],
    )
    demand = slots(body, dialects)
    assert [(slot.container, slot.demand) for slot in demand.slots] == [
        ("main", Demand(Memory(bytes=6 * GI))),
        ("cuda", Demand(Memory(bytes=2 * GI))),
        ("card", Demand(whole=1)),
    ]
    assert demand.memory == 8 * GI
    assert demand.whole == 1


def test_whole_cards_and_memory_do_not_share_a_slot() -> None:
    body = pod(container("main", memory="4Gi"), init=[container("fetch", whole="1")])
    with pytest.raises(
        BadInput, match=r"containers 'fetch', 'main': they use one slot.*ask for cotenant.dev/gpu in"
    ):
        slots(body)


def test_the_mode_is_the_pods_wish() -> None:
    body = pod(container("a", memory="4Gi"), annotations={"cotenant.dev/enforce": "observe"})
    assert slots(body).mode == "observe"
    assert slots(pod(container("a", memory="4Gi"))).mode is None


@pytest.mark.parametrize(
    "body",
    [
        pod(container("a")),
        pod(container("a", cpu="1")),
        pod(container("a", memory="0", whole=0), annotations={"cotenant.dev/enforce": "observe"}),
        pod(container("a", **{"nvidia.com/gpu": 1})),
        pod(
            container("a"),
            annotations={"cotenant.dev/placement": "nonsense", "gpu-count.cotenant.dev/a": "x"},
        ),
        {
            "spec": {
                "containers": [{"name": "a", "resources": None}, {"name": "b", "resources": {"limits": None}}]
            }
        },
        {"metadata": None, "spec": {"containers": [{"name": "a"}], "initContainers": None}},
        {"spec": None},
        {},
    ],
)
def test_a_pod_that_asks_for_no_gpu_has_no_slot(body: dict[str, Any]) -> None:
    demand = slots(body)
    assert demand.slots == ()
    assert demand.mode is None
    assert demand.memory == demand.whole == 0


def test_containers_with_gpu_are_as_many_as_a_server_can_place_in_no_time() -> None:
    assert len(slots(pod(*(container(f"c{at}", memory="1Gi") for at in range(32)))).slots) == 32
    with pytest.raises(BadInput, match="33 containers ask for GPU, at most 32 of a pod may"):
        slots(pod(*(container(f"c{at}", memory="1Gi") for at in range(33))))
    plain = [container(f"plain{at}") for at in range(1000)]
    assert len(slots(pod(container("main", memory="1Gi"), *plain)).slots) == 1


def test_ephemeral_containers_have_no_part_in_it() -> None:
    body = pod(container("a", memory="4Gi"), ephemeralContainers=[container("debug")])
    assert shared(body) == {"a": (4, ["a"])}


def test_a_count_for_a_container_that_asks_for_nothing_is_told() -> None:
    body = pod(
        container("main", memory="4Gi"), container("b"), annotations={"gpu-count.cotenant.dev/mian": "2"}
    )
    with pytest.raises(
        BadInput, match=r"gpu-count.cotenant.dev/mian: container 'mian' asks for no.*does: main"
    ):
        slots(body)


def test_a_count_for_the_holder_of_anothers_slot_is_told() -> None:
    body = pod(
        container("main"),
        init=[container("fetch", memory="4Gi")],
        annotations={"gpu-count.cotenant.dev/main": "2"},
    )
    with pytest.raises(BadInput, match=r"container 'main' asks for no GPU memory: name one that does: fetch"):
        slots(body)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, "pod: it is missing"),
        ([], "pod: this must be an object"),
        ({"spec": []}, "spec: this must be an object"),
        ({"spec": {"containers": {}}}, "spec.containers: this must be a list"),
        ({"spec": {"containers": ["a"]}}, "spec.containers[0]: this must be an object"),
        ({"spec": {"containers": [{}]}}, "spec.containers[0]: a container needs a name"),
        ({"spec": {"initContainers": [{"name": 1}]}}, "spec.initContainers[0]: a container needs a name"),
        (
            {"spec": {"containers": [{"name": "a", "resources": 1}]}},
            "container 'a': resources: this must be an object",
        ),
        (
            {"spec": {"containers": [{"name": "a", "resources": {"limits": [1]}}]}},
            "container 'a': resources.limits: this must be an object",
        ),
        ({"metadata": 1}, "metadata: this must be an object"),
        ({"metadata": {"annotations": []}}, "metadata.annotations: this must be an object"),
        ({"metadata": {"annotations": {"a": 1}}}, "annotation a: its value must be a text"),
        (pod(container("a", memory="1Gi"), container("a")), "two containers have the same name"),
        (
            {"spec": {"initContainers": [container("a", memory="1Gi")]}},
            "spec.containers: a pod needs at least one container",
        ),
        (pod(container("a", **{SLOT: 1})), "cotenant.dev/gpu-slot: this is added for you"),
    ],
)
def test_what_is_no_pod_is_refused(body: Any, words: str) -> None:
    with pytest.raises(BadInput) as error:
        slots(body)
    assert words in str(error.value)


@given(json_values)
def test_any_json_is_read_or_refused(body: Any) -> None:
    try:
        demand = slots(body)
    except BadInput as refused:
        message = str(refused)
        assert message.isprintable()
        return
    assert demand.memory >= 0


@given(json_values, st.sampled_from(["limits", "requests"]))
def test_any_quantity_is_read_or_refused_by_name(value: Any, kind: str) -> None:
    body = pod({"name": "main", "resources": {kind: {MEMORY: value}}})
    try:
        demand = slots(body)
    except BadInput as refused:
        message = str(refused)
        assert message.startswith(f"container 'main': {MEMORY}: ")
        return
    assert demand.memory >= 0

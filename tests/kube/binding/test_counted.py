"""What a pod is granted is never more than what quotas counted when it was created, whatever its author writes later."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kube.admitted import ALL, admitted
from kube.builders import (
    COMPUTE,
    GI,
    MEMORY,
    WHOLE,
    container,
    counted_by_kubernetes,
    defaulted,
    node_json,
    pod,
)
from kube.virtual_time import run
from kube.world import World

from cotenant.core.errors import BadInput, NoRoom
from cotenant.dialects import names
from cotenant.dialects.pod_grant import PodGrant, read_grant
from cotenant.dialects.quantity import parse_whole
from cotenant.kube.binding.counted import granted_amounts

CARDS = (80,) * 8


def stored(body: dict[str, Any]) -> dict[str, Any]:
    """As the API server stores it after admission."""
    result = defaulted(admitted(body).pod)
    result["metadata"] |= {
        "name": "it",
        "namespace": "web",
        "uid": "uid-it",
        "resourceVersion": "1",
        "creationTimestamp": "2030-01-01T00:00:00Z",
    }
    result["metadata"].setdefault("annotations", {})
    return {**result, "status": {"phase": "Pending"}}


def granted_after(body: dict[str, Any], wishes: dict[str, str | None]) -> PodGrant:
    """Admits the pod, writes these annotations while it waits, and binds it."""
    at = World(dialects=ALL)
    at.api.add_node(node_json("n1", *CARDS))
    at.api.add(stored(body))

    def wish(pod: dict[str, Any]) -> None:
        for key, text in wishes.items():
            pod["metadata"]["annotations"].pop(key, None)
            if text is not None:
                pod["metadata"]["annotations"][key] = text

    at.api.change("it", wish)

    async def bind() -> None:
        try:
            await at.bind("it")
        except BaseException:
            assert at.charged() == {}
            raise

    run(bind())
    meta = at.api.truth("it").metadata
    return read_grant(meta.annotations[names.GRANT], meta.uid)


def counted(body: dict[str, Any]) -> dict[str, int]:
    def whole(text: object) -> int:
        return parse_whole(text, "it", "1")

    kept = stored(body)
    return {name: counted_by_kubernetes(kept, name, whole) for name in (MEMORY, WHOLE, COMPUTE)}


def check(body: dict[str, Any], wishes: dict[str, str | None]) -> None:
    grant = granted_after(body, wishes)
    there = counted(body)
    for name, amount in granted_amounts(grant).items():
        assert amount <= there[name], name


def test_a_large_init_container_and_a_count_that_comes_later() -> None:
    body = pod(container("main", memory="1Gi"), init=[container("fetch", memory="10Gi")])
    assert counted(body)[MEMORY] == 10 * GI
    grant = granted_after(body, {names.gpu_count("main"): "8"})
    assert [share.memory for share in grant.slots[0].shares] == [10 * GI // 8] * 8


def test_compute_is_counted_on_every_card() -> None:
    body = pod(container("main", memory="8Gi", compute="50"), annotations={names.gpu_count("main"): "8"})
    assert counted(body)[COMPUTE] == 400
    grant = granted_after(body, {})
    assert [share.compute for share in grant.slots[0].shares] == [50] * 8


def test_compute_that_was_counted_once_is_split_over_cards_that_come_later() -> None:
    body = pod(container("main", memory="8Gi", compute="100"))
    assert counted(body)[COMPUTE] == 100
    grant = granted_after(body, {names.gpu_count("main"): "8"})
    assert [share.compute for share in grant.slots[0].shares] == [12] * 8


@pytest.mark.parametrize(
    ("compute", "before", "after", "words"),
    [
        ("5", "1", "8", r"gpu-compute: 5 percent cannot be spread over 8 GPUs"),
        ("100", "8", "2", r"gpu-compute: 800 percent .* need at least 8 GPUs, .*gpu-count.cotenant.dev/main"),
    ],
)
def test_compute_that_does_not_suit_the_new_count_is_refused(
    compute: str, before: str, after: str, words: str
) -> None:
    count = names.gpu_count("main")
    body = pod(container("main", memory="8Gi", compute=compute), annotations={count: before})
    with pytest.raises(BadInput, match=words):
        granted_after(body, {count: after})


def test_memory_that_cannot_be_split_evenly_is_rounded_down_on_each_card() -> None:
    body = pod(container("main", memory="10Gi"), annotations={names.gpu_count("main"): "3"})
    grant = granted_after(body, {})
    assert [share.memory for share in grant.slots[0].shares] == [10 * GI // 3] * 3


def test_a_pod_that_admission_has_not_counted_is_not_bound() -> None:
    """Its webhook was away, say: in another dialect, native quotas have not counted it."""

    async def main() -> None:
        at = World(dialects=ALL)
        at.api.add_node(node_json("n1", *CARDS))
        body = stored(pod(container("main", memory="1Gi")))
        asked = {"aliyun.com/gpu-mem": "4096"}
        body["spec"]["containers"][0]["resources"] = {"limits": asked, "requests": asked}
        at.api.add(body)
        with pytest.raises(
            BadInput, match=r"cotenant.dev/gpu-memory: .*4Gi.* and 0 was counted.*create it anew"
        ):
            await at.bind("it")
        assert at.charged() == {}

    run(main())


sizes = st.sampled_from(["1Gi", "3Gi", "10Gi", "1073741825"])
asked = st.one_of(
    st.builds(lambda size: {"memory": size}, sizes),
    st.builds(
        lambda size, part: {"memory": size, "compute": part}, sizes, st.sampled_from(["1", "30", "100"])
    ),
    st.builds(lambda cards: {"whole": cards}, st.sampled_from(["1", "2"])),
    st.just({"aliyun.com/gpu-mem": "3803"}),
    st.just({"volcano.sh/gpu-memory": "1000"}),
    st.just({"volcano.sh/gpu-number": "1"}),
    st.just({}),
)
counts = st.sampled_from(["1", "2", "3", "7", "8"])
others = st.sampled_from(
    [
        {},
        {names.GPU_MODEL: "A100"},
        {names.GPU_UUID: "GPU-n1-0,GPU-n1-1"},
        {names.PLACEMENT: "spread"},
        {names.PLACEMENT: "binpack"},
        {names.ENFORCE: "observe"},
    ]
)


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    init = [
        container(f"i{at}", sidecar=draw(st.booleans()), **draw(asked))
        for at in range(draw(st.integers(0, 2)))
    ]
    running = [container(f"c{at}", **draw(asked)) for at in range(draw(st.integers(1, 2)))]
    wishes = {
        names.gpu_count(each["name"]): draw(counts)
        for each in (*init, *running)
        if MEMORY in each.get("resources", {}).get("limits", {}) and draw(st.booleans())
    }
    return pod(*running, init=init, annotations={**wishes, **draw(others)})


@st.composite
def later(draw: st.DrawFn) -> dict[str, str | None]:
    named = draw(st.lists(st.sampled_from(["i0", "i1", "c0", "c1"]), max_size=4, unique=True))
    return {**{names.gpu_count(name): draw(st.none() | counts) for name in named}, **draw(others)}


@settings(max_examples=300)
@given(pods(), later())
def test_no_wish_before_or_after_admission_brings_more_than_was_counted(
    body: dict[str, Any], wishes: dict[str, str | None]
) -> None:
    try:
        assume(admitted(body).demand.slots)
    except BadInput:
        assume(False)
    try:
        check(body, wishes)
    except (BadInput, NoRoom):
        return

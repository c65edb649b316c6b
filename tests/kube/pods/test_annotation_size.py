"""A grant is written only where it leaves the pod's annotations within what Kubernetes allows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube.admitted import ALL, admitted
from kube.builders import container, node_json, pod, pod_json, typed
from kube.virtual_time import run
from kube.world import World

from cotenant.core.errors import BadInput
from cotenant.dialects import names
from cotenant.dialects.binding import bind_annotations, largest_annotations
from cotenant.dialects.pod_grant import LONGEST
from cotenant.dialects.registry import Dialects
from cotenant.kube.pods.annotation_size import LIMIT, RESERVE, RESERVE_AT_ADMISSION, size_of, size_with
from cotenant.kube.pods.fields import gpu_fields
from cotenant.kube.pods.slots import MOST_CONTAINERS
from cotenant.kube.scheduling.placing import place_pod


def filled(size: int) -> dict[str, str]:
    return {"example.com/note": "x" * (size - len("example.com/note"))}


def test_at_admission_annotations_leave_room_for_the_grant_and_a_reserve() -> None:
    def body(size: int) -> dict[str, Any]:
        return pod(container("main", memory="1Gi"), annotations=filled(size))

    room = LIMIT - RESERVE_AT_ADMISSION - size_of(largest_annotations(admitted(body(100)).demand.slots, ALL))
    admitted(body(room))
    with pytest.raises(
        BadInput, match=r"metadata.annotations: .* more than the 224Ki that can be filled: remove or"
    ):
        admitted(body(room + 1))


@pytest.mark.parametrize("asked", [{}, {"memory": "1Gi"}, {"memory": "no amount"}])
def test_annotations_that_kubernetes_refuses_are_refused_before_any_is_read(asked: dict[str, str]) -> None:
    """A webhook gets up to 3 MiB of them: Kubernetes measures afterwards."""
    wrong = {names.gpu_count(f"c{at}"): "no number" for at in range(2)}
    exact = LIMIT - size_of(wrong)
    with pytest.raises(
        BadInput, match=r"^metadata.annotations: .* more than the 256Ki that can be filled: remove or"
    ):
        admitted(pod(container("main", **asked), annotations={**wrong, **filled(exact + 1)}))
    admitted(pod(container("main"), annotations={**wrong, **filled(exact)}))


def test_bytes_are_counted_and_not_characters() -> None:
    body = pod(container("main", memory="1Gi"), annotations={"example.com/note": "\u20ac" * 80_000})
    with pytest.raises(BadInput, match=r"metadata.annotations"):
        admitted(body)


@pytest.mark.parametrize("kept", [False, True], ids=["as it is read", "as the server keeps it"])
def test_at_bind_what_was_written_since_counts(kept: bool) -> None:
    """The pod would be bound and could then never end: its status could not be written any more."""

    async def main() -> None:
        at = World()
        at.api.add_node(node_json("n1", 16))
        at.api.add(pod_json("it", annotations=filled(LIMIT - RESERVE)))
        if kept:
            keep = gpu_fields(Dialects()).keep
            at.api.pods.put(keep(at.api.truth("it")))
        with pytest.raises(BadInput, match=r"metadata.annotations: with the grant, .*remove or shorten"):
            await at.bind("it")
        assert at.charged() == {}
        assert at.api.truth("it").spec.node_name == ""
        at.api.change("it", lambda it: it["metadata"].update(annotations=filled(LIMIT - RESERVE - 2000)))
        await at.bind("it")
        assert size_of(at.api.truth("it").metadata.annotations) <= LIMIT - RESERVE

    run(main())


def test_the_server_knows_the_size_of_annotations_that_it_does_not_keep() -> None:
    annotations = {**filled(9000), names.GPU_MODEL: "A100", "\u20ac": "\u20ac"}
    whole = typed(pod_json("it", annotations=annotations))
    kept = gpu_fields(Dialects()).keep(whole)
    assert kept.metadata.annotations == {names.GPU_MODEL: "A100"}
    assert size_with(kept, {}) == size_with(whole, {}) == size_of(annotations)
    assert size_with(kept, {names.GPU_MODEL: "B"}) == size_of({**annotations, names.GPU_MODEL: "B"})


def test_the_largest_pod_that_is_admitted_can_be_granted() -> None:
    """Whatever its GPUs are called: otherwise it would wait for ever."""
    for asked in ({"memory": "16Gi", "compute": "9"}, {"whole": "16"}, {"aliyun.com/gpu-mem": 16000}):
        names_ = [f"c{at:062}" for at in range(MOST_CONTAINERS)]
        counts = {} if "whole" in asked else {names.gpu_count(name): "16" for name in names_}
        body = pod(*(container(name, **asked) for name in names_), annotations=counts)
        slots = admitted(body).demand.slots
        assert len(largest_annotations(slots, ALL)[names.GRANT]) <= LONGEST


@given(st.integers(1, 4), st.integers(1, 8), st.sampled_from([{}, {"compute": "20"}]), st.booleans())
def test_no_grant_is_larger_than_admission_reckons(
    containers: int, cards: int, asked: dict[str, str], dialect: bool
) -> None:
    demand = {"aliyun.com/gpu-mem": "800"} if dialect else {"memory": "800Mi", **asked}
    body = pod(
        *(container(f"c{at}", **demand) for at in range(containers)),
        annotations={names.gpu_count(f"c{at}"): str(cards) for at in range(containers)},
    )
    slots = admitted(body).demand.slots
    at = World(dialects=ALL)
    at.api.add_node(node_json("n1", *(80,) * 8))
    grant = place_pod(at.cluster, "n1", "5f0c2d0e-6b1c-4d5e-9b43-0d1e2f3a4b5c", slots)
    assert grant is not None
    gpus = {gpu.uuid: gpu for gpu in at.cluster.gpus("n1")}
    written = bind_annotations(slots, grant, gpus, 1_900_000_000_000_000_000, ALL)
    most = largest_annotations(slots, ALL)
    assert written.keys() == most.keys()
    assert all(len(written[key]) <= len(most[key]) for key in most)

"""A pod's demand is read as at admission, and its grant only where it holds one."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube import builders
from kube.builders import COMPUTE, GI, MEMORY, WHOLE, container, pod

from cotenant.core.errors import BadInput
from cotenant.dialects import names
from cotenant.dialects.pod_grant import GrantUnreadable, PodGrant, Share, SlotGrant, write_grant
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Meta, Pod, PodSpec, PodStatus
from cotenant.kube.api.resources import PODS
from cotenant.kube.pods.demand import demand_of, grant_of, has_ended, is_mirror

GRANT = PodGrant("uid-a", (SlotGrant("main", (Share("GPU-1", GI),)),))
TEXT = write_grant(GRANT)

quantities = st.sampled_from(["1", "1Gi", "512Mi", "0", "1500m", "1e9", "-1", "x", ""])
resources = st.sampled_from(
    [
        MEMORY,
        COMPUTE,
        WHOLE,
        names.GPU_SLOT,
        "aliyun.com/gpu-mem",
        "volcano.sh/gpu-memory",
        "cpu",
        "nvidia.com/gpu",
    ]
)
containers = st.lists(
    st.builds(
        lambda name, limits, sidecar: container(name, sidecar=sidecar, **limits),
        st.sampled_from(["a", "b", "c", "d", "e"]),
        st.dictionaries(resources, quantities, max_size=2),
        st.booleans(),
    ),
    max_size=3,
)
annotations = st.dictionaries(
    st.sampled_from([names.GPU_MODEL, names.GPU_UUID, names.PLACEMENT, names.ENFORCE, names.gpu_count("a")]),
    st.sampled_from(["", "2", "A100", "binpack", "warn", "x,y"]),
    max_size=2,
)


def typed(body: Any) -> Pod:
    return PODS.decode(json.dumps(body).encode())


def outcome(read, *args):
    try:
        return read(*args)
    except BadInput as error:
        return str(error)


@given(containers, containers, annotations)
def test_a_pod_is_read_as_it_was_admitted(init, main, wishes):
    """The webhook reads JSON, the server a typed pod: both must find the same slots, or the same fault."""
    body = pod(*main, init=init, annotations=wishes)
    dialects = Dialects()
    assert outcome(demand_of, typed(body), dialects) == outcome(builders.slots, body, dialects)


def test_positions_are_those_of_the_spec_and_the_order_is_the_kubelets():
    body = pod(
        container("first", memory="1Gi"),
        container("second", memory="2Gi"),
        init=[container("setup", memory="3Gi"), container("side", sidecar=True, memory="1Gi")],
    )
    slots = demand_of(typed(body), Dialects()).slots
    assert [(slot.container, slot.position) for slot in slots] == [("side", 3), ("first", 0), ("second", 1)]
    assert [member.container for member in slots[0].members] == ["setup", "side"]
    assert slots[0].demand.memory.bytes == 3 * GI


def test_a_pod_with_nothing_in_it_asks_for_nothing():
    assert demand_of(Pod(), Dialects()).slots == ()
    assert demand_of(typed({"spec": {"containers": None}}), Dialects()).slots == ()


def bound(text: str | None = TEXT, *, node="n1", phase="Running", mirror=False, uid="uid-a") -> Pod:
    told = {names.GRANT: text, "kubernetes.io/config.mirror": "hash" if mirror else None}
    return Pod(
        Meta(
            name="a", namespace="web", uid=uid, annotations={k: v for k, v in told.items() if v is not None}
        ),
        PodSpec(node_name=node),
        PodStatus(phase=phase),
    )


def test_a_bound_pod_holds_its_grant_until_it_has_ended():
    for phase in ("", "Pending", "Running", "Unknown"):
        assert grant_of(bound(phase=phase)) == GRANT
    for phase in ("Succeeded", "Failed"):
        assert has_ended(bound(phase=phase))
        assert grant_of(bound(phase=phase)) is None


def test_who_holds_nothing():
    assert grant_of(bound(None)) is None
    assert grant_of(bound(node="")) is None, "not bound: whatever it says of itself is not ours"
    assert is_mirror(bound(mirror=True))
    assert grant_of(bound(mirror=True)) is None
    assert grant_of(bound("nonsense", node="")) is None


@pytest.mark.parametrize(
    "text", ["", "{}", "null", TEXT[:-1], TEXT.replace('"version":1', '"version":2'), "[" * 9999]
)
def test_a_grant_that_is_none_is_not_read(text):
    with pytest.raises(GrantUnreadable):
        grant_of(bound(text))


def test_the_grant_of_another_pod_is_none():
    with pytest.raises(GrantUnreadable, match="uid-b"):
        grant_of(bound(uid="uid-b"))


@given(st.text(max_size=200))
def test_nothing_else_is_ever_raised(text):
    with contextlib.suppress(GrantUnreadable):
        grant_of(bound(text))


def test_what_the_server_writes_at_bind_asks_for_nothing_and_is_not_remembered():
    """Each pod has another grant: with it, no demand of a bound pod would be found among those that are
    remembered.
    """
    waiting = typed(pod(container("main", memory="1Gi"), annotations={names.PLACEMENT: "binpack"}))
    demand = demand_of(waiting, Dialects())
    for written in ({names.GRANT: TEXT}, {names.devices("main"): "0"}, {names.RETRY: "1.0"}):
        bound = pod(container("main", memory="1Gi"), annotations={names.PLACEMENT: "binpack", **written})
        assert demand_of(typed(bound), Dialects()) is demand

"""A pod that brings its own slot is charged for what it asks in another dialect, or it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from kube.admitted import ALL, admitted
from kube.builders import MEMORY, SLOT, WHOLE, container, pod

from cotenant.core.errors import BadInput
from cotenant.dialects.registry import Dialects

GIB = Dialects()


@pytest.mark.parametrize("native", [{MEMORY: "1Mi"}, {WHOLE: "1"}], ids=["memory", "whole"])
@pytest.mark.parametrize(
    "dialect",
    [
        {"aliyun.com/gpu-mem": "655360"},
        {"volcano.sh/gpu-memory": "655360"},
        {"volcano.sh/gpu-number": "8"},
        {"nvidia.com/gpu": "8"},
    ],
    ids=lambda asked: next(iter(asked)),
)
@pytest.mark.parametrize("place", ["main", "init", "sidecar"])
def test_a_forged_slot_beside_more_in_a_dialect_is_refused(
    native: dict[str, str], dialect: dict[str, str], place: str
) -> None:
    forged = container("it", sidecar=place == "sidecar", **{SLOT: "1", **native, **dialect})
    body = pod(forged) if place == "main" else pod(container("main"), init=[forged])
    with pytest.raises(BadInput) as error:
        admitted(body)
    assert str(error.value).startswith(f"container 'it': {next(iter(dialect))}: ")
    assert str(error.value).endswith("these are added for you: leave out all of cotenant.dev/")


def test_one_unit_beyond_the_native_figure_is_refused() -> None:
    def body(amount: int) -> dict[str, Any]:
        return pod(container("it", **{SLOT: "1", MEMORY: "4Gi", "aliyun.com/gpu-mem": amount}))

    admitted(body(4096))
    with pytest.raises(BadInput, match=r"aliyun.com/gpu-mem: 4097 is more than cotenant.dev/gpu-memory"):
        admitted(body(4097))


@pytest.mark.parametrize(
    "asked", [{"aliyun.com/gpu-mem": 5}, {"volcano.sh/gpu-memory": 5}, {"volcano.sh/gpu-number": 2}]
)
def test_what_admission_wrote_is_admitted_again_as_it_is(asked: dict[str, int]) -> None:
    """The API server asks again after other webhooks, and people create pods from what they read."""
    ((resource, amount),) = asked.items()
    body = pod(
        container("main", **asked),
        container("other", **asked),
        init=[container("large", **{resource: amount * 2}), container("side", sidecar=True, **asked)],
    )
    again = admitted(admitted(body).pod)
    assert again.patch == []
    assert len(again.demand.slots) == 3


def test_a_slot_admitted_in_a_larger_unit_is_admitted_and_in_a_smaller_unit_is_refused() -> None:
    """The unit was changed between the dump of a pod and its new creation."""
    body = pod(container("it", **{"aliyun.com/gpu-mem": 24}))
    assert admitted(admitted(body, dialects=GIB).pod, dialects=ALL).patch == []
    with pytest.raises(BadInput, match=r"aliyun.com/gpu-mem: 24 is more than cotenant.dev/gpu-memory"):
        admitted(admitted(body, dialects=ALL).pod, dialects=GIB)

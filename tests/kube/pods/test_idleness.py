"""What a pod's condition says of its idleness, as everybody else reads it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from cotenant.dialects import names
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.resources import PODS
from cotenant.kube.pods.fields import gpu_fields
from cotenant.kube.pods.idleness import Idle, Unknown, Working, idleness

AT = datetime(2026, 11, 1, 12, 0, 5, tzinfo=UTC).timestamp()


def pod(*conditions: dict[str, Any], phase: str = "Running") -> Pod:
    limits = {names.GPU_MEMORY: "8Gi", names.GPU_SLOT: "1"}
    body = {
        "metadata": {"name": "it", "uid": "u"},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}, *conditions]},
    }
    return gpu_fields(Dialects()).keep(PODS.decode(msgspec.json.encode(body)))


def condition(status: str, **more: Any) -> dict[str, Any]:
    return {"type": names.GPU_IDLE, "status": status, "lastTransitionTime": "2026-11-01T12:00:05Z", **more}


def test_a_pod_that_was_never_idle_has_no_condition_and_works() -> None:
    assert idleness(pod()) == Working(None)


def test_a_true_condition_says_since_when_and_a_false_one_that_it_works() -> None:
    assert idleness(pod(condition("True"))) == Idle(AT)
    assert idleness(pod(condition("False"))) == Working(AT)
    assert idleness(pod(condition("True", lastTransitionTime="2026-11-01T14:00:05+02:00"))) == Idle(AT)


def test_what_the_agent_does_not_know_is_unknown_with_its_words() -> None:
    told = condition("Unknown", reason="NotMeasured", message="its program was started without the shim")
    assert idleness(pod(told)) == Unknown("its program was started without the shim")
    assert idleness(pod(condition("Unknown", reason="NotMeasured"))) == Unknown("NotMeasured")


@pytest.mark.parametrize("status", ["", "true", "Maybe"])
def test_a_status_that_nobody_writes_is_not_idle(status: str) -> None:
    assert isinstance(idleness(pod(condition(status))), Unknown)


def test_an_idle_pod_without_a_time_is_unknown() -> None:
    told = condition("True")
    del told["lastTransitionTime"]
    assert idleness(pod(told)) == Unknown("condition cotenant.dev/GPUIdle has no lastTransitionTime")


def test_the_last_words_of_an_agent_that_is_gone_do_not_count() -> None:
    assert idleness(pod(condition("True")), agent_gone="the agent of n1 is silent") == Unknown(
        "the agent of n1 is silent"
    )


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed", "Unknown"])
def test_a_pod_that_does_not_run_is_not_idle(phase: str) -> None:
    assert isinstance(idleness(pod(condition("True"), phase=phase)), Unknown)


def test_a_long_message_is_cut() -> None:
    found = idleness(pod(condition("Unknown", message="x" * 5000)))
    assert isinstance(found, Unknown)
    assert len(found.reason) == 300

"""GpuScalers that cannot work for long, targets with several autoscalers, and a scaler part that may not read."""

from datetime import timedelta

import msgspec
import pytest
from kube.fakeapi import refused
from kube.operating.clusters import NOW
from kube.operating.doctor.wellapi import STATE, examine, found_on, well_api
from kube.operating.well import LEADS, found, kinds, told_by_server

from cotenant.kube.api.errors import Forbidden
from cotenant.kube.scaler.conflicts import HPAS, SCALED_OBJECTS, Autoscaler
from cotenant.kube.scaler.resource import GPU_SCALERS, GpuScaler


def body(name="a", target="a", *, ready="True", reason="Active", ago=3600.0, message="", **spec):
    since = (NOW - timedelta(seconds=ago)).isoformat()
    conditions = [
        {"type": "Ready", "status": ready, "reason": reason, "message": message, "lastTransitionTime": since}
    ]
    spec = {
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
        "replicas": {"min": 0, "max": 8},
        "backlog": {"queue": {"nats": {"url": "nats://q", "stream": "a", "consumer": "b"}}},
        **spec,
    }
    meta = {"name": name, "namespace": "team"}
    return {"metadata": meta, "spec": spec, "status": {"conditions": conditions}}


def scaler(*of, **named):
    return msgspec.convert(body(*of, **named), GpuScaler)


def autoscaler(name, target="a", kind="Deployment"):
    ref = {"kind": kind, "name": target, **({"apiVersion": "apps/v1"} if kind else {})}
    made = {"metadata": {"name": name, "namespace": "team"}, "spec": {"scaleTargetRef": ref}}
    return msgspec.convert(made, Autoscaler)


@pytest.mark.parametrize("reason", ["NoMetric", "SignalFailed", "Stalled", "NotStarting", "TargetNotFound"])
def test_one_that_is_not_ready_for_long_is_named_with_its_own_words(reason):
    one = scaler(ready="False", reason=reason, message="queue: redis://q cannot be reached")
    (finding,) = found(scalers=(one,))
    assert (finding.kind, finding.target) == ("scaler-not-ready", "gpuscaler team/a")
    assert f"{reason}: queue: redis://q cannot be reached" in finding.found
    assert finding.do.startswith("kubectl describe gpuscaler -n team a")


def test_one_that_is_ready_or_has_just_failed_is_well():
    assert kinds(scalers=(scaler(), scaler("b", "b", ready="False", reason="NoMetric", ago=300))) == []


def test_what_a_scaler_says_is_cut():
    (finding,) = found(scalers=(scaler(ready="False", reason="NoMetric", message="x" * 4000),))
    assert len(finding.found) < 500


@pytest.mark.parametrize(
    ("scalers", "others", "words"),
    [
        ((scaler(), scaler("b")), {}, "GpuScaler a, GpuScaler b"),
        ((scaler(),), {"hpas": (autoscaler("h"),)}, "GpuScaler a, HorizontalPodAutoscaler h"),
        (
            (scaler(),),
            {"scaled_objects": (autoscaler("s", kind=""),), "hpas": (autoscaler("keda-hpa-s"),)},
            "GpuScaler a, ScaledObject s",
        ),
    ],
)
def test_a_target_of_several_is_named_with_all_of_them(scalers, others, words):
    (finding,) = found(scalers=scalers, **others)
    assert (finding.kind, finding.target) == ("scalers-conflict", "deployment team/a")
    assert words in finding.found


def test_one_that_observes_and_autoscalers_of_other_targets_are_no_conflict():
    assert kinds(scalers=(scaler(), scaler("b", mode="observe"))) == []
    assert kinds(scalers=(scaler(),), hpas=(autoscaler("h", "other"), autoscaler("i", "other"))) == []
    assert kinds(scalers=(scaler(),), hpas=(autoscaler("h", "a", "StatefulSet"),)) == []
    assert kinds(scalers=(scaler(replicas={"max": "x"}), scaler("b"))) == [], (
        "one that cannot be read acts not"
    )


def test_they_are_read_from_the_api_server_and_what_may_not_be_read_is_said():
    api = well_api()
    api.put(GPU_SCALERS, body(ready="False", reason="NoMetric"), "team")
    for resource, name in ((HPAS, "h"), (SCALED_OBJECTS, "s")):
        api.put(resource, msgspec.to_builtins(autoscaler(name)), "team")
    assert found_on(api) == ["scaler-not-ready", "scalers-conflict"]
    api.fates["list gpuscalers"] = [refused(Forbidden("no right", code=403))] * 2
    (outcome,) = examine(api)
    assert outcome.finding.found.startswith("could not be read: gpuscalers: no right")


FORBIDDEN = "gpuscalers: list gpuscalers: 403 Forbidden: the server may not list resource gpuscalers"


def leader(**waits):
    """The server that leads, and why parts of it are not ready."""
    return {"cotenant-server-1": msgspec.structs.replace(LEADS["cotenant-server-1"], waits=waits)}


def test_a_scaler_part_that_may_not_list_gpu_scalers_is_an_error_with_the_way_to_restore_its_rights():
    (finding,) = found(ledgers=leader(scaler=FORBIDDEN))
    assert (finding.kind, finding.target, finding.severity) == ("part-not-ready", "part scaler", "error")
    assert FORBIDDEN in finding.found
    assert "no workload is scaled or released" in finding.means
    assert "app.kubernetes.io/component=server" in finding.do


def test_another_reason_is_in_the_log_and_a_server_that_does_not_lead_has_no_parts_to_wait_for():
    waits = {"keda": "the namespace keda does not exist"}
    (finding,) = found(ledgers=leader(**waits))
    assert finding.do == "kubectl logs -n cotenant-system cotenant-server-1"
    assert kinds(ledgers={"cotenant-server-2": told_by_server(leads=False, waits=waits)}) == []


def test_it_is_read_from_the_state_of_the_server():
    api = well_api()
    api.paths[STATE] = msgspec.to_builtins(leader(scaler=FORBIDDEN)["cotenant-server-1"])
    assert found_on(api) == ["part-not-ready"]

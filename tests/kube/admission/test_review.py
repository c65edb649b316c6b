"""Every AdmissionReview is answered, and every body that is none is told so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from kube.admission.reviews import PODS, asked, patched, response
from kube.builders import MEMORY, SLOT, container, json_values, pod

from cotenant.dialects.aliyun import Aliyun
from cotenant.dialects.nvidia import Nvidia
from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.mutation import mutate
from cotenant.kube.admission.review import Answer, review
from cotenant.kube.admission.settings import AdmissionSettings

DIALECTS = Dialects(aliyun=Aliyun(unit="MiB"), nvidia=Nvidia(enabled=True))
ADMISSION = AdmissionSettings()
GPU_POD = pod(container("main", memory="4Gi"))
GPU_PODS = [
    GPU_POD,
    pod(container("a", memory="1Gi"), container("b"), init=[container("i", memory="9Gi")]),
    pod(container("a"), init=[container("i", memory="2Gi"), container("s", sidecar=True, memory="1Gi")]),
    pod(container("a", **{"aliyun.com/gpu-mem": 3803}), schedulerName="volcano"),
    pod(container("a", **{"volcano.sh/gpu-memory": "1k"}), schedulerName="their-own"),
    pod(container("a", **{"nvidia.com/gpu": "1"})),
    pod(
        container("a", memory="8Gi"),
        annotations={"gpu-count.cotenant.dev/a": "2", "cotenant.dev/grant": "{}"},
    ),
]


def answered(question: Any) -> Answer:
    body = question if isinstance(question, bytes) else json.dumps(question).encode()
    return review(body, ADMISSION, DIALECTS)


@pytest.mark.parametrize("body", GPU_PODS)
def test_a_gpu_pod_becomes_what_mutation_makes_of_it(body: dict[str, Any]) -> None:
    answer = answered(asked(body))
    assert answer.result == "mutated"
    assert answer.content_type == "application/json"
    said = response(answer)
    assert said["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"
    assert patched(body, said) == json.loads(json.dumps(mutate(body, ADMISSION, DIALECTS).pod))


@pytest.mark.parametrize("body", GPU_PODS)
def test_asked_again_nothing_changes(body: dict[str, Any]) -> None:
    once = patched(body, response(answered(asked(body))))
    again = answered(asked(once))
    assert again.result == "unchanged"
    assert patched(once, response(again)) == once


def test_a_dry_run_is_answered_like_any_other() -> None:
    assert answered(asked(GPU_POD, dryRun=True)) == answered(asked(GPU_POD))


def test_a_pod_without_gpu_is_let_through() -> None:
    answer = answered(asked(pod(container("main"))))
    assert answer.result == "unchanged"
    assert response(answer) == {"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "allowed": True}


def test_a_pretended_grant_is_taken_off_a_pod_without_gpu() -> None:
    forged = {"cotenant.dev/grant": "{}", "devices.cotenant.dev/main": "0", "mine": "kept"}
    body = pod(container("main"), annotations=forged)
    assert patched(body, response(answered(asked(body))))["metadata"]["annotations"] == {"mine": "kept"}


def test_a_warning_is_for_whoever_creates_the_pod() -> None:
    said = response(answered(asked(pod(container("main", memory="4Gi"), schedulerName="their-own"))))
    (warning,) = said["warnings"]
    assert "'their-own' is kept" in warning


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (pod(container("main", memory="4GiB")), "container 'main': cotenant.dev/gpu-memory: '4GiB'"),
        (pod(container("main", memory="4Gi"), nodeName="n1"), "spec.nodeName"),
        (
            pod(container("main", memory="4Gi", **{"aliyun.com/gpu-mem": 1})),
            "aliyun.com/gpu-mem and cotenant.dev/gpu-memory ask for the same thing twice",
        ),
        (pod(container("main", **{"cotenant.dev/gpus": 1})), "cotenant.dev/gpus"),
        (pod(container("main", **{SLOT: 1})), "this is added for you"),
        ({"spec": []}, "spec: this must be an object"),
        ({"spec": {"containers": {}}}, "spec.containers: this must be a list"),
        ({"metadata": {"annotations": {"a": 1}}, "spec": {"containers": []}}, "annotation a:"),
    ],
)
def test_what_can_never_be_done_is_refused_with_the_field_and_the_remedy(body: Any, words: str) -> None:
    answer = answered(asked(body))
    assert answer.result == "refused"
    said = response(answer)
    assert not said["allowed"]
    assert "patch" not in said
    assert (said["status"]["code"], said["status"]["reason"]) == (422, "Invalid")
    assert words in said["status"]["message"]


@pytest.mark.parametrize("body", [None, [], "pod", 7, True])
def test_a_review_without_a_pod_is_refused(body: object) -> None:
    said = response(answered(asked(body)))
    assert not said["allowed"]
    assert (said["status"]["code"], said["status"]["message"]) == (400, "request.object: a pod is needed")


@pytest.mark.parametrize(
    "request_fields",
    [
        {"operation": "UPDATE", "oldObject": GPU_POD},
        {"operation": "DELETE", "object": None, "oldObject": GPU_POD},
        {"operation": "CONNECT"},
        {"operation": None},
        {"subResource": "binding"},
        {"subResource": "ephemeralcontainers"},
        {"resource": {"group": "apps", "version": "v1", "resource": "deployments"}},
        {"resource": {"group": "", "version": "v2", "resource": "pods"}},
        {"resource": None},
    ],
)
def test_what_is_no_creation_of_a_pod_is_let_through_unchanged(request_fields: dict[str, Any]) -> None:
    answer = answered(asked(GPU_POD, **request_fields))
    assert answer.result == "unchanged"
    assert response(answer)["allowed"]


@pytest.mark.parametrize("change", [str.lower, str.upper, str.title])
def test_keys_of_the_envelope_are_read_in_any_case(change: Any) -> None:
    question = {
        change(key): {change(each): value for each, value in inner.items()} if key == "request" else inner
        for key, inner in asked(GPU_POD, resource={change(key): text for key, text in PODS.items()}).items()
    }
    assert answered(question) == answered(asked(GPU_POD))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "body: not JSON"),
        (b"{", "body: not JSON"),
        (b"\xff\xfe{}", "body: not JSON"),
        (b"null", "body: this must be an object"),
        (b"[]", "body: this must be an object"),
        (b"{}", "body: not an AdmissionReview of admission.k8s.io/v1"),
        (
            json.dumps({**asked(GPU_POD), "apiVersion": "admission.k8s.io/v1beta1"}).encode(),
            "body: not an Adm",
        ),
        (json.dumps({**asked(GPU_POD), "kind": 3}).encode(), "body: not an AdmissionReview"),
        (json.dumps({**asked(GPU_POD), "request": None}).encode(), "request: this must be an object"),
        (json.dumps({**asked(GPU_POD), "Request": {}}).encode(), "'Request' stands there twice"),
        (json.dumps(asked(GPU_POD, uid=None)).encode(), "request.uid: a text is needed"),
        (json.dumps(asked(GPU_POD, uid="")).encode(), "request.uid: a text is needed"),
        (json.dumps(asked(GPU_POD, resource=[1])).encode(), "request.resource: this must be an object"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "body: nested too deeply"),
        (b"[" * 1_000_000, "body: n"),
    ],
)
def test_a_body_that_is_no_review_is_told_so(body: bytes, words: str) -> None:
    answer = answered(body)
    assert (answer.result, answer.code, answer.content_type) == ("malformed", 400, "text/plain")
    assert words in answer.body.decode()


@given(st.binary(max_size=200))
def test_any_bytes_are_answered(body: bytes) -> None:
    assert answered(body).result == "malformed"


@given(json_values)
def test_any_json_is_answered(value: Any) -> None:
    assert answered(value).code == 400


KEYS = st.sampled_from(
    ["uid", "UID", "operation", "resource", "object", "subResource", "group", "dryRun", "x"]
)
TEXTS = st.text(st.characters(exclude_categories=()), max_size=5)


@given(st.dictionaries(KEYS, json_values | TEXTS, max_size=6))
def test_any_request_is_answered(fields: dict[str, Any]) -> None:
    answered({**asked(GPU_POD), "request": fields})
    answered(asked(GPU_POD, **fields))


@given(json_values)
def test_any_pod_is_answered_in_an_answer_of_its_own(value: Any) -> None:
    assume("Infinity" not in json.dumps(value))  # which is no JSON
    said = response(answered(asked(value)))
    assert said["uid"] == "705ab4f5-6393-11e8-b7cc-42010a800002"


@given(TEXTS, st.dictionaries(TEXTS, TEXTS | json_values, max_size=3), TEXTS | st.integers() | st.floats())
def test_any_names_annotations_and_amounts_are_answered(
    name: str, annotations: dict[str, Any], amount: object
) -> None:
    body = pod(container(name, memory=amount), annotations=annotations, schedulerName=name)
    answered(asked(body, uid=name))
    body["spec"]["containers"][0]["resources"]["limits"] = {MEMORY: "1Gi", name: amount}
    answered(asked(body))


@given(st.sampled_from(GPU_PODS), st.data())
def test_a_review_that_was_damaged_on_its_way_is_answered(body: dict[str, Any], data: st.DataObject) -> None:
    whole = json.dumps(asked(body)).encode()
    begin = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(begin, min(len(whole), begin + 20)))
    answered(whole[:begin] + data.draw(st.binary(max_size=4)) + whole[end:])

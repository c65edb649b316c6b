"""What the API server answered to a controller, understood."""

import pytest

from cotenant.core.errors import BadInput
from cotenant.kube.operating.explain.refused_pod import Quota, explain_refusal
from cotenant.kube.operating.explain.workloads import Asked, parse_asked

QUOTA = (
    'Error creating: pods "web-5d-x2" is forbidden: exceeded quota: gpu, requested: '
    "requests.cotenant.dev/gpu-memory=16Gi, used: requests.cotenant.dev/gpu-memory=32Gi, "
    "limited: requests.cotenant.dev/gpu-memory=40Gi"
)
DOWN = (
    'Error creating: Internal error occurred: failed calling webhook "pods.cotenant.dev": failed to call webhook: '
    'Post "https://cotenant-webhook.cotenant-system.svc:443/mutate?timeout=10s": connect: connection refused'
)


MEMORY = "requests.cotenant.dev/gpu-memory"


def told(message, quotas=None):
    return explain_refusal("deployment team/web", "team", message, quotas)


def test_a_quota_is_told_with_its_figures():
    said = told(QUOTA)
    assert said.reason == "quota"
    assert said.sentence == (
        "its pods are not created, since the quota gpu of namespace team is used up: "
        "16Gi of requests.cotenant.dev/gpu-memory asked, 32Gi of 40Gi in use"
    )
    assert "kubectl edit quota -n team gpu" in said.step


def test_a_quota_that_was_changed_since_is_quoted_as_it_is_now():
    said = told(QUOTA, {"gpu": Quota({MEMORY: "44Gi"}, {MEMORY: "40Gi"})})
    assert said.reason == "quota"
    assert "16Gi of requests.cotenant.dev/gpu-memory asked, 40Gi of 44Gi in use" in said.sentence
    assert said.data["limit"] == {MEMORY: "44Gi"}


@pytest.mark.parametrize(
    ("quotas", "now"),
    [
        (
            {"gpu": Quota({MEMORY: "80Gi"}, {MEMORY: "32Gi"})},
            "16Gi of requests.cotenant.dev/gpu-memory asked",
        ),
        ({"gpu": Quota({"pods": "5"}, {"pods": "5"})}, "it does not limit them any more"),
        ({}, "it does not limit them any more"),
    ],
    ids=["raised", "without that resource", "deleted"],
)
def test_a_quota_that_has_room_by_now_is_not_blamed(quotas, now):
    said = told(QUOTA, quotas)
    assert said.reason == "quota-has-room"
    assert now in said.sentence
    assert said.step.startswith("wait: its controller tries again by itself")


def test_a_quota_over_several_resources():
    said = told(
        "exceeded quota: q, requested: pods=1,requests.cotenant.dev/gpu-memory=1Gi, used: pods=2,"
        "requests.cotenant.dev/gpu-memory=1Gi, limited: pods=2,requests.cotenant.dev/gpu-memory=1Gi"
    )
    assert said.data["limit"] == {"pods": "2", "requests.cotenant.dev/gpu-memory": "1Gi"}
    assert "1 of pods asked, 2 of 2 in use" in said.sentence


def test_a_webhook_that_is_down():
    said = told(DOWN)
    assert said.reason == "webhook-down"
    assert "Cotenant's webhook does not answer" in said.sentence
    assert "connection refused" in said.sentence
    assert "doctor" in said.step


@pytest.mark.parametrize(
    ("message", "reason", "words"),
    [
        (
            'admission webhook "pods.cotenant.dev" denied the request: 4Q is no amount',
            "denied",
            "4Q is no amount",
        ),
        (
            "ValidatingAdmissionPolicy 'cotenant-modes' with binding 'cotenant-modes' denied request: too mild",
            "denied",
            "cotenant-modes refuses them: too mild",
        ),
        ('failed calling webhook "mesh.example.org": timeout', "other-webhook", "mesh.example.org"),
        ("failed quota: q: must specify limits.cpu for: main", "quota", "limits.cpu"),
        ('pods "a" is forbidden: violates PodSecurity "restricted"', "not-created", "PodSecurity"),
    ],
)
def test_other_refusals_are_told_as_they_are(message, reason, words):
    said = told(message)
    assert said.reason == reason
    assert words in said.sentence
    assert said.step


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("web", Asked(None, "web")),
        ("pod/web", Asked("pods", "web")),
        ("po/web", Asked("pods", "web")),
        ("deployment/web", Asked("deployments", "web")),
        ("deployment.apps/web", Asked("deployments", "web")),
        ("Deploy/web", Asked("deployments", "web")),
        ("jobs/train", Asked("jobs", "train")),
        ("sts/llm", Asked("statefulsets", "llm")),
    ],
)
def test_kinds_go_by_the_names_that_kubectl_knows(text, asked):
    assert parse_asked(text) == asked


@pytest.mark.parametrize("text", ["", "deployment/", "a/b/c", "service/web", "..", "x%2f"])
def test_what_is_no_pod_is_told(text):
    with pytest.raises(BadInput, match="POD"):
        parse_asked(text)

"""A GpuScaler is read from what the API server has, and a mistake that it let pass is named."""

import pytest
from kube.scaler.specs import ACCEPTED, MISSPELT, REFUSED, spec

from cotenant.core.errors import BadInput
from cotenant.kube.scaler.resource import GPU_SCALERS, GpuScaler, read_spec


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_the_api_server_accepts_is_read(case: str):
    read = read_spec(GpuScaler(spec=ACCEPTED[case]))
    assert read.target.name == ACCEPTED[case]["target"]["name"]
    assert read.policy().maximum == ACCEPTED[case]["replicas"]["max"]


@pytest.mark.parametrize("case", REFUSED | MISSPELT)
def test_what_it_refuses_is_refused_here_too(case: str):
    given, _, sentence = (REFUSED | MISSPELT)[case]
    with pytest.raises(BadInput) as refused:
        read_spec(GpuScaler(spec=given))
    assert sentence in str(refused.value)


def test_a_scaler_is_decoded_with_its_status():
    body = b"""{"metadata": {"name": "s", "namespace": "n", "generation": 3},
        "spec": {"anything": 1},
        "status": {"observedGeneration": 3, "replicas": 2, "desired": 4, "state": "ScalingUp",
            "since": "2026-01-02T03:04:05Z", "memory": {"v": 1}, "somethingNew": {},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}]}}"""
    read = GPU_SCALERS.decode(body)
    assert (read.status.replicas, read.status.desired, read.status.memory) == (2, 4, {"v": 1})
    assert read.status.conditions[0].type == "Ready"
    assert GPU_SCALERS.path("n", "s", "status") == (
        "/apis/cotenant.dev/v1alpha1/namespaces/n/gpuscalers/s/status"
    )


def test_a_policy_is_what_the_spec_says():
    read = read_spec(
        GpuScaler(
            spec=spec(
                responseTime={
                    "target": "2s",
                    "query": {"prometheus": {"url": "http://p:9090", "query": "x"}},
                }
            )
        )
    )
    policy = read.policy(poll=2.0)
    assert (policy.minimum, policy.maximum, policy.target, policy.service) == (0, 8, 3.0, 0.8)
    assert (policy.concurrency, policy.poll, policy.response_target) == (1, 2.0, 2.0)
    assert (policy.idle.threshold, policy.idle.when_others_wait) == (900.0, 60.0)

"""Which requests the configuration brings to the webhook; what a real API server makes of it is in tests/cluster."""

from __future__ import annotations

import base64

from cotenant.dialects.aliyun import Aliyun
from cotenant.dialects.nvidia import Nvidia
from cotenant.dialects.registry import Dialects
from cotenant.dialects.volcano import Volcano
from cotenant.kube.admission.configuration import gpu_pods, webhook_configuration
from cotenant.kube.admission.settings import WebhookSettings
from cotenant.kube.settings import Settings


def test_it_fails_closed_and_asks_for_creations_of_pods_alone() -> None:
    (webhook,) = webhook_configuration(Settings(namespace="gpus"), Dialects())["webhooks"]
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["reinvocationPolicy"] == "IfNeeded"
    assert webhook["sideEffects"] == "None"
    assert webhook["timeoutSeconds"] == 10
    assert webhook["namespaceSelector"] == webhook["objectSelector"] == {}
    assert webhook["rules"] == [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods"],
            "scope": "Namespaced",
        }
    ]
    service = {"namespace": "gpus", "name": "cotenant-webhook", "path": "/mutate", "port": 443}
    assert webhook["clientConfig"] == {"service": service}


def test_the_service_and_the_bundle_are_those_that_are_given() -> None:
    settings = Settings(webhook=WebhookSettings(service="hook"))
    (webhook,) = webhook_configuration(settings, Dialects(), b"PEM")["webhooks"]
    assert webhook["clientConfig"]["service"]["name"] == "hook"
    assert base64.b64decode(webhook["clientConfig"]["caBundle"]) == b"PEM"


def test_only_the_dialects_that_are_on_are_asked_about() -> None:
    every = gpu_pods(Dialects(nvidia=Nvidia(enabled=True)))
    assert all(
        name in every for name in ("'aliyun.com/gpu-mem'", "'volcano.sh/gpu-number'", "'nvidia.com/gpu'")
    )
    assert "nvidia.com" not in gpu_pods(Dialects())
    native = gpu_pods(Dialects(aliyun=Aliyun(enabled=False), volcano=Volcano(enabled=False)))
    assert "aliyun" not in native
    assert "volcano" not in native
    assert "'cotenant.dev/'" in native


def test_the_condition_is_short_enough_for_the_api_server() -> None:
    """It is compiled for every change of the configuration; 64 KiB would be the API's own limit."""
    assert len(gpu_pods(Dialects(nvidia=Nvidia(enabled=True)))) < 4096

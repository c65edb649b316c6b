"""The manifests of docs/keda.md are what the program, the chart and a real API server expect."""

import re

import pages
import pytest
import yaml
from kube.scaler.test_definition import scalers

from cotenant.kube.api.objects import Generic
from cotenant.kube.api.resources import Resource
from cotenant.kube.scaler.keda.external_scaler import FIELD, METRIC
from cotenant.kube.scaler.resource import GPU_SCALERS
from cotenant.kube.settings import Settings
from cotenant.observe.metrics import Metric

__all__ = ["scalers"]
HPAS = Resource(
    Generic, "HorizontalPodAutoscaler", "horizontalpodautoscalers", group="autoscaling", version="v2"
)
DOCUMENTS = [yaml.safe_load(text) for text in pages.manifests("keda")]


def of(kind):
    (found,) = [each for each in DOCUMENTS if each.get("kind") == kind]
    return found


def test_the_trigger_names_the_service_the_scaler_and_the_authentication():
    scaler, (trigger,) = of("GpuScaler"), of("ScaledObject")["spec"]["triggers"]
    settings = Settings()
    host, _, port = trigger["metadata"]["scalerAddress"].rpartition(":")
    assert host == f"{settings.keda.service}.{settings.namespace}.svc"
    assert int(port) == settings.keda.port
    assert trigger["metadata"]["enableTLS"] == "true"
    assert trigger["metadata"][FIELD] == scaler["metadata"]["name"]
    assert trigger["authenticationRef"] == {"kind": "ClusterTriggerAuthentication", "name": "cotenant"}
    assert METRIC in pages.read("keda")


def test_one_of_them_acts_within_the_same_limits():
    scaler, scaled = of("GpuScaler")["spec"], of("ScaledObject")["spec"]
    assert scaler["mode"] == "observe"
    assert (scaled["minReplicaCount"], scaled["maxReplicaCount"]) == (
        scaler["replicas"]["min"],
        scaler["replicas"]["max"],
    )
    assert scaled["scaleTargetRef"]["name"] == scaler["target"]["name"]


def test_the_adapter_and_the_hpa_ask_for_a_metric_that_is_exported():
    (adapter,) = [each for each in DOCUMENTS if "rules" in each]
    (rule,) = adapter["rules"]["external"]
    (asked,) = of("HorizontalPodAutoscaler")["spec"]["metrics"]
    series, labels = re.fullmatch(r"(\w+)\{(.*)\}", rule["seriesQuery"]).groups()
    (entry,) = [each.value for each in Metric if each.value.name == series]
    assert entry.kind == "gauge"
    assert {each.split("!=")[0] for each in labels.split(",")} <= set(entry.labels)
    assert set(rule["resources"]["overrides"]) <= set(entry.labels)
    metric = asked["external"]["metric"]
    assert metric["name"] == series
    assert set(metric["selector"]["matchLabels"]) <= set(entry.labels)
    assert asked["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}


@pytest.mark.asyncio
async def test_the_api_server_keeps_every_field(client, namespace, scalers):
    for resource, kind in ((GPU_SCALERS, "GpuScaler"), (HPAS, "HorizontalPodAutoscaler")):
        written = of(kind)
        kept = await client.create(resource.raw, written, namespace)
        assert _within(written["spec"], kept["spec"]), kept["spec"]


def _within(wanted, found):
    if isinstance(wanted, dict):
        return all(key in found and _within(value, found[key]) for key, value in wanted.items())
    if isinstance(wanted, list):
        return len(wanted) == len(found) and all(map(_within, wanted, found))
    return wanted == found

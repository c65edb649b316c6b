"""The real KEDA 2.21 scales a Deployment by what a GpuScaler decides: from zero to n and back, with HPA in between.

The ScaledObject is that of docs/keda.md. `make keda` builds KEDA and runs this file; it is not part of `make test`.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from cluster.cotenant.external_metrics import ADDRESS
from cluster.cotenant.installation import Installation
from cluster.cotenant.keda import GROUP, HOME, Keda
from cluster.cotenant.observed import NAME, SERVICE_TIME, THRESHOLD, Observed, condition, from_page
from cluster.testbed import hollow, places
from cluster.testbed.api import Api
from cluster.testbed.controlplane import ControlPlane

from cotenant.kube.certificates.distribution import CA_CONFIG_MAP

pytestmark = pytest.mark.timeout(600)
MESSAGES = 200


@pytest.fixture(scope="module")
def cotenant(start_cotenant: Any, control_plane: ControlPlane) -> Installation:
    if not all((places.keda() / each).exists() for each in ("operator", "adapter", "crds")):
        pytest.skip("no KEDA: `make keda` builds it")
    Keda.prepare(control_plane)
    installation: Installation = start_cotenant(
        servers=2, policies=True, settings={"keda": {"enabled": True}, "scaler": {"poll": "2s"}}
    )
    return installation


@pytest.fixture(scope="module")
def keda(cotenant: Installation, control_plane: ControlPlane) -> Iterator[Keda]:
    keda = Keda(control_plane, cotenant)
    try:
        keda.start()
        yield keda
    finally:
        keda.stop()


class Workload(Observed):
    """One that a ScaledObject scales."""

    def __init__(self, api: Api, namespace: str) -> None:
        super().__init__(api, namespace, ADDRESS)
        self.objects = f"{GROUP}/namespaces/{namespace}/scaledobjects"

    def scale_by(self, kind: str = "external-push", **trigger: Any) -> None:
        """Makes the ScaledObject of the page; `trigger`: what differs in its trigger, None for what is left out."""
        made = from_page("ScaledObject")
        (own,) = made["spec"]["triggers"]
        metadata = {**own["metadata"], **trigger.pop("metadata", {})}
        changed = {**own, "type": kind, "metadata": metadata, **trigger}
        made["spec"]["triggers"] = [{key: value for key, value in changed.items() if value is not None}]
        self.api.create(self.objects, made)

    def until_ready(self) -> None:
        self.api.until(f"{self.objects}/{NAME}", lambda seen: condition(seen, "Ready") == "True", seconds=60)

    def until_as_decided(self, seconds: float = 90) -> float:
        return self.until(lambda seen: seen > 1 and seen == self.desired(), seconds)


@pytest.fixture
def workload(keda: Keda, api: Api, namespace: str, hollow_nodes: Any) -> Iterator[Workload]:
    hollow_nodes([hollow.node("hollow-keda")])
    workload = Workload(api, namespace)
    yield workload
    api.delete(f"{workload.objects}/{NAME}")
    api.until_gone(f"{workload.objects}/{NAME}", seconds=60)
    workload.queue.close()


@pytest.mark.parametrize("trigger", ["external-push", "external"])
def test_a_deployment_goes_from_zero_to_what_was_decided_and_back(
    workload: Workload, trigger: str, capsys: pytest.CaptureFixture[str]
) -> None:
    workload.scale_by(trigger)
    workload.until_ready()
    assert workload.replicas() == 0

    workload.queue.put(MESSAGES)
    woken = workload.until(lambda seen: seen > 0, 30)
    reached = woken + workload.until_as_decided()
    most = workload.replicas()
    (metric,) = workload.hpa()["spec"]["metrics"]
    assert metric["external"]["metric"]["name"] == "s0-cotenant-replicas"
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}
    assert condition(workload.hpa(), "ScalingActive") == "True"

    released = workload.until(lambda seen: seen == 0, MESSAGES * SERVICE_TIME / most + THRESHOLD + 120)
    assert workload.desired() == 0
    assert workload.queue.figures["completed"] == MESSAGES
    with capsys.disabled():
        print(
            f"\n{trigger}: {MESSAGES} messages of {SERVICE_TIME} s: woken after {woken:.1f} s, {most} replicas by "
            f"HPA after {reached:.1f} s, zero after {reached + released:.1f} s"
        )


def test_servers_that_are_restarted_midway_change_nothing_and_wake_it_again(
    workload: Workload, cotenant: Installation
) -> None:
    workload.scale_by()
    workload.queue.put(MESSAGES)
    workload.until_as_decided()
    most = workload.replicas()
    for server in cotenant.servers:
        server.kill()
    workload.hold(lambda seen: seen == most, 10)
    for server in cotenant.servers:
        server.start()
    cotenant.wait()
    workload.until(lambda seen: seen != most, MESSAGES * SERVICE_TIME / most + THRESHOLD + 120)
    assert workload.queue.figures["completed"] == MESSAGES
    workload.until(lambda seen: seen == 0, 60)

    workload.queue.put(1)
    workload.until(lambda seen: seen == 1, 60)
    workload.until(lambda seen: seen == 0, THRESHOLD + 120)
    assert workload.queue.figures["completed"] == MESSAGES + 1


def test_without_figures_replicas_stay_as_they_are(workload: Workload, cotenant: Installation) -> None:
    workload.scale_by()
    workload.queue.put(MESSAGES)
    workload.until_as_decided()
    workload.queue.broken = True
    workload.api.until(
        f"{workload.scaler}/{NAME}", lambda seen: seen["status"]["state"] == "NoMetric", seconds=60
    )
    held = workload.replicas()
    # The figures of before are in the status, and must not be taken for new ones.
    for server in cotenant.servers:
        server.kill()
    workload.hold(lambda seen: seen == held, 20)
    for server in cotenant.servers:
        server.start()
    cotenant.wait()
    workload.hold(lambda seen: seen == held, 20)
    workload.until_failed("its queue cannot be read")
    workload.queue.broken = False
    workload.until(lambda seen: seen == 0, 300)


def test_an_unknown_scaler_is_named_in_keda_s_event(workload: Workload) -> None:
    workload.scale_by(metadata={"gpuScaler": "room-scen"})
    workload.until_failed("there is none; create it")
    assert workload.replicas() == 0


def test_keda_believes_nobody_whom_the_authority_has_not_signed(workload: Workload, keda: Keda) -> None:
    workload.scale_by(authenticationRef=None)
    workload.api.until(
        f"{workload.objects}/{NAME}", lambda seen: condition(seen, "Ready") == "False", seconds=60
    )
    assert "certificate signed by unknown authority" in keda.operator.log.read_text()
    workload.queue.put(1)
    workload.api.until(f"{workload.scaler}/{NAME}", lambda seen: seen["status"]["desired"] == 1)
    workload.hold(lambda seen: seen == 0, 10)


def test_a_copy_of_the_authority_in_the_namespace_s_own_authentication_does_too(workload: Workload) -> None:
    kept = workload.api.get(f"/api/v1/namespaces/{HOME}/configmaps/{CA_CONFIG_MAP}")
    workload.api.create(
        f"/api/v1/namespaces/{workload.namespace}/configmaps",
        {"metadata": {"name": "scaler-ca"}, "data": {"ca.crt": kept["data"]["ca.crt"]}},
    )
    workload.api.create(
        f"{GROUP}/namespaces/{workload.namespace}/triggerauthentications",
        {
            "apiVersion": "keda.sh/v1alpha1",
            "kind": "TriggerAuthentication",
            "metadata": {"name": "own"},
            "spec": {"configMapTargetRef": [{"parameter": "caCert", "name": "scaler-ca", "key": "ca.crt"}]},
        },
    )
    workload.scale_by(authenticationRef={"name": "own"})
    workload.queue.put(1)
    workload.until(lambda seen: seen == 1, 60)

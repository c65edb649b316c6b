"""An HPA without KEDA scales a Deployment by the metric that our leader exports, through Prometheus and its adapter.

Rule, scrape job and HPA are those of docs/keda.md and docs/sizing.md. `make keda` builds the adapter and runs this file.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from cluster.cotenant.external_metrics import ADDRESS
from cluster.cotenant.installation import Installation
from cluster.cotenant.observed import NAME, SERVICE_TIME, THRESHOLD, Observed, condition, define, from_page
from cluster.cotenant.prometheusadapter import PrometheusAdapter, programs
from cluster.testbed import hollow, places
from cluster.testbed.api import Api
from cluster.testbed.controlplane import ControlPlane

pytestmark = pytest.mark.timeout(600)
MESSAGES = 200
LEAST = (1, 0) if places.version() >= "1.37" else (1,)
"""Of the HPA: from 1.37 on it goes to zero."""


@pytest.fixture(scope="module")
def cotenant(start_cotenant: Any, control_plane: ControlPlane) -> Installation:
    define(control_plane)
    installation: Installation = start_cotenant(servers=2, policies=True, settings={"scaler": {"poll": "2s"}})
    return installation


@pytest.fixture(scope="module")
def prometheus_adapter(
    control_plane: ControlPlane, request: pytest.FixtureRequest
) -> Iterator[PrometheusAdapter]:
    if not places.prometheus_adapter().exists():
        pytest.skip("no prometheus-adapter: `make keda` builds it")
    try:
        programs.find("prometheus")
    except programs.CannotGet as missing:
        pytest.skip(str(missing))
    adapter = PrometheusAdapter(control_plane, request.getfixturevalue("cotenant"))
    try:
        adapter.start()
        yield adapter
    finally:
        adapter.stop()


class Workload(Observed):
    """One that the HPA of the page scales."""

    def __init__(self, api: Api, namespace: str) -> None:
        super().__init__(api, namespace, ADDRESS)
        self.hpas = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"

    def scale_from(self, least: int) -> None:
        made = from_page("HorizontalPodAutoscaler")
        made["spec"]["minReplicas"] = least
        # An HPA leaves a workload with 0 replicas alone, unless it has set them itself.
        self.api.patch(self.path, {"spec": {"replicas": 1}})
        self.api.create(self.hpas, made)
        self.until(lambda seen: seen == least, 90)

    def until_as_decided(self) -> float:
        return self.until(lambda seen: seen > 1 and seen == self.desired(), 120)

    def until_back(self, least: int) -> float:
        return self.until(lambda seen: seen == least, MESSAGES * SERVICE_TIME + THRESHOLD + 120)


@pytest.fixture
def workload(
    prometheus_adapter: PrometheusAdapter, api: Api, namespace: str, hollow_nodes: Any
) -> Iterator[Workload]:
    hollow_nodes([hollow.node("hollow-hpa")])
    workload = Workload(api, namespace)
    yield workload
    api.delete(f"{workload.hpas}/{NAME}")
    workload.queue.close()


@pytest.mark.parametrize("least", LEAST)
def test_an_hpa_makes_what_was_decided_and_goes_back_to_its_least(
    workload: Workload, least: int, capsys: pytest.CaptureFixture[str]
) -> None:
    workload.scale_from(least)
    workload.queue.put(MESSAGES)
    reached = workload.until_as_decided()
    most = workload.replicas()
    assert condition(workload.hpa(NAME), "ScalingActive") == "True"
    released = workload.until_back(least)
    assert workload.desired() == 0
    assert workload.queue.figures["completed"] == MESSAGES
    with capsys.disabled():
        print(
            f"\nHPA from {least}: {MESSAGES} messages of {SERVICE_TIME} s: {most} replicas after {reached:.1f} s, "
            f"{least} after {reached + released:.1f} s"
        )


def test_without_a_leader_the_hpa_leaves_replicas_as_they_are(
    workload: Workload, cotenant: Installation
) -> None:
    workload.scale_from(1)
    workload.queue.put(MESSAGES)
    workload.until_as_decided()
    most = workload.replicas()
    for server in cotenant.servers:
        server.kill()
    workload.api.until(
        f"{workload.hpas}/{NAME}", lambda seen: condition(seen, "ScalingActive") == "False", seconds=60
    )
    workload.hold(lambda seen: seen == most, 35)
    for server in cotenant.servers:
        server.start()
    cotenant.wait()
    workload.until_back(1)

"""What the chart installs for KEDA: nothing unless it is asked for, and then what the program and KEDA expect."""

import pytest
import yaml
from cluster import chart
from cluster.chart import NAMESPACE, named, render
from cluster.cotenant.objects import SERVER_ACCOUNT
from cluster.test_chart import settings_of
from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.controlplane import ControlPlane

from cotenant.kube.certificates.distribution import CA_CONFIG_MAP, CA_KEY
from cotenant.kube.certificates.keeper import KeeperTimes, certificate_policy

ON = {"settings__keda__enabled": True}


def for_keda(**values: object) -> list[Object]:
    return [each for each in render(**values) if each["metadata"]["labels"][chart.COMPONENT] == "keda"]


def kinds(documents: list[Object]) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"].get("namespace", "")) for each in documents}


def test_nothing_is_installed_unless_it_is_asked_for():
    assert for_keda() == []
    server = named(render(), "Deployment", "cotenant-server")
    ports = server["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert "keda" not in {each["name"] for each in ports}


def test_the_service_leads_to_the_port_and_its_name_is_in_the_certificate():
    documents = render(**ON, settings__keda__port=9555)
    settings = settings_of(documents)
    assert settings.keda.enabled
    service = named(documents, "Service", settings.keda.service)
    assert [(each["port"], each["targetPort"]) for each in service["spec"]["ports"]] == [(8445, 9555)]
    server = named(documents, "Deployment", "cotenant-server")["spec"]["template"]
    assert service["spec"]["selector"].items() <= server["metadata"]["labels"].items()
    ports = server["spec"]["containers"][0]["ports"]
    assert {"name": "keda", "containerPort": 9555} in ports
    assert f"cotenant-keda.{NAMESPACE}.svc" in certificate_policy(settings, KeeperTimes()).names
    assert "cotenant-keda" not in str(certificate_policy(settings_of(render()), KeeperTimes()).names)


def test_keda_reads_the_authority_that_the_server_writes():
    documents = for_keda(**ON, settings__keda__namespace="autoscaling")
    named(documents, "ConfigMap", CA_CONFIG_MAP)
    (reference,) = named(documents, "ClusterTriggerAuthentication", "cotenant")["spec"]["configMapTargetRef"]
    assert reference == {"parameter": "caCert", "name": CA_CONFIG_MAP, "key": CA_KEY}
    assert {namespace for kind, namespace in kinds(documents) if kind in {"ConfigMap", "Role"}} == {
        "autoscaling"
    }
    (_, rule) = named(documents, "NetworkPolicy", "cotenant-keda")["spec"]["ingress"]
    selector = rule["from"][0]["namespaceSelector"]["matchLabels"]
    assert selector == {"kubernetes.io/metadata.name": "autoscaling"}


@pytest.mark.parametrize(
    ("values", "left"),
    [
        ({"settings__keda__namespace": ""}, {"Service"}),
        (
            {"settings__keda__namespace": NAMESPACE},
            {"Service", "ClusterTriggerAuthentication", "NetworkPolicy"},
        ),
        (
            {"keda__authentication": False, "keda__networkPolicy": False},
            {"Service", "ConfigMap", "Role", "RoleBinding"},
        ),
    ],
    ids=str,
)
def test_what_you_bring_yourself_is_left_out(values: dict[str, object], left: set[str]):
    assert {kind for kind, _ in kinds(for_keda(**ON, **values))} == left


def test_the_server_may_write_that_configmap_and_no_other(
    control_plane: ControlPlane, api: Api, namespace: str
):
    documents = for_keda(**ON, settings__keda__namespace=namespace, keda__authentication=False)
    chart.make_namespace(api)
    chart.apply(control_plane, documents)
    server = control_plane.client(*SERVER_ACCOUNT)
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    chart.until_allowed(lambda: server.patch(f"{path}/{CA_CONFIG_MAP}", {"data": {CA_KEY: "pem"}}))
    assert server.get(f"{path}/{CA_CONFIG_MAP}")["data"] == {CA_KEY: "pem"}
    for attempt in (
        lambda: server.patch(f"{path}/kube-root-ca.crt", {"data": {"ca.crt": "ours"}}),
        lambda: server.create(path, {"metadata": {"name": "other"}}),
        lambda: server.get(path),
    ):
        with pytest.raises(Refused) as refused:
            attempt()
        assert refused.value.code == 403
    chart.apply(control_plane, documents)  # an upgrade keeps what the server wrote
    assert server.get(f"{path}/{CA_CONFIG_MAP}")["data"] == {CA_KEY: "pem"}
    text = yaml.safe_dump_all(documents)
    control_plane.kubectl("delete", "--wait=false", "-f", "-", manifest=text)

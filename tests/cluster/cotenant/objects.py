"""What an installation of Cotenant consists of in the API server, beside its processes."""

from typing import Any

import yaml
from cluster import chart
from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.controlplane import ControlPlane

from cotenant.kube.admission.configuration import webhook_configuration
from cotenant.kube.settings import Settings

NAMESPACE = "cotenant-system"
EXTENDER_ADDRESS = "10.96.0.44"
"""The ClusterIP of the extender's Service; it lies in the part of the range that is for addresses given by hand."""

SERVER_ACCOUNT = (
    f"system:serviceaccount:{NAMESPACE}:cotenant-server",
    ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"),
)
"""Who a server in a pod is to the API server: the account's user, and its groups."""

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


def create(api: Api, settings: Settings) -> None:
    _apply(api, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    own = f"/api/v1/namespaces/{NAMESPACE}"
    port = {"name": "https", "port": 443}
    _apply(
        api,
        f"{own}/services",
        {
            "metadata": {"name": settings.extender.service},
            "spec": {
                "clusterIP": EXTENDER_ADDRESS,
                "ports": [{**port, "targetPort": settings.extender.port}],
            },
        },
    )
    _apply(
        api,
        f"{own}/services",
        {
            "metadata": {"name": settings.webhook.service},
            "spec": {"ports": [{**port, "targetPort": settings.webhook.port}]},
        },
    )
    _apply(
        api,
        f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases",
        {"metadata": {"name": settings.leader.lease}, "spec": {}},
    )
    _apply(api, WEBHOOKS, _webhook(settings))


def create_policies(control_plane: ControlPlane) -> None:
    """What the chart says that each account may do, and what nobody may but the server; in force when this returns."""
    chart.apply(control_plane, _policies())
    forged = {
        "metadata": {"name": "probe", "annotations": {"cotenant.dev/grant": "x"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    path = "/api/v1/namespaces/default/pods"
    chart.until_refused(lambda: control_plane.api.request("POST", path, forged, query={"dryRun": "All"}))


def delete_policies(control_plane: ControlPlane) -> None:
    text = yaml.safe_dump_all(_policies())
    control_plane.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", manifest=text)


def _policies() -> list[Object]:
    documents = chart.render()
    return [*chart.policies(documents), *chart.access(documents)]


def delete(api: Api) -> None:
    """The namespace itself stays: a namespace that is being deleted cannot be made again at once."""
    own = f"/api/v1/namespaces/{NAMESPACE}"
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
    for path in (
        f"{WEBHOOKS}/cotenant",
        f"{own}/secrets/cotenant-certificates",
        f"{own}/secrets/cotenant-agent-certificate",
        f"{own}/configmaps/cotenant-ca",
        f"{own}/configmaps/cotenant-statistics",
        f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/cotenant-server",
        *(f"{own}/services/{each['metadata']['name']}" for each in api.items(f"{own}/services")),
        *(f"{slices}/{each['metadata']['name']}" for each in api.items(slices)),
    ):
        try:
            api.delete(path)
        except Refused as refused:
            if refused.code != 404:
                raise


def _webhook(settings: Settings) -> Object:
    made: dict[str, Any] = webhook_configuration(settings, settings.dialects)
    return made


def _apply(api: Api, path: str, body: Object) -> None:
    try:
        api.create(path, body)
    except Refused as refused:
        if refused.code != 409:
            raise

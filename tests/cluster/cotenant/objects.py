"""What an installation of Cotenant consists of in the API server, beside its processes."""

from typing import Any

from cluster.testbed.api import Api, Object, Refused

from cotenant.kube.admission.configuration import webhook_configuration
from cotenant.kube.settings import Settings

NAMESPACE = "cotenant-system"
EXTENDER_ADDRESS = "10.96.0.44"
"""The ClusterIP of the extender's Service; it lies in the part of the range that is for addresses given by hand."""

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


def delete(api: Api) -> None:
    """The namespace itself stays: a namespace that is being deleted cannot be made again at once."""
    own = f"/api/v1/namespaces/{NAMESPACE}"
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
    for path in (
        f"{WEBHOOKS}/cotenant",
        f"{own}/secrets/cotenant-certificates",
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

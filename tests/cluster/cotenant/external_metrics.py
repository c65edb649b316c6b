"""Registers an adapter as the API of external metrics, which HPAs read. A cluster has one of them."""

from cluster.testbed.api import Api, Object, Refused

ADDRESS = "10.200.0.60"
"""Where the adapter listens."""
PORT = 6443
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
NAME = "v1beta1.external.metrics.k8s.io"


def register(api: Api, namespace: str, service: str) -> None:
    """Makes what the adapter's own chart and the endpoint controller would make."""
    create(
        api,
        f"/api/v1/namespaces/{namespace}/services",
        {
            "metadata": {"name": service},
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": PORT}]},
        },
    )
    create(
        api,
        f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
        {
            "metadata": {"name": service, "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": PORT, "protocol": "TCP"}],
            "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": True}}],
        },
    )
    create(
        api,
        API_SERVICES,
        {
            "metadata": {"name": NAME},
            "spec": {
                "service": {"name": service, "namespace": namespace},
                "group": "external.metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
            },
        },
    )


def until_available(api: Api, seconds: float = 60) -> None:
    """Waits until the API server has reached the adapter."""
    api.until(
        f"{API_SERVICES}/{NAME}",
        lambda seen: any(
            each["type"] == "Available" and each["status"] == "True"
            for each in seen.get("status", {}).get("conditions", ())
        ),
        seconds,
    )


def unregister(api: Api) -> None:
    api.delete(f"{API_SERVICES}/{NAME}")
    api.until_gone(f"{API_SERVICES}/{NAME}")


def create(api: Api, path: str, body: Object) -> None:
    """Creates an object, unless an earlier file of tests has left it."""
    try:
        api.create(path, body)
    except Refused as refused:
        if refused.code != 409:
            raise

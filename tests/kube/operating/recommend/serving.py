"""A Service of a real API server that leads to a server of the test."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from cotenant.kube.api.client import Client
from cotenant.kube.api.resources import PODS, SERVICES, Resource


def own_address() -> str:
    """An address of this machine that is not loopback, which endpoints may not have."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


async def serve(client: Client, namespace: str, address: str, port: int) -> None:
    """Makes what kube-prometheus-stack and the cluster would: Service, pod and endpoints."""
    labels = {"app": "kube-prometheus-stack-prometheus"}
    spec = {"ports": [{"name": "http-web", "port": 9090, "targetPort": port}]}
    await client.create(
        SERVICES, {"metadata": {"name": "prometheus", "labels": labels}, "spec": spec}, namespace
    )
    # The proxy only goes where a pod is.
    pods = PODS.raw
    containers = [{"name": "main", "image": "i"}]
    await client.create(
        pods, {"metadata": {"name": "prometheus-0"}, "spec": {"containers": containers}}, namespace
    )
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
    pod = await client.merge_patch(pods, "prometheus-0", {"status": status}, namespace, subresource="status")
    where = {"kind": "Pod", "name": "prometheus-0", "namespace": namespace, "uid": pod["metadata"]["uid"]}
    ports = [{"name": "http-web", "port": port, "protocol": "TCP"}]
    slices: Resource[dict[str, Any]] = Resource(
        dict, "EndpointSlice", "endpointslices", group="discovery.k8s.io"
    )
    meta = {"name": "prometheus-1", "labels": {"kubernetes.io/service-name": "prometheus"}}
    found = [{"addresses": [address], "conditions": {"ready": True}, "targetRef": where}]
    body = {"metadata": meta, "addressType": "IPv4", "endpoints": found, "ports": ports}
    await client.create(slices, body, namespace)
    endpoints: Resource[dict[str, Any]] = Resource(dict, "Endpoints", "endpoints")
    subsets = [{"addresses": [{"ip": address, "targetRef": where}], "ports": ports}]
    await client.create(endpoints, {"metadata": {"name": "prometheus"}, "subsets": subsets}, namespace)

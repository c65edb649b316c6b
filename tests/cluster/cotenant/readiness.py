"""Plays the kubelet's readiness probe and the endpoint controller for servers that are processes, not pods.

The EndpointSlice of the webhook's Service names all of them; one that does not answer its probe is not ready, and
the API server sends it nothing. A process of its own (`python -m cluster.cotenant.readiness`).
"""

import contextlib
import http.client
import ssl
import sys
import threading
import time
from pathlib import Path

from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.certificates import Pair

EVERY = 0.5
TIMEOUT = 1.0
FAILURES = 2
"""In a row, until an endpoint is taken out."""
LOST = (OSError, http.client.HTTPException, ValueError)


class Probe(threading.Thread):
    """Asks one server. The connection is kept while it answers: a handshake costs both sides ten times the question."""

    def __init__(self, address: str, port: int) -> None:
        super().__init__(daemon=True)
        self.address, self.port = address, port
        self.ready = False
        self._connection = http.client.HTTPSConnection(
            address, port, context=ssl._create_unverified_context(), timeout=TIMEOUT
        )

    def run(self) -> None:
        failures = 0
        while True:
            failures = 0 if self._answers() else failures + 1
            self.ready = failures == 0 or (self.ready and failures < FAILURES)
            time.sleep(EVERY)

    def _answers(self) -> bool:
        """A connection that the server closed meanwhile is no answer: the next question opens another."""
        try:
            self._connection.request("GET", "/readyz")
            response = self._connection.getresponse()
            response.read()
        except LOST:
            self._connection.close()
            return False
        if response.status != 200:
            self._connection.close()
        return response.status == 200


def endpoint_slice(service: str, port: int, addresses: dict[str, bool]) -> Object:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{service}-testbed", "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": [address], "conditions": {"ready": is_ready}}
            for address, is_ready in addresses.items()
        ],
    }


def follow(api: Api, namespace: str, service: str, port: int, addresses: list[str]) -> None:
    probes = [Probe(address, port) for address in addresses]
    for probe in probes:
        probe.start()
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/{service}-testbed"
    told: dict[str, bool] | None = None
    while True:
        found = {probe.address: probe.ready for probe in probes}
        if found != told:
            with contextlib.suppress(Refused, *LOST):
                content = endpoint_slice(service, port, found)
                api.patch(path, content, "apply", fieldManager="testbed", force="true")
                told = found
                print(f"{time.time():.3f} ready: {found}", flush=True)
        time.sleep(0.1)


def main(
    namespace: str,
    service: str,
    port: str,
    addresses: str,
    host: str,
    authority: str,
    certificate: str,
    key: str,
) -> None:
    api = Api(host, Path(authority), Pair(Path(certificate), Path(key)))
    follow(api, namespace, service, int(port), addresses.split(","))


if __name__ == "__main__":
    main(*sys.argv[1:])

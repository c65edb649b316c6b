"""The real KEDA in the testbed: operator and metrics adapter as processes, and Cotenant as KEDA's external scaler.

KEDA finds us as in any cluster: by the name of the Service and by the ClusterTriggerAuthentication of the chart. There
is no DNS in a testbed, so the name is in a file of hosts that only the testbed sees.
"""

import http.client
import shutil
import ssl
import subprocess
from pathlib import Path

from cluster import chart
from cluster.testbed import places
from cluster.testbed.api import Api
from cluster.testbed.component import Component, answers
from cluster.testbed.controlplane import ControlPlane

from . import external_metrics
from .external_metrics import ADDRESS as ADAPTER_ADDRESS
from .external_metrics import create
from .installation import Installation, _module, _own
from .objects import NAMESPACE
from .observed import define, until_served

FOLDER = places.STATE / "keda"
HOME = "keda"
"""KEDA's namespace."""
SCALER_ADDRESS = "10.96.0.45"
"""The ClusterIP of our Service for KEDA."""
SERVICE = f"cotenant-keda.{NAMESPACE}.svc"
PORT = 8445
GROUP = "/apis/keda.sh/v1alpha1"


class Keda:
    def __init__(self, control_plane: ControlPlane, cotenant: Installation) -> None:
        self.control_plane, self.cotenant = control_plane, cotenant
        self.api: Api = control_plane.api
        FOLDER.mkdir(parents=True, exist_ok=True)
        certificates = self._certificates()
        kubeconfig = control_plane.kubeconfig(
            f"system:serviceaccount:{HOME}:keda-operator", ("system:masters",)
        )
        environment = {
            "KUBECONFIG": str(kubeconfig),
            "WATCH_NAMESPACE": "",
            "POD_NAMESPACE": HOME,
            "KEDA_CLUSTER_OBJECT_NAMESPACE": HOME,
        }
        self.operator = Component(
            "keda-operator",
            [
                places.keda() / "operator",
                f"--cert-dir={certificates}",
                "--metrics-bind-address=127.0.0.1:9080",
                "--health-probe-bind-address=127.0.0.1:9081",
                "--metrics-service-bind-address=127.0.0.1:9666",
                "--zap-log-level=debug",
                "--zap-time-encoding=rfc3339nano",
            ],
            ready=answers(http.client.HTTPConnection("127.0.0.1", 9081, timeout=2), "/readyz"),
            environment=environment,
        )
        connection = http.client.HTTPSConnection(
            ADAPTER_ADDRESS, external_metrics.PORT, context=ssl._create_unverified_context(), timeout=2
        )
        self.adapter = Component(
            "keda-adapter",
            [
                places.keda() / "adapter",
                f"--bind-address={ADAPTER_ADDRESS}",
                f"--secure-port={external_metrics.PORT}",
                "--port=9082",
                f"--cert-dir={certificates}",
                f"--tls-cert-file={certificates / 'tls.crt'}",
                f"--tls-private-key-file={certificates / 'tls.key'}",
                f"--lister-kubeconfig={kubeconfig}",
                f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}",
                "--metrics-service-address=127.0.0.1:9666",
                "--metrics-service-grpc-authority=keda-operator.keda.svc",
            ],
            ready=answers(connection, "/readyz"),
            environment=environment,
        )
        self.proxy = Component(
            "keda-service-proxy",
            _module(
                "serviceproxy", NAMESPACE, "cotenant-keda", SCALER_ADDRESS, PORT, *self.cotenant._access()
            ),
        )
        self.proxy.ready = lambda: "listening" in self.proxy.tail()

    def start(self) -> None:
        for address in (SCALER_ADDRESS, ADAPTER_ADDRESS):
            _own(address)
        _name(SCALER_ADDRESS, SERVICE)
        self.install()
        for component in (self.proxy, self.operator):
            component.start()
            component.wait()
        self.adapter.start()
        self.adapter.wait()
        external_metrics.until_available(self.api)

    def stop(self) -> None:
        for component in (self.adapter, self.operator, self.proxy):
            component.stop()
        external_metrics.unregister(self.api)

    @staticmethod
    def prepare(control_plane: ControlPlane) -> None:
        """Makes what must be there before Cotenant starts: KEDA's kinds and namespace, and our objects for it."""
        for file in sorted((places.keda() / "crds").glob("*.yaml")):
            control_plane.kubectl("apply", "--server-side", "-f", str(file))
        for kind in ("scaledobjects", "triggerauthentications", "clustertriggerauthentications"):
            until_served(control_plane.api, f"{kind}.keda.sh")
        create(control_plane.api, "/api/v1/namespaces", {"metadata": {"name": HOME}})
        create(control_plane.api, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        define(control_plane)
        ours = chart.render(settings__keda__enabled=True)
        chart.apply(
            control_plane, [each for each in ours if each["metadata"]["labels"][chart.COMPONENT] == "keda"]
        )

    def install(self) -> None:
        """What KEDA's own chart and the endpoint controller would make."""
        create(
            self.api,
            f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices",
            {
                "metadata": {
                    "name": "cotenant-keda-testbed",
                    "labels": {"kubernetes.io/service-name": "cotenant-keda"},
                },
                "addressType": "IPv4",
                "ports": [{"name": "grpc", "port": PORT, "protocol": "TCP"}],
                "endpoints": [
                    {"addresses": [each], "conditions": {"ready": True}} for each in self.cotenant.addresses
                ],
            },
        )
        external_metrics.register(self.api, HOME, "keda-metrics-apiserver")

    def _certificates(self) -> Path:
        """The pair that operator and adapter show each other; KEDA's operator would make it itself."""
        names = ["keda-operator.keda.svc", "keda-metrics-apiserver.keda.svc"]
        pair = self.control_plane.authority.issue("keda", user="keda", names=names)
        folder = FOLDER / "certificates"
        folder.mkdir(exist_ok=True)
        shutil.copy(pair.certificate, folder / "tls.crt")
        shutil.copy(pair.key, folder / "tls.key")
        shutil.copy(self.control_plane.authority.pair.certificate, folder / "ca.crt")
        return folder


def _name(address: str, name: str) -> None:
    """In a file that hides the machine's own: the mount ends with the testbed."""
    hosts = FOLDER / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{address} {name}\n")
    subprocess.run(["mount", "--bind", str(hosts), "/etc/hosts"], check=True)

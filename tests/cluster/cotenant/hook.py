"""The webhook as a process of its own on a control plane, with no more rights than an installation gives it."""

import base64
import contextlib
import http.client
import json
import ssl
import sys
from typing import Any

from cluster.testbed.api import Api, Refused
from cluster.testbed.component import Component
from cluster.testbed.controlplane import ControlPlane
from cluster.testbed.init import NODE_ADDRESS

from cotenant.dialects.nvidia import Nvidia
from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.configuration import webhook_configuration
from cotenant.kube.certificates.renewal import CertificateSet, from_data
from cotenant.kube.settings import Settings

NAMESPACE = "webhook-system"
PORT = 18443
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/cotenant-certificates"
RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
SETTINGS = Settings(namespace=NAMESPACE)


class Hook:
    """The webhook's process, and what is seen of it from outside."""

    def __init__(self, control_plane: ControlPlane, kubeconfig: str) -> None:
        self.api = control_plane.api
        self._how: dict[str, Any] = {
            "kubeconfig": kubeconfig,
            "namespace": NAMESPACE,
            "address": NODE_ADDRESS,
            "port": PORT,
            "times": {"look": 0.5, "pace": 0.2, "settle": 1.0},
        }
        self.process = Component("webhook", [])

    def start(self, *, wait: bool = True, **how: Any) -> None:
        command = [sys.executable, "-m", "cluster.webhookserver", json.dumps({**self._how, **how})]
        self.process = Component("webhook", command, ready=self.ready)
        self.process.start()
        if wait:
            self.process.wait()

    def ready(self) -> bool:
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except (OSError, http.client.HTTPException, AssertionError):
            return False

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """As a client that trusts what the configuration says."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        bundle = self.bundle()
        assert bundle, "no bundle is published yet"
        context.load_verify_locations(cadata=bundle.decode())
        connection = http.client.HTTPSConnection(NODE_ADDRESS, PORT, context=context, timeout=20)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def bundle(self) -> bytes:
        client = self.api.get(f"{WEBHOOKS}/cotenant")["webhooks"][0]["clientConfig"]
        return base64.b64decode(client.get("caBundle", ""))

    def kept(self) -> CertificateSet:
        return from_data(self.api.get(SECRET).get("data", {}))

    def counts(self) -> dict[str, int]:
        text = self.ask("GET", "/metrics")[1].decode()
        lines = [line for line in text.splitlines() if line.startswith("cotenant_webhook_requests_total{")]
        return {line.split('"')[1]: int(float(line.split()[-1])) for line in lines}

    def asked(self) -> int:
        return sum(self.counts().values())


def install(api: Api) -> None:
    api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    port = {"name": "https", "port": 443, "targetPort": PORT}
    api.create(
        f"/api/v1/namespaces/{NAMESPACE}/services",
        {"metadata": {"name": "cotenant-webhook"}, "spec": {"ports": [port]}},
    )
    # There is no kube-proxy: the API server goes to these addresses itself, but to none on loopback.
    api.create(
        f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices",
        {
            "metadata": {"name": "webhook", "labels": {"kubernetes.io/service-name": "cotenant-webhook"}},
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": PORT}],
            "endpoints": [{"addresses": [NODE_ADDRESS], "conditions": {"ready": True}}],
        },
    )
    api.create(WEBHOOKS, webhook_configuration(SETTINGS, Dialects(nvidia=Nvidia(enabled=True))))


def give_rights(api: Api, user: str) -> None:
    """All that the keeper needs, and nothing more."""
    subjects = [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]
    changes = ["get", "list", "watch", "patch"]
    secrets = [
        {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["create"]},
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": ["cotenant-certificates", "cotenant-agent-certificate"],
            "verbs": changes,
        },
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["cotenant-ca", "cotenant-statistics"],
            "verbs": changes,
        },
    ]
    webhooks = [
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["mutatingwebhookconfigurations"],
            "resourceNames": ["cotenant"],
            "verbs": changes,
        }
    ]
    metadata = {"name": "cotenant-webhook-test"}
    own = f"{RIGHTS}/namespaces/{NAMESPACE}"
    api.create(f"{own}/roles", {"metadata": metadata, "rules": secrets})
    api.create(f"{RIGHTS}/clusterroles", {"metadata": metadata, "rules": webhooks})
    role = {"apiGroup": "rbac.authorization.k8s.io", "name": "cotenant-webhook-test"}
    api.create(
        f"{own}/rolebindings",
        {"metadata": metadata, "subjects": subjects, "roleRef": {**role, "kind": "Role"}},
    )
    api.create(
        f"{RIGHTS}/clusterrolebindings",
        {"metadata": metadata, "subjects": subjects, "roleRef": {**role, "kind": "ClusterRole"}},
    )


def forget(api: Api) -> None:
    with contextlib.suppress(Refused):
        api.delete(SECRET)

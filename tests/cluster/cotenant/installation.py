"""Cotenant in the testbed: its objects, its servers and agent as processes, and kube-scheduler set up to ask it."""

import base64
import contextlib
import http.client
import json
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import warm
from cluster.testbed import places
from cluster.testbed.api import Object, Refused, pause
from cluster.testbed.component import Component, answers
from cluster.testbed.controlplane import ControlPlane

from cotenant.dialects.registry import Dialects
from cotenant.hardware.standin.spec import parse_spec
from cotenant.kube.settings import Settings
from cotenant.settings.loading import read_settings

from . import objects, toml
from .accounts import amount
from .objects import EXTENDER_ADDRESS, NAMESPACE

FOLDER = places.STATE / "cotenant"
EXTENDER_PORT = 8444
WEBHOOK_PORT = 8443
AGENT_PORT = 8889
LOST = (OSError, http.client.HTTPException, ValueError)


class Installation:
    """Started by `start_cotenant` (conftest.py). Every part is a Component that a test may kill, pause and restart."""

    def __init__(
        self,
        control_plane: ControlPlane,
        *,
        servers: int = 2,
        settings: Mapping[str, Any] | None = None,
        policies: bool = False,
    ) -> None:
        """`settings`: what differs from the defaults, as in a settings file, for servers and agent.

        `policies`: the chart's are in force, and the servers have the rights of their account and no others.
        """
        self.control_plane = control_plane
        self.api = control_plane.api
        self._base = toml.over(
            {
                "namespace": NAMESPACE,
                "kubeconfig": str(control_plane.kubeconfig()),
                "scaler": {"allow_loopback": True},  # servers and queues are processes of one machine here
            },
            settings or {},
        )
        self.settings: Settings = read_settings(Settings, self._base, {})
        self.dialects: Dialects = self.settings.dialects
        self.policies = policies
        self.addresses = [f"10.200.0.{number + 1}" for number in range(servers)]
        FOLDER.mkdir(parents=True, exist_ok=True)
        self.servers = [self._server(address) for address in self.addresses]
        self.agent: Component | None = None
        access = self._access()
        self.proxy = Component(
            "service-proxy",
            _module(
                "serviceproxy", NAMESPACE, self.settings.extender.service, EXTENDER_ADDRESS, 443, *access
            ),
        )
        self.proxy.ready = lambda: "listening" in self.proxy.tail()
        self.readiness = Component(
            "readiness",
            _module(
                "readiness",
                NAMESPACE,
                self.settings.webhook.service,
                WEBHOOK_PORT,
                ",".join(self.addresses),
                *access,
            ),
        )

    def start(self) -> None:
        for address in (EXTENDER_ADDRESS, *self.addresses):
            _own(address)
        objects.create(self.api, self.settings)
        if self.policies:
            objects.create_policies(self.control_plane)
        for component in (*self.servers, self.proxy, self.readiness):
            component.start()
        for component in (*self.servers, self.proxy):
            component.wait()
        self.wait()
        self.schedule()

    def stop(self) -> None:
        """Nothing is left of it, so that tests of other files find the cluster as it was."""
        if self.agent is not None:
            self._clear(self.agent_settings.agent.node)
            self.agent.stop()
            self._forget_cards(self.agent_settings.agent.node)
        for component in (*self.servers, self.proxy, self.readiness):
            component.stop()
        objects.delete(self.api)
        if self.policies:
            objects.delete_policies(self.control_plane)
        self.control_plane.schedule_with()

    def start_agent(self, node: str, simulate: str, **changes: Any) -> Component:
        """On the real node, with these simulated cards. Ready once the kubelet knows the slots and the node its cards."""
        agent = toml.over(
            {"node": node, "simulate": simulate, "slots": f"/run/cotenant-{time.monotonic_ns()}"},
            changes,
        )
        self.agent_settings: Settings = read_settings(Settings, toml.over(self._base, {"agent": agent}), {})
        file = FOLDER / "agent.toml"
        file.write_text(toml.write(toml.over(self._base, {"agent": agent})))
        self.agent = Component("cotenant-agent", [*COTENANT, "agent", "--settings", file])
        sizes = [spec.model.total - spec.model.reserved for spec in parse_spec(simulate)]
        self.agent.ready = lambda: self._shows_cards(node, sizes)
        self.agent.start()
        self.agent.wait()
        return self.agent

    def use_agent(self, node: str, simulate: str) -> None:
        """Other cards than before on the same node: another agent with another folder, and none of the pods before."""
        if self.agent is not None:
            self._clear(node)
            self.agent.stop()
        self.start_agent(node, simulate)

    def _clear(self, node: str) -> None:
        for each in self.api.items("/apis/apps/v1/deployments"):
            meta = each["metadata"]
            self.api.delete(f"/apis/apps/v1/namespaces/{meta['namespace']}/deployments/{meta['name']}")
        while there := self.api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node}"):
            for each in there:
                meta = each["metadata"]
                with contextlib.suppress(Refused):
                    self.api.delete(
                        f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", gracePeriodSeconds=1
                    )
            time.sleep(0.5)

    def _forget_cards(self, node: str) -> None:
        """An agent that stops withdraws nothing, since pods go on; here the node shall be as it was before."""
        slots = "cotenant.dev/gpu-slot"  # the kubelet's own
        none = dict.fromkeys(name for name in self.dialects.resources if name != slots)
        annotations = {"cotenant.dev/gpus": None}
        conditions = [{"$patch": "delete", "type": "cotenant.dev/GPUsHealthy"}]
        self.api.patch(
            f"/api/v1/nodes/{node}/status",
            {
                "metadata": {"annotations": annotations},
                "status": {"capacity": none, "conditions": conditions},
            },
            kind="strategic",
        )

    def standin(self) -> Path:
        """The file that all who use the agent's simulated cards share."""
        folder = Path(self.agent_settings.agent.slots) / "standin"
        found = [each for each in folder.rglob("*") if each.is_file() and ".so" not in each.name]
        if len(found) != 1:
            raise AssertionError(f"which of {found} is the stand-in's state?")
        return found[0]

    def wait(self, seconds: float = 60) -> None:
        """Until all that was started is up: one leads, the Service leads to it, and every webhook is reachable."""
        began = time.monotonic()
        while not self.up():
            if time.monotonic() > began + seconds:
                logs = "\n".join(f"--- {each.name}\n{each.tail()}" for each in (*self.servers, self.proxy))
                raise AssertionError(f"Cotenant was not up in {seconds:.0f} s:\n{logs}")
            pause(began)

    def up(self) -> bool:
        own = [*self.servers, *([self.agent] if self.agent else ())]
        parts = [*own, self.control_plane.apiserver]
        try:
            return (
                all(each.running and each.ready() for each in parts)
                and self.control_plane.scheduler.running
                and self.leader() is not None
                and self._told_ready() == set(self.addresses)
            )
        except (Refused, *LOST):
            return False

    def leader(self) -> Component | None:
        """The server that the extender's Service leads to, if it answers as the leader."""
        addresses = self._endpoints(self.settings.extender.service)
        for address, server in zip(self.addresses, self.servers, strict=True):
            if addresses == {address} and self._leads(address):
                return server
        return None

    def _leads(self, address: str) -> bool:
        try:
            return self.asks_extender(address, "/healthz")[0] == 200
        except LOST:
            return False

    def schedule(self) -> None:
        """kube-scheduler anew, with a profile of Cotenant's beside the default one."""
        secret = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/cotenant-certificates")["data"]
        resources = sorted(self.dialects.resources)
        extender = {
            "urlPrefix": f"https://{EXTENDER_ADDRESS}",
            "enableHTTPS": True,
            "tlsConfig": {
                "serverName": f"{self.settings.extender.service}.{NAMESPACE}.svc",
                "caData": secret["bundle.crt"],
                "certData": secret["scheduler.crt"],
                "keyData": secret["scheduler.key"],
            },
            "filterVerb": "choose",
            "prioritizeVerb": "prioritize",
            "preemptVerb": "preempt",
            "bindVerb": "bind",
            "weight": 1000,
            "httpTimeout": "5s",
            "nodeCacheCapable": True,
            "ignorable": False,
            "managedResources": [{"name": name, "ignoredByScheduler": False} for name in resources],
        }
        self.control_plane.schedule_with(
            profiles=[{"schedulerName": "default-scheduler"}, {"schedulerName": "cotenant"}],
            percentageOfNodesToScore=100,
            # Who was refused by a server that was away is tried again soon after it is back.
            podInitialBackoffSeconds=1,
            podMaxBackoffSeconds=2,
            extenders=[extender],
        )

    def inspect(self) -> Object:
        """What the leader itself says is charged, card by card."""
        leader = self.leader()
        if leader is None:
            raise AssertionError("no server leads")
        status, body = self.asks_extender(self.address(leader), "/gpushare-scheduler/inspect")
        if status != 200:
            raise AssertionError(f"inspect: {status} {body[:300]!r}")
        found: Object = json.loads(body)
        return found

    def asks_extender(self, address: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """As kube-scheduler does, with its certificate, but straight to one server."""
        connection = self.extender_connection(address)
        try:
            connection.request("POST" if body is not None else "GET", path, body)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def extender_connection(self, address: str) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            address, EXTENDER_PORT, context=self._scheduler_context(), timeout=5
        )

    def webhook_connection(self, address: str) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(address, WEBHOOK_PORT, context=_unverified(), timeout=5)

    def metrics(self, server: Component) -> str:
        return self._shown(server, "/metrics")

    def state(self, server: Component) -> Object:
        """Its ledger by UIDs, to the byte, and whether it leads."""
        found: Object = json.loads(self._shown(server, "/state"))
        return found

    def address(self, server: Component) -> str:
        return self.addresses[self.servers.index(server)]

    def _shown(self, server: Component, path: str) -> str:
        connection = self.webhook_connection(self.address(server))
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def _server(self, address: str) -> Component:
        name = f"cotenant-server-{address.rpartition('.')[2]}"
        file = FOLDER / f"{name}.toml"
        own: dict[str, Any] = {"server": {"address": address}}
        if self.policies:
            own["kubeconfig"] = str(self.control_plane.kubeconfig(*objects.SERVER_ACCOUNT))
        file.write_text(toml.write(toml.over(self._base, own)))
        connection = http.client.HTTPSConnection(address, WEBHOOK_PORT, context=_unverified(), timeout=2)
        return Component(
            name, [*COTENANT, "server", "--settings", file], ready=answers(connection, "/readyz")
        )

    def _scheduler_context(self) -> ssl.SSLContext:
        """The server's names are the Service's; here it is reached by its address. Files of its own: threads ask at once."""
        secret = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/cotenant-certificates")["data"]
        authority = base64.b64decode(secret["bundle.crt"]).decode()
        context = ssl.create_default_context(cadata=authority)
        context.check_hostname = False
        with tempfile.TemporaryDirectory(dir=FOLDER) as own:
            pair = [Path(own, key) for key in ("scheduler.crt", "scheduler.key")]
            for file in pair:
                file.write_bytes(base64.b64decode(secret[file.name]))
            context.load_cert_chain(*pair)
        return context

    def _endpoints(self, service: str) -> set[str]:
        path = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
        slices = self.api.items(path, labelSelector=f"kubernetes.io/service-name={service}")
        return {
            address
            for each in slices
            for endpoint in each.get("endpoints") or ()
            if (endpoint.get("conditions") or {}).get("ready") is not False
            for address in endpoint["addresses"]
        }

    def _told_ready(self) -> set[str]:
        return self._endpoints(self.settings.webhook.service)

    def _shows_cards(self, node: str, sizes: Sequence[int]) -> bool:
        """By the agent's own word, and by the node: an earlier agent's cards may still be shown there."""
        connection = http.client.HTTPSConnection("127.0.0.1", AGENT_PORT, context=_unverified(), timeout=2)
        try:
            if not answers(connection, "/readyz")():
                return False
            found = self.api.get(f"/api/v1/nodes/{node}")
        except (Refused, *LOST):
            return False
        told = json.loads(found["metadata"].get("annotations", {}).get("cotenant.dev/gpus", "{}"))
        allocatable = found["status"]["allocatable"]
        return [card["memory"] for card in told.get("cards", ())] == list(sizes) and (
            amount(allocatable.get("cotenant.dev/gpu-memory", "0")) == sum(sizes)
            and allocatable.get("cotenant.dev/gpu-slot", "0") != "0"
        )

    def _access(self) -> Sequence[object]:
        pair = self.control_plane.credentials("testbed-network", ["system:masters"])
        trusted = self.control_plane.authority.pair.certificate
        return (self.control_plane.host, trusted, pair.certificate, pair.key)


COTENANT: list[object] = [sys.executable, "-c", warm.CALL]


def _module(name: str, *arguments: object) -> list[object]:
    return [sys.executable, "-m", f"cluster.cotenant.{name}", *arguments]


def _own(address: str) -> None:
    """The bridge gets this address; it keeps those that it has."""
    subprocess.run(["ip", "address", "replace", f"{address}/32", "dev", "cni0"], check=True)


def _unverified() -> ssl.SSLContext:
    return ssl._create_unverified_context()

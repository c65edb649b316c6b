"""An agent on the real node, and pods that are bound to it with a grant, as the server would."""

import http.client
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.testbed import places
from cluster.testbed.api import Object
from cluster.testbed.cluster import Cluster
from cluster.testbed.component import Component, answers

from cotenant.core.grant import Share
from cotenant.dialects.pod_grant import PodGrant, SlotGrant, write_grant
from cotenant.hardware.standin import driver as standin

GIB = 2**30
CONTEXT = 256 << 20
ROOT = Path("/run/cotenant")
TESTS = str(Path(__file__).parents[2])
SLOT = "cotenant.dev/gpu-slot"
GRANT = "cotenant.dev/grant"
HOLDER = (Path(__file__).parents[1] / "programs" / "holder.py").read_text()
SETTINGS = """
kubeconfig = "{kubeconfig}"
[agent]
node = "{node}"
address = "127.0.0.1"
simulate = "{simulate}"
survey = "{survey}"
kubelet = "{kubelet}"
"""
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 65534,
    "seccompProfile": {"type": "RuntimeDefault"},
}


class Tenants:
    """Pods of one namespace, and the agent of their node."""

    def __init__(
        self, cluster: Cluster, settings: str = "", *, simulate: str = "2xA100-80GB", survey: str = "1s"
    ) -> None:
        """`settings`: further lines of the section [agent]."""
        self.cluster, self.api = cluster, cluster.api
        self.namespace, self._settings = "", settings
        self._simulate, self._survey = simulate, survey
        self._file = places.STATE / "device-plugin.toml"
        self.agent = self._agent([sys.executable, "-m", "cotenant.cli.main"])

    @property
    def cards(self) -> list[str]:
        return [card.uuid for card in standin.StandIn(ROOT / "standin" / "state").cards()]

    @contextmanager
    def within(self, namespace: str) -> Iterator[None]:
        """For the pods of one test: the agent is up and ready, and what they hold is free before the next one."""
        self.namespace = namespace
        if not self.agent.running:
            self.start_agent()
        self.until_offered()
        yield
        pods = f"/api/v1/namespaces/{namespace}/pods"
        self.api.request("DELETE", pods, {"gracePeriodSeconds": 1})
        self.api.until(pods, lambda left: not left["items"])

    def until_offered(self) -> None:
        """Until the kubelet has the agent's slots."""
        self.api.until(
            self.cluster.node.path, lambda node: node["status"]["allocatable"].get(SLOT) == "256", 30
        )

    def start_agent(self, kubelet: str = "/var/lib/kubelet") -> None:
        self.settle(kubelet)
        self.agent.start()
        self.agent.wait(60)

    def settle(self, kubelet: str = "/var/lib/kubelet") -> None:
        kubeconfig = self.cluster.control_plane.kubeconfig()
        made = SETTINGS.format(
            kubeconfig=kubeconfig,
            node=self.cluster.node.name,
            kubelet=kubelet,
            simulate=self._simulate,
            survey=self._survey,
        )
        self._file.write_text(made + self._settings)

    def killed_agent(self, step: str, program: str = "killed_agent") -> Component:
        """One that dies at that step of the start of the pod of that name."""
        self.settle()
        agent = self._agent([sys.executable, "-m", f"cluster.programs.{program}", step, "--"])
        agent.start()
        agent.wait(60)
        return agent

    def _agent(self, command: list[str]) -> Component:
        return Component(
            "agent-device-plugin",
            [*command, "agent", "--settings", self._file],
            ready=answers(http.client.HTTPConnection("127.0.0.1", 8889, timeout=2), "/readyz"),
            environment={"PYTHONPATH": ":".join(filter(None, (TESTS, os.environ.get("PYTHONPATH", ""))))},
        )

    def create(
        self, name: str, *containers: Object, init: tuple[Object, ...] = (), **metadata: Any
    ) -> Object:
        body = {
            "metadata": {"name": name, **metadata},
            "spec": {
                "schedulerName": "the-test",
                "containers": list(containers),
                "initContainers": list(init),
                "terminationGracePeriodSeconds": 0,
                "volumes": [{"name": "shared", "emptyDir": {}}],
            },
        }
        return self.api.create(f"/api/v1/namespaces/{self.namespace}/pods", body)

    def container(self, name: str = "main", then: str = "stay", **more: Any) -> Object:
        """As the webhook would have it."""
        annotation = f"metadata.annotations['devices.cotenant.dev/{name}']"
        return {
            "name": name,
            "image": self.cluster.python_image(),
            "imagePullPolicy": "Never",
            "command": ["python", "-c", HOLDER],
            "env": [
                {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": annotation}}},
                {"name": "THEN", "value": then},
            ],
            "resources": {"limits": {SLOT: 1}},
            "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
            **more,
        }

    def bind(self, pod: Object, annotations: dict[str, str]) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        binding = {
            "metadata": {"name": name, "uid": uid, "annotations": annotations},
            "target": {"kind": "Node", "name": self.cluster.node.name},
        }
        self.api.create(f"/api/v1/namespaces/{self.namespace}/pods/{name}/binding", binding)

    def grant(self, pod: Object, *slots: SlotGrant) -> dict[str, str]:
        """All annotations of a grant."""
        devices = {
            f"devices.cotenant.dev/{name}": ",".join(share.uuid for share in slot.shares)
            for slot in slots
            for name in (slot.container, *slot.init)
        }
        return {GRANT: write_grant(PodGrant(pod["metadata"]["uid"], slots)), **devices}

    def run(
        self, name: str, card: int, size: int, container: Object | None = None, **metadata: Any
    ) -> Object:
        """A pod with one container, granted so many bytes of that card."""
        pod = self.create(name, container or self.container(), **metadata)
        self.bind(pod, self.grant(pod, SlotGrant("main", (Share(self.cards[card], size),))))
        return pod

    def path(self, name: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{name}"

    def until_running(self, name: str, seconds: float = 60) -> Object:
        return self.api.until(self.path(name), lambda pod: pod["status"]["phase"] == "Running", seconds)

    def told(self, name: str, container: str = "main", *, seconds: float = 30, **query: str) -> Object:
        """What the container's program found, by its log, which the shim may write to as well."""
        end = time.monotonic() + seconds
        while True:
            log = self.api.get(f"{self.path(name)}/log", container=container, **query)
            if isinstance(log, dict):
                return log
            said = [line for line in str(log).splitlines() if line.startswith("{") and line.endswith("}")]
            if said:
                found: Object = json.loads(said[-1])
                return found
            assert time.monotonic() < end, f"{name}/{container} said nothing: {log}"
            time.sleep(0.1)

    def event(self, name: str, says: str, seconds: float = 40) -> str:
        """The message of a warning about this pod with these words in it."""
        end = time.monotonic() + seconds
        while True:
            found = self.api.items(
                f"/api/v1/namespaces/{self.namespace}/events", fieldSelector=f"involvedObject.name={name}"
            )
            messages = [each["message"] for each in found if each["type"] == "Warning"]
            for message in messages:
                if says in message:
                    return str(message)
            assert time.monotonic() < end, "\n".join(messages)
            time.sleep(0.1)

    def never_ran(self, name: str) -> bool:
        status = self.api.get(self.path(name))["status"]
        states = [
            state
            for each in (*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ()))
            for state in (each.get("state", {}), each.get("lastState", {}))
        ]
        return not any("running" in state or "terminated" in state for state in states)

    def slots_of(self, uid: str) -> dict[str, Object]:
        """Owners on the node's disk, by device."""
        found = {}
        for path in (ROOT / "slots").glob("*/owner.json"):
            owner = json.loads(path.read_text())
            if owner["uid"] == uid and (path.parent / "folder" / "limits").exists():
                found[path.parent.name] = owner
        return found


def uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])

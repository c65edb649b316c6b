"""Pods whose static programs pass their limit: no preload reaches them, they ask the simulated driver themselves."""

import base64
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cluster.cotenant.granted import ROOT, Tenants
from cluster.testbed.api import Object
from cluster.testbed.cluster import Cluster
from standin.static_program import build

from cotenant.hardware.standin import driver as standin

HELD = "cotenant.dev/GPULimitHeld"
PIECE = 64 << 20
STATE = ROOT / "standin" / "state"


class Held(Tenants):
    """Pods with static programs."""

    program: Path

    def static(self, name: str, pieces: int, pause: int = 0, **more: object) -> Object:
        """A container that takes so many pieces of 64 MiB, with milliseconds between them, and stays."""
        return self.container(
            name,
            command=["/static/holder", str(pieces), str(pause)],
            volumeMounts=[{"name": "static", "mountPath": "/static"}],
            **more,
        )

    def create(
        self, name: str, *containers: Object, init: tuple[Object, ...] = (), **metadata: object
    ) -> Object:
        items = {"holder": base64.b64encode(self.program.read_bytes()).decode()}
        maps = f"/api/v1/namespaces/{self.namespace}/configmaps"
        if not any(each["metadata"]["name"] == "static" for each in self.api.items(maps)):
            self.api.create(maps, {"metadata": {"name": "static"}, "binaryData": items})
        volumes = [
            {"name": "shared", "emptyDir": {}},
            {"name": "static", "configMap": {"name": "static", "defaultMode": 0o755}},
        ]
        spec = {
            "schedulerName": "the-test",
            "containers": list(containers),
            "initContainers": list(init),
            "terminationGracePeriodSeconds": 0,
            "volumes": volumes,
        }
        body = {"metadata": {"name": name, **metadata}, "spec": spec}
        return self.api.create(f"/api/v1/namespaces/{self.namespace}/pods", body)

    def got(self, name: str, container: str = "main") -> int:
        """Bytes that a static program says it has, as of its last line."""
        log = str(self.api.get(f"{self.path(name)}/log", container=container))
        found = re.findall(r'"got": (\d+)', log)
        return int(found[-1]) << 20 if found else 0

    def condition(self, name: str) -> Object | None:
        found = self.api.get(self.path(name))["status"].get("conditions", ())
        return next((each for each in found if each["type"] == HELD), None)

    def until_held(self, name: str, reason: str, seconds: float = 30, *, says: str = "") -> Object:
        def right(found: Object) -> bool:
            return bool(found["reason"] == reason and says in found["message"])

        return self._until(lambda: self.condition(name), right, seconds)

    def until_ended(self, name: str, container: str = "main", seconds: float = 30) -> Object:
        """How the container ended."""

        def ended() -> Object | None:
            statuses = self.api.get(self.path(name))["status"].get("containerStatuses", ())
            states = [each for each in statuses if each["name"] == container]
            both = [
                state.get("terminated") for each in states for state in (each["state"], each["lastState"])
            ]
            return next((each for each in both if each), None)

        return self._until(ended, lambda _: True, seconds)

    def _until(
        self, look: Callable[[], Object | None], right: Callable[[Object], bool], seconds: float
    ) -> Object:
        end = time.monotonic() + seconds
        while (found := look()) is None or not right(found):
            assert time.monotonic() < end, f"{found}\n{self.agent.tail()}"
            time.sleep(0.1)
        return found

    def events(self, name: str, reason: str) -> list[str]:
        found = self.api.items(
            f"/api/v1/namespaces/{self.namespace}/events", fieldSelector=f"involvedObject.name={name}"
        )
        return [str(each["message"]) for each in found if each["reason"] == reason]

    def limits(self) -> dict[tuple[str, str], int]:
        """Hard limits of the simulated driver, by the last part of the cgroup's path and GPU."""
        return {
            (Path(each.path).name, each.uuid): each.hard
            for each in standin.StandIn(STATE).limits()
            if Path(each.path).is_dir()
        }

    def ids(self, name: str) -> dict[str, str]:
        statuses = self.api.get(self.path(name))["status"]["containerStatuses"]
        return {each["name"]: each["containerID"].rpartition("/")[2] for each in statuses}


def started(cluster: Cluster, folder: Path, **options: str) -> Iterator[Held]:
    """An agent with simulated cards of its own; the next file finds none."""
    shutil.rmtree(ROOT / "standin", ignore_errors=True)
    tenants = Held(cluster, **options)
    tenants.program = build(folder)
    cluster.python_image()
    yield tenants
    tenants.agent.stop()
    shutil.rmtree(ROOT / "standin", ignore_errors=True)

"""Makes a Deployment of hollow pods, its queue, and the GpuScaler of docs/keda.md that decides for it and changes nothing."""

import json
import time
from collections.abc import Callable

import pages
import yaml
from cluster import chart
from cluster.testbed.api import Api, Object, pause
from cluster.testbed.controlplane import ControlPlane

from .workqueue import WorkQueue

NAME = "room-scene"
THRESHOLD = 20.0
"""Seconds: scaleDownThreshold."""
SERVICE_TIME = 0.8
"""Seconds of one message."""


class Observed:
    """What scales it, KEDA or an HPA, is the test's."""

    def __init__(self, api: Api, namespace: str, address: str) -> None:
        """`address`: where its queue is asked."""
        self.api, self.namespace = api, namespace
        self.path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{NAME}"
        self.scaler = f"/apis/cotenant.dev/v1alpha1/namespaces/{namespace}/gpuscalers"
        self._make_deployment()
        self.queue = WorkQueue(address, 9500, SERVICE_TIME, self._ready, self.api.close)
        self._make_scaler()

    def replicas(self) -> int:
        found: int = self.api.get(self.path)["spec"]["replicas"]
        return found

    def desired(self) -> int | None:
        found: int | None = self.status().get("desired")
        return found

    def status(self) -> Object:
        """The status of the GpuScaler, without what it remembers."""
        found: Object = self.api.get(f"{self.scaler}/{NAME}").get("status", {})
        found.pop("memory", None)
        return found

    def hpa(self, name: str = f"keda-hpa-{NAME}") -> Object:
        path = f"/apis/autoscaling/v2/namespaces/{self.namespace}/horizontalpodautoscalers/{name}"
        found: Object = self.api.get(path)
        return found

    def until(self, replicas: Callable[[int], bool], seconds: float) -> float:
        """Waits until the Deployment is set so; returns the seconds that it took."""
        begun = time.monotonic()
        while not replicas(seen := self.replicas()):
            if time.monotonic() - begun > seconds:
                raise AssertionError(f"{seen} replicas after {seconds:.0f} s: {self._told()}")
            pause(begun)
        return time.monotonic() - begun

    def hold(self, replicas: Callable[[int], bool], seconds: float) -> None:
        """Fails as soon as the Deployment is set to anything else within this time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            seen = self.replicas()
            assert replicas(seen), f"{seen} replicas: {self._told()}"
            time.sleep(0.1)

    def failures(self) -> list[str]:
        """What KEDA's events say about triggers that it cannot read."""
        events = self.api.items(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [each["note"] for each in events if each["reason"] == "KEDAScalerFailed"]

    def until_failed(self, because: str, seconds: float = 60) -> None:
        """Waits until one of KEDA's events has this text."""
        end = time.monotonic() + seconds
        while not any(because in text for text in self.failures()):
            assert time.monotonic() < end, f"no event of KEDA says {because!r}: {self._told()}"
            time.sleep(0.5)

    def _told(self) -> str:
        hpas = f"/apis/autoscaling/v2/namespaces/{self.namespace}/horizontalpodautoscalers"
        scalings = [each.get("status") for each in self.api.items(hpas)]
        return json.dumps(
            {"scaler": self.status(), "hpas": scalings, "events": self.failures(), **self.queue.figures}
        )

    def _ready(self) -> int:
        return int(self.api.get(self.path).get("status", {}).get("readyReplicas", 0))

    def _make_scaler(self) -> None:
        made = from_page("GpuScaler")
        made["spec"]["backlog"]["queue"] = {
            "http": {
                "url": self.queue.url,
                "path": "depth",
                "inFlight": "inFlight",
                "arrived": "arrived",
                "completed": "completed",
            }
        }
        made["spec"]["scaleDownThreshold"] = f"{THRESHOLD:.0f}s"
        self.api.create(self.scaler, made)
        self.api.until(f"{self.scaler}/{NAME}", lambda seen: seen.get("status", {}).get("desired") == 0)

    def _make_deployment(self) -> None:
        labels = {"app": NAME}
        pod = {"containers": [{"name": "main", "image": "hollow"}], "terminationGracePeriodSeconds": 0}
        self.api.create(
            self.path.rpartition("/")[0],
            {
                "metadata": {"name": NAME},
                "spec": {
                    "replicas": 0,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": pod},
                },
            },
        )


def define(control_plane: ControlPlane) -> None:
    """Applies the chart's definition of GpuScalers; returns when the API server serves them."""
    name = "gpuscalers.cotenant.dev"
    chart.apply(control_plane, [chart.named(chart.render(), "CustomResourceDefinition", name)])
    until_served(control_plane.api, name)


def until_served(api: Api, name: str) -> None:
    """Waits until the API server serves the kind of a definition."""
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
    api.until(path, lambda seen: condition(seen, "Established") == "True")


def from_page(kind: str) -> Object:
    """Returns the one manifest of this kind in docs/keda.md."""
    documents = [yaml.safe_load(text) for text in pages.manifests("keda")]
    (found,) = [each for each in documents if each.get("kind") == kind]
    return found


def condition(seen: Object, kind: str) -> str:
    """Returns the status of a condition; empty where there is none."""
    conditions = seen.get("status", {}).get("conditions") or ()
    return next((each["status"] for each in conditions if each["type"] == kind), "")

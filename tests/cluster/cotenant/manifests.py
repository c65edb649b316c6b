"""Pods as tests write them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from cluster.testbed.api import Api, Object

FOLDER = Path(__file__).parent.parent / "manifests"
PROGRAMS = Path(__file__).parent.parent / "programs"
MEMORY = "cotenant.dev/gpu-memory"
COMPUTE = "cotenant.dev/gpu-compute"
WHOLE = "cotenant.dev/gpu"
SHORT = {"memory": MEMORY, "compute": COMPUTE, "whole": WHOLE}


def container(name: str = "main", image: str = "none", program: str = "", **asked: Any) -> Object:
    """`memory`, `compute` and `whole` are our resources; others go by their full name. `program` is a file of programs/."""
    body: Object = {"name": name, "image": image, "imagePullPolicy": "Never"}
    if program:
        body["command"] = ["python", "-c", (PROGRAMS / program).read_text()]
    if asked:
        limits = {SHORT.get(key, key): str(value) for key, value in asked.items()}
        body["resources"] = {"limits": limits}
    return body


def pod(
    name: str,
    *containers: Object,
    init: Sequence[Object] = (),
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    made: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {"containers": list(containers), "terminationGracePeriodSeconds": 1, **spec},
    }
    if init:
        made["spec"]["initContainers"] = list(init)
    return made


def deployment(name: str, replicas: int, memory: str) -> Object:
    labels = {"app": name}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod("x", container(memory=memory))["spec"]},
        },
    }


def from_guide(file: str, image: str) -> list[Object]:
    """The documents of another system's user guide, word by word but for the image."""
    documents = list(yaml.safe_load_all((FOLDER / file).read_text()))
    for each in documents:
        spec = each["spec"]["template"]["spec"] if "template" in each["spec"] else each["spec"]
        for body in spec["containers"]:
            body["image"] = image
    return documents


def pods_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def running(api: Api, namespace: str, name: str, seconds: float = 60) -> Object:
    return api.until(
        f"{pods_of(namespace)}/{name}", lambda seen: seen["status"].get("phase") == "Running", seconds
    )


def bound(api: Api, namespace: str, name: str, seconds: float = 60) -> Object:
    return api.until(f"{pods_of(namespace)}/{name}", lambda seen: seen["spec"].get("nodeName"), seconds)

"""What kube-scheduler asks of the extender, asked by a test at the moment that it chooses, and what comes of it."""

import json
import time
from collections.abc import Callable

from cluster.testbed.api import Api, Object, pause
from cluster.testbed.component import Component

from .installation import LOST, Installation
from .manifests import pods_of


def ask_to_bind(cotenant: Installation, server: Component, made: Object, node: str) -> str:
    """The error, or an empty text."""
    body = {
        "PodName": made["metadata"]["name"],
        "PodNamespace": made["metadata"]["namespace"],
        "PodUID": made["metadata"]["uid"],
        "Node": node,
    }
    try:
        status, answer = cotenant.asks_extender(cotenant.address(server), "/bind", json.dumps(body).encode())
    except LOST as lost:
        return f"no answer: {lost!r}"
    error: str = json.loads(answer)["Error"]
    return error or ("" if status == 200 else str(status))


def ask_until_it_leads(cotenant: Installation, server: Component, made: Object, node: str) -> str:
    """As `ask_to_bind`; on a busy machine a lease is at times renewed too late for a Binding, and soon after it is."""
    for _ in range(20):
        error = ask_to_bind(cotenant, server, made, node)
        if "not ours now" not in error:
            break
        time.sleep(0.3)
    return error


def charged(cotenant: Installation, namespace: str) -> set[str]:
    """Names of the pods that the leader has charged."""
    return {
        held["name"]
        for each in cotenant.inspect()["nodes"]
        for device in each["devs"]
        for held in device["pods"]
        if held["namespace"] == namespace
    }


def placed(api: Api, namespace: str) -> set[str]:
    """Names of the pods that are bound by the API."""
    return {
        each["metadata"]["name"] for each in api.items(pods_of(namespace)) if each["spec"].get("nodeName")
    }


def agreed(cotenant: Installation, api: Api, namespace: str) -> bool:
    return charged(cotenant, namespace) == placed(api, namespace)


def until(true: Callable[[], object], what: str, seconds: float = 30) -> None:
    began = time.monotonic()
    while not true():
        assert time.monotonic() < began + seconds, what
        pause(began)

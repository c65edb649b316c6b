"""The line that the server serves and the line that `explain` shows are the same list."""

import json
import time
from typing import Any

import pytest
from cluster.cotenant.commands import Commands
from cluster.cotenant.gpunodes import GIB, gpu_node
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import MEMORY, container, pod, pods_of, running
from cluster.testbed.api import Api, Object
from cluster.testbed.controlplane import ControlPlane

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cotenant(start_cotenant) -> Installation:
    started: Installation = start_cotenant(servers=2)
    return started


def asking(name: str, **spec: Any) -> Object:
    return pod(name, container(memory="4Gi"), **spec)


def claims(api: Api, namespace: str) -> None:
    """One that is never bound, and one that is bound to a volume of another node."""
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    size: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    api.create(path, {"metadata": {"name": "unbound"}, "spec": {**size, "storageClassName": "nobodys"}})
    api.create(
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": f"{namespace}-elsewhere"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "",
                "local": {"path": "/nowhere"},
                "claimRef": {"namespace": namespace, "name": "elsewhere"},
                "nodeAffinity": {
                    "required": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "kubernetes.io/hostname", "operator": "In", "values": ["gone"]}
                                ]
                            }
                        ]
                    }
                },
            },
        },
    )
    api.create(
        path,
        {
            "metadata": {"name": "elsewhere"},
            "spec": {**size, "storageClassName": "", "volumeName": f"{namespace}-elsewhere"},
        },
    )
    api.until(f"{path}/elsewhere", lambda seen: seen["status"].get("phase") == "Bound")


def with_claim(name: str, claim: str) -> Object:
    return asking(name, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim}}])


def judged(api: Api, namespace: str, name: str, *words: str) -> None:
    """Until kube-scheduler, or the API server for a gated pod, has said why it is not placed."""
    api.until(
        f"{pods_of(namespace)}/{name}",
        lambda seen: any(
            each["type"] == "PodScheduled"
            and each["status"] == "False"
            and all(word in json.dumps(each) for word in words)
            for each in seen["status"].get("conditions", [])
        ),
    )


def served_line(cotenant: Installation, api: Api, namespace: str) -> list[str]:
    """By the memory of the server that leads."""
    leader = cotenant.leader()
    assert leader is not None
    by_uid = {each["metadata"]["uid"]: each["metadata"]["name"] for each in api.items(pods_of(namespace))}
    return [by_uid[uid] for uid in cotenant.state(leader)["line"]]


def until_served(
    cotenant: Installation, api: Api, namespace: str, line: list[str], seconds: float = 30
) -> None:
    end = time.monotonic() + seconds
    while (found := served_line(cotenant, api, namespace)) != line:
        assert time.monotonic() < end, found
        time.sleep(0.2)


def explained_line(commands: Commands, namespace: str) -> list[str]:
    told = commands.json("explain", "-A")
    assert [each["place"] for each in told] == list(range(1, len(told) + 1))
    return [each["target"].removeprefix(f"pod {namespace}/") for each in told]


def test_explain_shows_the_line_that_the_server_serves(
    cotenant: Installation, control_plane: ControlPlane, api: Api, namespace: str, hollow_nodes
):
    """With pods that are kept by GPUs, by CPU, by a node selector, by a volume and by a scheduling gate."""
    hollow_nodes([gpu_node(f"hollow-{namespace}", [16 * GIB, 16 * GIB])])
    claims(api, namespace)
    for number in range(2):
        api.create(pods_of(namespace), pod(f"full-{number}", container(memory="14Gi")))
        running(api, namespace, f"full-{number}")
    by_gpus = ("by-one-card", "by-one-card-too", "by-the-sum", "too-big")
    sizes = dict(zip(by_gpus, ("3Gi", "3Gi", "6Gi", "20Gi"), strict=True))
    kept = [
        pod("by-cpu", container(memory="1Gi", cpu="100")),
        asking("by-selector", nodeSelector={"kubernetes.io/hostname": "gone"}),
        with_claim("by-unbound-volume", "unbound"),
        with_claim("by-volume-elsewhere", "elsewhere"),
        asking("gated", schedulingGates=[{"name": "example.com/quota"}]),
    ]
    waiting = [pod(name, container(memory=size)) for name, size in sizes.items()]
    for body in (*kept, *waiting):
        api.create(pods_of(namespace), body)
    for name, word in zip(by_gpus, ("room on the GPUs", "room on the GPUs", MEMORY, MEMORY), strict=True):
        judged(api, namespace, name, "Unschedulable", word)
    judged(api, namespace, "by-cpu", "Unschedulable", "Insufficient cpu")
    judged(api, namespace, "by-selector", "Unschedulable", "affinity/selector")
    judged(api, namespace, "by-unbound-volume", "Unschedulable", "PersistentVolumeClaims")
    judged(api, namespace, "by-volume-elsewhere", "Unschedulable", "affinity")
    judged(api, namespace, "gated", "SchedulingGated")
    commands = Commands(control_plane)
    seen = served_line(cotenant, api, namespace)
    assert sorted(seen) == sorted(by_gpus)
    assert explained_line(commands, namespace) == seen

    first = cotenant.leader()
    assert first is not None
    first.kill()
    while cotenant.leader() in {None, first}:
        time.sleep(0.2)
    # Pods that kube-scheduler tried while no server led have an error in their status now.
    until_served(cotenant, api, namespace, seen)
    assert explained_line(commands, namespace) == seen
    first.restart()
    cotenant.wait()

    api.patch(f"{pods_of(namespace)}/gated", {"spec": {"schedulingGates": None}})
    judged(api, namespace, "gated", "Unschedulable", "room on the GPUs")
    seen = served_line(cotenant, api, namespace)
    assert sorted(seen) == sorted((*by_gpus, "gated"))
    assert explained_line(commands, namespace) == seen

"""The workload and the version of a pod, from the pod alone and within bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cotenant.dialects.registry import Dialects
from cotenant.kube.api.resources import PODS
from cotenant.kube.pods.fields import PodFields, gpu_fields
from cotenant.kube.pods.workload import WORKLOAD_FIELDS, workload_of
from cotenant.observe.view import WorkloadView

FIELDS = gpu_fields(Dialects()) | WORKLOAD_FIELDS


def read(owners: list[dict[str, Any]], labels: dict[str, str], fields: PodFields = FIELDS, **status: Any):
    """A pod as the agent keeps it."""
    body = {
        "metadata": {"name": "it", "uid": "u", "labels": labels, "ownerReferences": owners},
        "spec": {"nodeName": "n1", "containers": [{"name": "main"}]},
        "status": {"phase": "Running", **status},
    }
    return replace(PODS, keep=fields.keep).decode(msgspec.json.encode(body))


def owner(kind: str, name: str, *, controller: bool = True) -> dict[str, Any]:
    return {"apiVersion": "x/v1", "kind": kind, "name": name, "uid": "o", "controller": controller}


@pytest.mark.parametrize(
    ("owners", "labels", "found"),
    [
        ([owner("ReplicaSet", "web-7d9")], {"pod-template-hash": "7d9"}, ("web", "Deployment", "7d9")),
        (
            [owner("ReplicaSet", "web-a-b-7d9")],
            {"pod-template-hash": "7d9"},
            ("web-a-b", "Deployment", "7d9"),
        ),
        ([owner("ReplicaSet", "plain")], {}, ("plain", "ReplicaSet", "")),
        (
            [owner("ReplicaSet", "web-7d9")],
            {"pod-template-hash": "other"},
            ("web-7d9", "ReplicaSet", "other"),
        ),
        ([owner("ReplicaSet", "-7d9")], {"pod-template-hash": "7d9"}, ("-7d9", "ReplicaSet", "7d9")),
        ([owner("ReplicaSet", "web-5f")], {"rollouts-pod-template-hash": "5f"}, ("web", "Rollout", "5f")),
        ([owner("StatefulSet", "db")], {"controller-revision-hash": "db-5f"}, ("db", "StatefulSet", "db-5f")),
        ([owner("DaemonSet", "ds")], {"controller-revision-hash": "6c"}, ("ds", "DaemonSet", "6c")),
        ([owner("Job", "train")], {}, ("train", "Job", "")),
        ([owner("ReplicationController", "rc")], {}, ("rc", "ReplicationController", "")),
        ([owner("RayCluster", "ray")], {}, ("ray", "RayCluster", "")),
        ([], {}, ("it", "Pod", "")),
        ([owner("Node", "n1", controller=False)], {}, ("it", "Pod", "")),
        ([owner("A", "a", controller=False), owner("Job", "b")], {}, ("b", "Job", "")),
    ],
)
def test_the_workload_is_what_controls_the_pod(owners, labels, found):
    assert workload_of(read(owners, labels)) == WorkloadView(*found)


def test_only_what_is_needed_is_kept_and_within_bounds():
    owners = [owner("K" * 5000, "n" * 5000), *(owner("X", f"x{at}", controller=False) for at in range(100))]
    pod = read(owners, {"pod-template-hash": "7d9", "app": "web"})
    (kept,) = pod.metadata.owner_references
    assert (len(kept.kind), len(kept.name), kept.uid) == (253, 253, "")
    assert pod.metadata.labels == {"pod-template-hash": "7d9"}
    assert read(owners, {}, gpu_fields(Dialects())).metadata.owner_references == ()


def test_container_ids_of_pods_without_gpu_are_kept_where_they_are_needed():
    statuses = [{"name": "main", "containerID": "containerd://abc", "state": {"running": {}}}] * 300
    with_ids = FIELDS | PodFields(container_ids=True)
    pod = read([], {}, with_ids, containerStatuses=statuses)
    assert len(pod.status.container_statuses) == 256
    assert pod.status.container_statuses[0].container_id == "containerd://abc"
    assert read([], {}, FIELDS, containerStatuses=statuses).status.container_statuses == ()
    ended = read([], {}, with_ids, containerStatuses=statuses, phase="Succeeded")
    assert ended.status.container_statuses == ()

"""Pods and nodes as JSON, and what a cluster does with them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from cotenant.dialects import names
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.resources import PODS
from cotenant.kube.nodes.gpus import VERSION, NodeCard, NodeGpus, write_gpus
from cotenant.kube.pods.pod_json import annotations_of, containers_of
from cotenant.kube.pods.slots import PodDemand, slots_of_pod

MEMORY = "cotenant.dev/gpu-memory"
COMPUTE = "cotenant.dev/gpu-compute"
WHOLE = "cotenant.dev/gpu"
SLOT = "cotenant.dev/gpu-slot"
GI = 2**30

KEYS = (
    *("spec", "metadata", "annotations", "containers", "initContainers", "name", "resources"),
    *("limits", "requests", "env", MEMORY, COMPUTE, WHOLE, SLOT, "aliyun.com/gpu-mem"),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=20,
)
"""Anything at all, in the words that pods use."""


def container(name: str, *, sidecar: bool = False, **limits: object) -> dict[str, Any]:
    """`memory`, `compute` and `whole` are ours; any other resource is given as it is."""
    short = {"memory": MEMORY, "compute": COMPUTE, "whole": WHOLE}
    asked = {short.get(key, key): value for key, value in limits.items()}
    body: dict[str, Any] = {"name": name, "image": "example/cuda"}
    if asked:
        body["resources"] = {"limits": asked}
    if sidecar:
        body["restartPolicy"] = "Always"
    return body


def pod(
    *containers: dict[str, Any],
    init: Sequence[dict[str, Any]] = (),
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "it"},
        "spec": {"containers": list(containers), **spec},
    }
    if init:
        body["spec"]["initContainers"] = list(init)
    if annotations is not None:
        body["metadata"]["annotations"] = dict(annotations)
    return body


def slots(body: Mapping[str, Any], dialects: Dialects | None = None) -> PodDemand:
    return slots_of_pod(containers_of(body), annotations_of(body), dialects or Dialects())


def applied(document: Any, patch: Sequence[Mapping[str, Any]]) -> Any:
    """A JSON patch applied by the letter of RFC 6902: what it names must be there, or must not."""
    result = copy.deepcopy(document)
    for operation in patch:
        *parents, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        ]
        place = result
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        key: Any = int(last) if isinstance(place, list) else last
        if operation["op"] == "add":
            assert isinstance(place, dict)
            assert key not in place, operation
            place[key] = copy.deepcopy(operation["value"])
        elif operation["op"] == "replace":
            assert isinstance(place, list) or key in place, operation
            place[key] = copy.deepcopy(operation["value"])
        else:
            assert operation["op"] == "remove"
            del place[key]
    return result


def defaulted(body: Mapping[str, Any]) -> dict[str, Any]:
    """As the API server stores a pod: requests follow limits, a scheduler is named."""
    result: dict[str, Any] = copy.deepcopy(dict(body))
    spec = result["spec"]
    spec.setdefault("schedulerName", "default-scheduler")
    for each in (*(spec.get("initContainers") or ()), *spec["containers"]):
        resources = each.setdefault("resources", {})
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    return result


def counted_by_kubernetes(body: Mapping[str, Any], resource: str, read: Any) -> int:
    """A pod's request as quotas and kube-scheduler count it: containers and sidecars add up, and a plain init
    container counts with the sidecars before it where that is more.
    """

    def asked(each: Mapping[str, Any]) -> int:
        return int(read(((each.get("resources") or {}).get("requests") or {}).get(resource, "0")))

    sidecars = most = 0
    for each in body["spec"].get("initContainers") or ():
        if each.get("restartPolicy") == "Always":
            sidecars += asked(each)
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + asked(each))
    return max(most, sidecars + sum(asked(each) for each in body["spec"]["containers"]))


def pod_json(
    name: str,
    memory: str | None = "4Gi",
    *,
    uid: str | None = None,
    priority: int = 0,
    created: str = "2030-01-01T00:00:00Z",
    node: str = "",
    annotations: dict[str, str] | None = None,
    **resources: str,
) -> dict[str, Any]:
    asked = {
        **({} if memory is None else {MEMORY: memory}),
        **{k.replace("__", "/"): v for k, v in resources.items()},
    }
    return {
        "metadata": {
            "name": name,
            "namespace": "web",
            "uid": uid or f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": created,
            "annotations": annotations or {},
        },
        "spec": {
            "nodeName": node,
            "priority": priority,
            "containers": [{"name": "main", "resources": {"limits": asked, "requests": asked}}],
        },
        "status": {"phase": "Pending"},
    }


def node_json(
    name: str, *cards: int, outside: dict[int, int] | None = None, **allocatable: str
) -> dict[str, Any]:
    """Cards by their GiB."""
    told = NodeGpus(
        VERSION,
        tuple(
            NodeCard(
                f"GPU-{name}-{at}", at, "NVIDIA A100", size * GI, outside=(outside or {}).get(at, 0) * GI
            )
            for at, size in enumerate(cards)
        ),
    )
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "annotations": {names.GPUS: write_gpus(told)},
        },
        "status": {
            "allocatable": {"cpu": "64", "pods": "110", MEMORY: f"{sum(cards)}Gi", **allocatable},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def unschedulable(body: dict[str, Any]) -> None:
    body["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]


def typed(body: dict[str, Any]) -> Pod:
    return PODS.decode(msgspec.json.encode(body))

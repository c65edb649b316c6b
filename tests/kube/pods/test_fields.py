"""What the server remembers of a pod does not grow as its author likes."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from cotenant.dialects import names
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.resources import PODS
from cotenant.kube.pods.demand import demand_of
from cotenant.kube.pods.fields import gpu_fields
from cotenant.kube.pods.requests import pod_requests
from cotenant.kube.pods.unschedulable import is_unschedulable, unschedulable_message

KEPT = replace(PODS, keep=gpu_fields(Dialects()).keep)


def body(annotations: dict[str, str], **metadata: Any) -> dict[str, Any]:
    env = [{"name": f"V{at}", "value": "x"} for at in range(100)]
    limits = {names.GPU_MEMORY: "8Gi", names.GPU_SLOT: "1"}
    main = {"name": "main", "resources": {"limits": limits, "requests": limits}, "env": env}
    meta = {"name": "it", "uid": "u", "resourceVersion": "7", "annotations": annotations, **metadata}
    return {"metadata": meta, "spec": {"containers": [main]}, "status": {"phase": "Pending"}}


def test_all_that_counts_is_kept() -> None:
    counts = {
        names.GRANT: "{}",
        names.RETRY: "1",
        names.GPU_MODEL: "A100",
        names.GPU_UUID: "GPU-1",
        names.PLACEMENT: "spread",
        names.ENFORCE: "warn",
        names.gpu_count("main"): "2",
        names.devices("main"): "GPU-1",
        "ALIYUN_COM_GPU_MEM_IDX": "0",
        "kubernetes.io/config.mirror": "x",
    }
    whole = msgspec.json.encode(body({**counts, "note": "x", names.gpu_count("nobody"): "3"}))
    kept = KEPT.decode(whole)
    assert kept.metadata.annotations == counts
    assert (kept.metadata.uid, kept.metadata.resource_version) == ("u", "7")
    assert kept.status == PODS.decode(whole).status
    (slot,) = demand_of(kept, Dialects()).slots
    assert (slot.demand.gpus, slot.demand.models) == (2, ("A100",))


def test_a_list_of_pods_with_thousands_of_annotations_labels_and_variables_stays_small() -> None:
    annotations = {f"{at}": "" for at in range(20_000)}
    pods = [body(annotations, labels={f"l{at}": "" for at in range(1000)}) for _ in range(50)]
    page = msgspec.json.encode({"metadata": {"resourceVersion": "9"}, "items": pods})
    tracemalloc.start()
    read = KEPT.decode_page(page)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(read.items or ()) == 50
    assert read.metadata.resource_version == "9"
    assert most < 10 * 2**20, "all of it would be more than 70 MiB"


def test_resources_that_are_read_are_kept_before_any_number_of_others_of_our_domain() -> None:
    pod = body({})
    more = {f"{names.DOMAIN}/a{at:02}": "0" for at in range(40)}
    resources = pod["spec"]["containers"][0]["resources"]
    resources["limits"] = resources["requests"] = {**more, **resources["limits"]}
    (main,) = KEPT.decode(msgspec.json.encode(pod)).spec.containers or ()
    assert (main.resources.limits[names.GPU_MEMORY], main.resources.limits[names.GPU_SLOT]) == ("8Gi", "1")
    assert len(main.resources.limits) == 32


MANY = {f"hugepages-{at}": "1" for at in range(20_000)}
"""The API server takes as many of them as fit a request."""
PHASES = [("Pending", ""), ("Running", "n1"), ("Failed", "n1")]


def stored(phase: str, node: str, *, gpu: bool, **spec: Any) -> dict[str, Any]:
    written = body({})
    if not gpu:
        asked = {"cpu": "500m", "memory": "2Gi"}
        written["spec"]["containers"][0]["resources"] = {"limits": asked, "requests": asked}
    written["spec"] |= {"nodeName": node, **spec}
    written["status"]["phase"] = phase
    return written


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize(("phase", "node"), PHASES)
@pytest.mark.parametrize(
    "spec",
    [
        {"schedulerName": "x" * 1_000_000},
        {"resources": {"requests": MANY, "limits": MANY}},
        {"resources": {"limits": MANY}},
        {"overhead": MANY},
        {"schedulingGates": [{"name": f"example.com/{at}"} for at in range(20_000)]},
    ],
    ids=["scheduler", "pod", "pod-limits", "overhead", "gates"],
)
def test_no_field_of_the_pod_as_a_whole_is_kept_at_length(
    spec: dict[str, Any], phase: str, node: str, gpu: bool
) -> None:
    kept = KEPT.decode(msgspec.json.encode(stored(phase, node, gpu=gpu, **spec)))
    assert len(msgspec.json.encode(kept)) < 4000


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize(("phase", "node"), PHASES)
def test_no_message_of_the_status_is_kept_at_length(phase: str, node: str, gpu: bool) -> None:
    """A scheduler names what the author asked for; a registry's words are in a container's state."""
    words = "0/3 nodes are available: 3 Insufficient cotenant.dev/gpu-memory, " + "x" * 1_000_000
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    written = stored(phase, node, gpu=gpu)
    written["status"] |= {
        "reason": words,
        "message": words,
        "conditions": [scheduled, {"type": "example.com/gate", "status": "False", "message": words}],
        "containerStatuses": [
            {"name": "main", "containerID": "containerd://1", "state": {"waiting": {"message": words}}}
        ],
    }
    kept = KEPT.decode(msgspec.json.encode(written))
    assert len(msgspec.json.encode(kept)) < 16_000
    if gpu and phase == "Pending":
        assert is_unschedulable(kept)
        assert unschedulable_message(kept) == words[:8192]


@pytest.mark.parametrize("gpu", [True, False])
@pytest.mark.parametrize("field", ["resources", "overhead"])
def test_cpu_and_memory_count_however_many_other_resources_are_before_them(field: str, gpu: bool) -> None:
    asked = {**MANY, "cpu": "1500m", "memory": "1Gi"}
    spec = {"resources": {"requests": asked}} if field == "resources" else {"overhead": asked}
    whole = msgspec.json.encode(stored("Running", "n1", gpu=gpu, **spec))
    kept, before = pod_requests(KEPT.decode(whole)), pod_requests(PODS.decode(whole))
    for name in ("cpu", "memory", "pods"):
        assert kept[name] == before[name]

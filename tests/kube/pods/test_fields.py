"""What the server remembers of a pod does not grow as its author likes."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import msgspec

from cotenant.dialects import names
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.resources import PODS
from cotenant.kube.pods.demand import demand_of
from cotenant.kube.pods.fields import gpu_fields

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

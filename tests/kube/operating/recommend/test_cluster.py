"""What a cluster tells about its pods: whose they are, what they ask for, and in which words."""

from __future__ import annotations

from typing import Any

import pytest
from kube.fakeapi import FakeApi
from kube.operating import clusters

from cotenant.core.rightsizing.cards import Asked
from cotenant.kube.api.resources import NODES, PODS
from cotenant.kube.operating.recommend.cluster import read_cluster

GI = 2**30


def body(name: str, limits: dict[str, str], **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "annotations": {key.replace("_", "/"): value for key, value in annotations.items()},
        },
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    }


@pytest.mark.asyncio
async def test_what_pods_ask_for_now_on_one_gpu_and_how_they_write_it() -> None:
    api = FakeApi()
    memory = "cotenant.dev/gpu-memory"
    api.put(PODS, body("native", {memory: "8Gi"}), "team")
    api.put(PODS, body("two", {memory: "8Gi"}, **{"gpu-count.cotenant.dev_main": "2"}), "team")
    api.put(PODS, body("aliyun", {memory: "8Gi", "aliyun.com/gpu-mem": "8"}), "team")
    api.put(PODS, body("volcano", {memory: "8Gi", "volcano.sh/gpu-memory": "8192"}), "team")
    api.put(PODS, body("nvidia", {"nvidia.com/gpu": "1"}), "team")
    api.put(PODS, body("sliced", {"nvidia.com/gpu.shared": "1", "cpu": "1"}), "team")
    api.put(PODS, body("mig", {"nvidia.com/mig-1g.10gb": "1"}), "team")
    api.put(PODS, body("none", {"nvidia.com/hostdev": "1"}), "team")
    api.put(PODS, {**body("ended", {memory: "8Gi"}), "status": {"phase": "Succeeded"}}, "team")
    found = await read_cluster(api)  # type: ignore[arg-type]
    asked = {pod: size for (_, pod, _), size in found.asked.items()}
    assert asked == {"native": 8 * GI, "two": 4 * GI, "aliyun": 8 * GI, "volcano": 8 * GI}
    spelled = {pod: words for (_, pod, _), words in found.spellings.items()}
    assert spelled == {
        "aliyun": ("aliyun.com/gpu-mem", GI, ()),
        "volcano": ("volcano.sh/gpu-memory", 2**20, ()),
        "nvidia": (memory, 1, ("nvidia.com/gpu",)),
        "sliced": (memory, 1, ("nvidia.com/gpu.shared",)),
        "mig": (memory, 1, ("nvidia.com/mig-1g.10gb",)),
    }
    assert ("team", "ended") not in found.pods


@pytest.mark.asyncio
async def test_gpus_that_work_and_what_grants_hold() -> None:
    import msgspec

    api = FakeApi()
    node = clusters.node("n1", [80 * GI, 80 * GI], problems={1: "lost"})
    api.put(NODES, msgspec.to_builtins(node))
    found = await read_cluster(api)  # type: ignore[arg-type]
    assert [[gpu.memory for gpu in machine] for machine in found.machines] == [[80 * GI]]
    assert found.held == {}
    assert Asked(4 * GI) == Asked(4 * GI, 1)

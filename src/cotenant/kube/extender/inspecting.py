"""Answers `inspect` as gpushare-scheduler-extender does: which pod holds what on which GPU."""

from __future__ import annotations

from typing import Any

from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Pod
from cotenant.kube.api.store import Store
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger


def inspect(
    cluster: ClusterLedger, pods: Store[Pod], dialects: Dialects, only: str | None = None
) -> dict[str, Any]:
    """Returns nodes with GPUs, all or one. Amounts are in units of `aliyun.com/gpu-mem`, use rounded up."""
    names = [name for name in cluster.nodes if only in {None, name} and cluster.ledger(name).gpus]
    if only is not None and not names:
        return {"nodes": [], "error": f"no node {only} with GPUs"}
    return {"nodes": [_node(cluster, pods, name, dialects.aliyun.bytes_each) for name in sorted(names)]}


def _node(cluster: ClusterLedger, pods: Store[Pod], name: str, unit: int) -> dict[str, Any]:
    held: dict[str, dict[str, int]] = {}
    for uid in cluster.pods_on(name):
        charged = cluster.charged(uid)
        for slot in charged[1].slots if charged else ():
            for share in slot.shares:
                by_pod = held.setdefault(share.uuid, {})
                by_pod[uid] = by_pod.get(uid, 0) + share.memory
    devices = [
        {
            "id": gpu.index,
            "totalGPU": gpu.memory // unit,
            "usedGPU": _used(sum(held.get(gpu.uuid, {}).values()), gpu.memory, unit),
            "pods": [_pod(pods.get(uid), uid, used, unit) for uid, used in held.get(gpu.uuid, {}).items()],
        }
        for gpu in sorted(cluster.ledger(name).gpus, key=lambda gpu: gpu.index)
    ]
    return {
        "name": name,
        "totalGPU": sum(device["totalGPU"] for device in devices),
        "usedGPU": sum(device["usedGPU"] for device in devices),
        "devs": devices,
    }


def _used(size: int, card: int, unit: int) -> int:
    """Returns the used units. A full GPU is not shown as more than it has, however either is rounded."""
    return min(-(-size // unit), max(card // unit, size // unit))


def _pod(pod: Pod | None, uid: str, used: int, unit: int) -> dict[str, Any]:
    meta = pod.metadata if pod is not None else None
    return {
        "name": meta.name if meta else uid,
        "namespace": meta.namespace if meta else "",
        "usedGPU": -(-used // unit),
    }

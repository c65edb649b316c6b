"""Pods with grants, cards and slots, as tests of the agent need them."""

import msgspec
from kube.fakeapi import FakeApi

from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.dialects.pod_grant import PodGrant, SlotGrant, write_grant
from cotenant.hardware import libraries
from cotenant.hardware.enforcers.shim import Shim
from cotenant.hardware.slots import limits_of
from cotenant.kube.agent.slots.node_slots import NodeSlots
from cotenant.kube.agent.slots.owner import SlotOwner
from cotenant.kube.api.objects import Container, Meta, Pod, PodSpec, PodStatus
from cotenant.kube.api.resources import NAMESPACES, PODS

GIB = 2**30
NODE = "n1"
A = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
B = "GPU-bbbbbbbb-0000-0000-0000-000000000000"
CARDS = {A: GPU(A, 0, "T4", 16 * GIB), B: GPU(B, 1, "T4", 16 * GIB)}


def pod(
    name="web",
    *slots,
    uid="u-1",
    node=NODE,
    phase="Running",
    grant=None,
    annotations=None,
    namespace="default",
):
    """`slots` are (container, *shares); a tuple of names for its init containers may come last."""
    given = tuple(
        SlotGrant(
            container,
            tuple(share for share in rest if isinstance(share, Share)),
            next((init for init in rest if isinstance(init, tuple)), ()),
        )
        for container, *rest in slots
    )
    text = grant if grant is not None else (write_grant(PodGrant(uid, given)) if given else None)
    written = {**(annotations or {}), **({"cotenant.dev/grant": text} if text is not None else {})}
    return Pod(
        Meta(name=name, namespace=namespace, uid=uid, annotations=written),
        PodSpec(node_name=node, containers=tuple(Container(each.container) for each in given)),
        PodStatus(phase=phase),
    )


def api_with(*pods: Pod, labels=None) -> FakeApi:
    """An API server with these pods; `labels` are those of their namespaces."""
    api = FakeApi()
    for namespace in {"default", *(each.metadata.namespace for each in pods)}:
        api.put(NAMESPACES, {"metadata": {"name": namespace, "labels": labels or {}}})
    for each in pods:
        api.put(PODS, msgspec.to_builtins(each), each.metadata.namespace)
    return api


def shimmed(root) -> NodeSlots:
    """The slots of a node whose containers are held by the shim."""
    return NodeSlots(root, Shim(libraries.shim(), root))


def make(slots: NodeSlots, device, *shares, uid="u-1", name="web", container="main", mode="enforce"):
    owner = SlotOwner(uid, "default", name, container)
    slots.make(device, owner, shares, limits_of(uid, mode, shares, lambda _: 1))
    return slots.find(device)

"""Pods with grants, cards and slots, as tests of the agent need them."""

from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.dialects.pod_grant import PodGrant, SlotGrant, write_grant
from cotenant.hardware import libraries
from cotenant.hardware.enforcers.shim import Shim
from cotenant.hardware.slots import limits_of
from cotenant.kube.agent.slots.node_slots import NodeSlots
from cotenant.kube.agent.slots.owner import SlotOwner
from cotenant.kube.api.errors import NotFound
from cotenant.kube.api.objects import Container, Generic, Meta, Pod, PodSpec, PodStatus
from cotenant.kube.api.resources import PODS

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


class Api:
    """What the API server would say."""

    def __init__(self, *pods: Pod, labels=None) -> None:
        self.pods = {(each.metadata.namespace, each.metadata.name): each for each in pods}
        self.labels = labels or {}
        self.fails: Exception | None = None
        self.asked = []

    async def get(self, resource, name, namespace=None, *, within=None):
        self.asked.append((resource.plural, name))
        if self.fails:
            raise self.fails
        if resource is not PODS:
            return Generic(Meta(name=name, labels=self.labels))
        try:
            return self.pods[namespace, name]
        except KeyError:
            raise NotFound(f"get pods {namespace}/{name}: not found") from None


def shimmed(root) -> NodeSlots:
    """The slots of a node whose containers are held by the shim."""
    return NodeSlots(root, Shim(libraries.shim(), root))


def make(slots: NodeSlots, device, *shares, uid="u-1", name="web", container="main", mode="enforce"):
    owner = SlotOwner(uid, "default", name, container)
    slots.make(device, owner, shares, limits_of(uid, mode, shares, lambda _: 1))
    return slots.find(device)

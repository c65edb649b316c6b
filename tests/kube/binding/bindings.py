"""A node, pods that are to be bound to it, and what must be true afterwards."""

from kube.builders import node_json, pod_json
from kube.world import World

from cotenant.dialects import names
from cotenant.dialects.pod_grant import read_grant
from cotenant.kube.api.resources import PODS


def world(*cards: int, **pods: str) -> World:
    made = World()
    made.api.add_node(node_json("n1", *(cards or (16,))))
    for name, memory in (pods or {"a": "4Gi"}).items():
        made.api.add(pod_json(name, memory))
    return made


def touch(api):
    """Somebody else writes the pod's status."""
    api.change("a", lambda it: it["status"].update(message="touched"))


def nothing_is_under_way(at: World) -> None:
    assert at.feed.under_way == set()
    assert at.binder._doubts == {}


def bound_and_charged(at: World, name: str = "a", node: str = "n1") -> None:
    pod = at.api.truth(name)
    assert pod.spec.node_name == node
    grant = read_grant(pod.metadata.annotations[names.GRANT], pod.metadata.uid)
    assert at.cluster.charged(pod.metadata.uid) == (node, grant)
    nothing_is_under_way(at)


def neither_bound_nor_charged(at: World, name: str = "a") -> None:
    assert at.charged() == {}
    assert not at.api.has(PODS, name, "web") or at.api.truth(name).spec.node_name == ""
    nothing_is_under_way(at)

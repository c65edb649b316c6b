"""Only nodes that a workload's replicas may use are room for it: what is free elsewhere is not asked for."""

from typing import Any

import msgspec
import pytest
from kube.builders import container, node_json
from kube.fakeapi import Json
from kube.scaler.scaling_scene import ScalingScene

from cotenant.dialects import names
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Node
from cotenant.kube.api.resources import NODES
from cotenant.kube.nodes.fields import GPU_FIELDS, NodeFields
from cotenant.kube.pods.demand import demand_of
from cotenant.kube.pods.eligibility import ANYWHERE
from cotenant.kube.scaler import room
from cotenant.kube.scaler.workload import Workload, WorkloadFields

ZONE = "topology.kubernetes.io/zone"


@pytest.fixture
def scene() -> ScalingScene:
    """Two nodes of four cards, room for one replica on each card."""
    scene = ScalingScene()
    for name in ("n1", "n2"):
        scene.node(name, *[16] * 4)
        node(scene, name, labels={ZONE: name, "size": "80" if name == "n1" else "40"})
    workload_of(scene, "a")
    return scene


def workload_of(scene: ScalingScene, name: str, **spec: Any) -> None:
    """At zero, with a scaler. As people write it: limits alone."""
    scene.workload(name, 0)

    def change(body: Json) -> None:
        template = body["spec"]["template"]["spec"]
        template["containers"][0]["resources"] = {"limits": {names.GPU_MEMORY: "12Gi"}}
        template.update(spec)

    scene.change(name, change)
    scene.scaler(name, replicas={"min": 0, "max": 32})


def node(scene: ScalingScene, name: str, *, labels: Json | None = None, **spec: Any) -> None:
    body = scene.api.raw(NODES, name)
    body["metadata"].setdefault("labels", {}).update(labels or {})
    body.setdefault("spec", {}).update(spec)
    scene.api.put(NODES, body)


def asked_for(scene: ScalingScene, annotations: Json | None = None, **spec: Any) -> int:
    """How many replicas are asked for at once, for a backlog that needs more than there is."""

    def change(body: Json) -> None:
        body["spec"]["template"]["spec"].update(spec)
        body["spec"]["template"].setdefault("metadata", {})["annotations"] = annotations or {}

    scene.change("a", change)
    scene.queue().backlog = 2000
    scene.poll_once()
    return scene.replicas("a")


def required(*terms: Json) -> Json:
    node_ = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}]
    return {"nodeAffinity": {**node_, "preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def expression(key: str, operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def test_without_a_wish_all_nodes_are_room(scene):
    assert asked_for(scene) == 8


@pytest.mark.parametrize("kind", ["limits", "requests"])
@pytest.mark.parametrize(
    ("cpu", "room"), [("8", 8), ("32", 4), ("33", 2), ("64", 2), ("65", 1)], ids=lambda value: str(value)
)
def test_a_node_without_cpu_for_a_replica_is_no_room(scene, kind, cpu, room):
    """Each node has 64. At zero, one replica is tried at least."""
    resources = {"limits": {names.GPU_MEMORY: "12Gi"}, "requests": {}}
    resources[kind]["cpu"] = cpu
    assert asked_for(scene, containers=[{"name": "main", "image": "x", "resources": resources}]) == room


@pytest.mark.parametrize(
    ("spec", "room"),
    [
        ({"nodeSelector": {ZONE: "n2"}}, 4),
        ({"nodeSelector": {ZONE: "n3"}}, 0),
        ({"affinity": required(expression(ZONE, "In", "n1", "n2"))}, 8),
        ({"affinity": required(expression(ZONE, "NotIn", "n1"))}, 4),
        ({"affinity": required(expression("size", "Gt", "60"))}, 4),
        ({"affinity": required(expression("other", "Exists"), expression(ZONE, "In", "n1"))}, 4),
        (
            {
                "affinity": required(
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]}
                )
            },
            0,
        ),
        ({"affinity": {"podAntiAffinity": {}}}, 8),
    ],
)
def test_nodes_that_are_not_selected_are_no_room(scene, spec, room):
    assert asked_for(scene, **spec) == max(1, room)


@pytest.mark.parametrize(
    ("tolerations", "room"),
    [
        ([], 4),
        ([{"key": "team", "operator": "Equal", "value": "vision"}], 8),
        ([{"key": "team", "operator": "Equal", "value": "other"}], 4),
        ([{"operator": "Exists"}], 8),
    ],
)
def test_tainted_nodes_are_room_for_those_who_tolerate_the_taint(scene, tolerations, room):
    node(scene, "n2", taints=[{"key": "team", "value": "vision", "effect": "NoSchedule"}])
    assert asked_for(scene, tolerations=tolerations) == max(1, room)


def test_a_cordoned_node_and_one_that_is_gone_are_no_room(scene):
    node(scene, "n2", unschedulable=True)
    assert asked_for(scene) == 4
    scene.api.remove_node("n1")
    scene.later(5)
    scene.poll_once()
    assert scene.replicas("a") == 4, "they wait in line; no more are asked for"


@pytest.mark.parametrize(
    ("wish", "room"),
    [
        ({names.GPU_MODEL: "H100"}, 0),
        ({names.GPU_MODEL: "A100"}, 8),
        ({names.GPU_UUID: "GPU-n2-1,GPU-n2-2"}, 2),
    ],
)
def test_wishes_for_a_model_or_a_card_are_heeded_before_there_is_a_pod(scene, wish, room):
    assert asked_for(scene, wish) == max(1, room)


def test_what_one_workload_may_not_use_is_left_to_another(scene):
    for name, zone in (("a", "n1"), ("b", "n2")):
        workload_of(scene, name, nodeSelector={ZONE: zone})
        scene.queue(name).backlog = 2000
    scene.poll_once()
    assert (scene.replicas("a"), scene.replicas("b")) == (4, 4)


def test_authors_of_many_placements_do_not_hold_up_a_round(scene, monkeypatch):
    monkeypatch.setattr(room, "_MOST_MATCHES", 3)
    offered = room.Room(scene.world.cluster, scene.api.nodes)
    demands = demand_of(kept({"containers": [container("main", memory="12Gi")]}).pod(), Dialects()).demands
    first, second = (kept({"nodeSelector": {ZONE: name}}).placement for name in ("n1", "n2"))
    assert offered.take(demands, 1, first) == 1
    assert offered.take(demands, 1, second) == 0, "then it gets one at a time"
    assert offered.take(demands, 9, first) == 3


def kept(spec: Json) -> Workload:
    """What a server keeps of a workload with this template."""
    body = {"metadata": {"name": "a"}, "spec": {"template": {"spec": spec}}}
    return WorkloadFields(Dialects()).keep(msgspec.convert(body, Workload))


def test_of_a_template_only_what_selects_nodes_is_kept_within_bounds():
    affinity = {**required(expression(ZONE, "Exists")), "podAffinity": {"x": "y" * 10_000}}
    assert kept({"affinity": affinity}).placement.terms == [expression(ZONE, "Exists")]
    assert len(str(kept({"affinity": affinity}))) < 3000
    assert kept({"nodeSelector": {str(each): "x" * 60 for each in range(1000)}}).placement is ANYWHERE
    assert kept({}).placement is ANYWHERE


def test_labels_are_kept_of_nodes_with_gpus_only():
    fields = GPU_FIELDS | NodeFields(gpu_node_labels=True)
    body = node_json("n1", 16)
    body["metadata"]["labels"] = {ZONE: "a"}
    assert fields.keep(msgspec.convert(body, Node)).metadata.labels == {ZONE: "a"}
    del body["metadata"]["annotations"]
    assert fields.keep(msgspec.convert(body, Node)).metadata.labels == {}

"""One watch a kind serves all parts, and keeps what any of them needs."""

import msgspec
import pytest

from cotenant.kube.api.client import Selection
from cotenant.kube.api.informers import Informers, Need
from cotenant.kube.api.resources import NODES, PODS
from cotenant.kube.nodes.fields import NodeFields
from cotenant.kube.pods.fields import PodFields

POD = msgspec.json.encode(
    {
        "metadata": {
            "name": "a",
            "uid": "u",
            "labels": {"pod-template-hash": "5d", "app": "web", "noise": "x"},
            "annotations": {"one": "1", "two": "2", "three": "3", "of/main": "m"},
        },
        "spec": {"containers": [{"name": "main", "env": [{"name": "A"}]}]},
    }
)


def kept(*fields):
    informers = Informers(None, [Need(PODS, each) for each in fields])
    return informers[PODS].resource.decode(POD)


def test_the_union_of_what_parts_declare_is_kept():
    one = PodFields(annotations=frozenset({"one"}), labels=frozenset({"pod-template-hash"}))
    two = PodFields(annotations=frozenset({"two"}), container_annotations=frozenset({"of/{}".format}))
    pod = kept(one, two)
    assert pod.metadata.labels == {"pod-template-hash": "5d"}
    assert pod.metadata.annotations == {"one": "1", "two": "2", "of/main": "m"}
    assert pod.spec.containers[0].env == ()


def test_a_part_that_declares_nothing_costs_nothing():
    pod = kept(PodFields())
    assert (pod.metadata.labels, pod.metadata.annotations) == ({}, {})
    assert pod.metadata.uid == "u"


def test_variables_are_kept_where_a_part_needs_them():
    assert [each.name for each in kept(PodFields(env=True), PodFields()).spec.containers[0].env] == ["A"]


def test_a_part_that_needs_everything_gets_it():
    pod = kept(PodFields(), None)
    assert len(pod.metadata.labels) == 3


def test_there_is_one_watch_of_a_kind():
    informers = Informers(None, [Need(PODS), Need(NODES, NodeFields()), Need(PODS)])
    assert [each.resource.plural for each in informers] == ["pods", "nodes"]
    with pytest.raises(LookupError, match="nodes: no part declares"):
        Informers(None, [Need(PODS)])[NODES]


def test_parts_that_select_different_objects_of_a_kind_are_a_mistake():
    with pytest.raises(ValueError, match="pods: parts select different objects"):
        Informers(None, [Need(PODS), Need(PODS, selection=Selection("ns"))])


def test_of_nodes_only_what_is_declared_is_kept():
    node = msgspec.json.encode(
        {"metadata": {"name": "n", "labels": {"a": "1", "b": "2"}, "annotations": {"c": "3"}}}
    )
    fields = NodeFields(labels=frozenset({"a"})) | NodeFields(annotations=frozenset({"c", "d"}))
    read = Informers(None, [Need(NODES, fields)])[NODES].resource.decode(node)
    assert (read.metadata.labels, read.metadata.annotations) == ({"a": "1"}, {"c": "3"})

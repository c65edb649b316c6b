"""Whether a pod fits a node by what kube-scheduler counts besides GPUs."""

import json

import msgspec
import pytest
from kube.world import node_json, pod_json, typed

from cotenant.kube.api.objects import Node
from cotenant.kube.pods.requests import fits_otherwise


def node(**allocatable: str) -> Node:
    return msgspec.json.decode(json.dumps(node_json("n1", 16, **allocatable)), type=Node)


@pytest.mark.parametrize(
    ("asked", "there", "fits"),
    [
        ("1", "1", True),
        ("1001m", "1", False),
        ("1000m", "1", True),
        ("1500000000n", "1500m", True),
        ("1500000001n", "1500m", False),
        ("2", "1k", True),
        ("1Ki", "1k", False),
        ("1k", "1Ki", True),
        ("0", "0", True),
        ("1e3", "1k", True),
        ("nonsense", "0", True),
        ("NaN", "0", True),
        ("sNaN", "0", True),
        ("Infinity", "0", True),
        ("-Infinity", "0", True),
        ("1e40", "1e3", False),
        ("9e999999", "1e3", False),
        ("9e999999E", "0", True),
        ("1e-999999", "1", True),
        ("", "0", True),
    ],
)
def test_quantities(asked, there, fits):
    assert fits_otherwise(typed(pod_json("a", None, cpu=asked)), node(cpu=there), []) is fits


def test_others_count_until_they_have_ended():
    other = pod_json("b", None, cpu="3")
    asking = typed(pod_json("a", None, cpu="2"))
    assert not fits_otherwise(asking, node(cpu="4"), [typed(other)])
    other["status"]["phase"] = "Succeeded"
    assert fits_otherwise(asking, node(cpu="4"), [typed(other)])


def test_a_resource_that_the_node_does_not_have():
    assert not fits_otherwise(typed(pod_json("a", None, example_com_x="1")), node(), [])


def test_a_node_takes_only_so_many_pods():
    others = [typed(pod_json(f"p{i}", None)) for i in range(3)]
    asking = typed(pod_json("a", None))
    assert fits_otherwise(asking, node(pods="4"), others)
    assert not fits_otherwise(asking, node(pods="3"), others)


def test_init_containers_count_where_they_are_more():
    body = pod_json("a", None, cpu="2")
    body["spec"]["initContainers"] = [
        {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        {"name": "first", "resources": {"requests": {"cpu": "5"}}},
    ]
    assert not fits_otherwise(typed(body), node(cpu="5"), [])
    assert fits_otherwise(typed(body), node(cpu="6"), [])

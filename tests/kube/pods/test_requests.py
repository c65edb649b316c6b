"""What a pod requests in all, as kube-scheduler counts it, and whether it fits a node by that."""

import json
from fractions import Fraction
from math import ceil
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube.builders import node_json, pod_json, typed

from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.pods.requests import fits_otherwise, pod_requests


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
        ("9e999999", "1e3", True),
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


MI = 2**20


def asking(*containers: dict[str, str], init: Any = (), **spec: Any) -> Pod:
    """Containers by their requests; init containers by theirs and whether they are sidecars."""
    body = {
        "containers": [{"name": f"c{at}", "resources": {"requests": it}} for at, it in enumerate(containers)],
        "initContainers": [
            {
                "name": f"i{at}",
                "resources": {"requests": it},
                **({"restartPolicy": "Always"} if sidecar else {}),
            }
            for at, (it, sidecar) in enumerate(init)
        ],
        **spec,
    }
    return msgspec.convert({"spec": body}, Pod)


def test_containers_add_up_and_are_rounded_up_once():
    assert pod_requests(asking({"cpu": "0.1", "memory": "1k"}, {"cpu": "100u", "memory": "1Ki"})) == {
        "cpu": 101,
        "memory": 2024,
        "pods": 1,
    }
    assert pod_requests(asking(*[{"cpu": "100u"}] * 10)) == {"cpu": 1, "pods": 1}


def test_the_overhead_example_of_the_kubernetes_documentation():
    """https://kubernetes.io/docs/concepts/scheduling-eviction/pod-overhead/"""
    pod = asking(
        {"cpu": "500m", "memory": "100Mi"},
        {"cpu": "1500m", "memory": "100Mi"},
        overhead={"cpu": "250m", "memory": "120Mi"},
    )
    assert pod_requests(pod) == {"cpu": 2250, "memory": 320 * MI, "pods": 1}


def test_the_pod_level_example_of_the_kubernetes_documentation():
    """https://kubernetes.io/docs/tasks/configure-pod-container/assign-pod-level-resources/"""
    pod = asking(
        {"cpu": "0.5", "memory": "50Mi"},
        {},
        resources={"requests": {"cpu": "1", "memory": "100Mi"}, "limits": {"cpu": "1", "memory": "200Mi"}},
    )
    assert pod_requests(pod) == {"cpu": 1000, "memory": 100 * MI, "pods": 1}


def test_what_is_requested_for_the_pod_as_a_whole_gets_the_overhead_too_and_leaves_other_resources_alone():
    pod = asking(
        {"cpu": "4", "cotenant.dev/gpu-memory": "1Gi"},
        init=[({"cpu": "9"}, False)],
        resources={"requests": {"cpu": "2", "hugepages-2Mi": "4Mi", "cotenant.dev/gpu-memory": "9Gi"}},
        overhead={"cpu": "1"},
    )
    assert pod_requests(pod) == {
        "cpu": 3000,
        "hugepages-2Mi": 4 * MI,
        "cotenant.dev/gpu-memory": 1024 * MI,
        "pods": 1,
    }


def test_an_init_container_runs_with_the_sidecars_before_it_only():
    side, init = ({"cpu": "2"}, True), ({"cpu": "5"}, False)
    assert pod_requests(asking({"cpu": "1"}, init=[side, init]))["cpu"] == 7000
    assert pod_requests(asking({"cpu": "1"}, init=[init, side]))["cpu"] == 5000
    assert pod_requests(asking({"cpu": "4"}, init=[init, side]))["cpu"] == 6000


amounts = st.sampled_from(["0", "1", "3", "250m", "1500m", "2Ki", "3k", "1e3", "7n"])
requests = st.dictionaries(st.sampled_from(["cpu", "memory", "cotenant.dev/gpu-memory"]), amounts)
READ = {
    "0": 0,
    "1": 1,
    "3": 3,
    "2Ki": 2048,
    "3k": 3000,
    "1e3": 1000,
    "250m": Fraction(1, 4),
    "1500m": Fraction(3, 2),
    "7n": Fraction(7, 10**9),
}


@given(
    st.lists(requests, max_size=3),
    st.lists(st.tuples(requests, st.booleans()), max_size=4),
    requests,
    requests,
)
def test_it_is_the_most_that_runs_at_any_time(containers, inits, whole, overhead):
    """Restated: one moment after another, from the first init container to when all run."""
    pod = asking(*containers, init=inits, resources={"requests": whole}, overhead=overhead)
    found = pod_requests(pod)
    for name in ("cpu", "memory", "cotenant.dev/gpu-memory"):
        moments = [
            sum(READ[it.get(name, "0")] for it, sidecar in inits[:at] if sidecar) + READ[own.get(name, "0")]
            for at, (own, _) in enumerate(inits)
        ]
        running = [*containers, *(it for it, sidecar in inits if sidecar)]
        moments.append(sum(READ[it.get(name, "0")] for it in running))
        total = Fraction(max(moments))
        if name in whole and "/" not in name:
            total = Fraction(READ[whole[name]])
        total += READ[overhead.get(name, "0")]
        assert found.get(name, 0) == ceil(total * (1000 if name == "cpu" else 1))

"""What agents left on a node, and nothing else, is removed from it."""

from __future__ import annotations

import pytest
from kube.fakeapi import FakeApi

from cotenant.kube.api.objects import Condition, Meta, Node, NodeStatus
from cotenant.kube.api.resources import LEASES
from cotenant.kube.nodes.gpus import VERSION, NodeCard, NodeGpus, write_gpus
from cotenant.kube.operating.uninstalling import traces, uninstall

GPUS = write_gpus(
    NodeGpus(
        VERSION,
        (NodeCard("GPU-1", 0, "A100", 80 * 2**30),),
        resources=("aliyun.com/gpu-mem", "cotenant.dev/gpu"),
    )
)


def node(amounts: dict[str, str], **annotations: str) -> Node:
    spelled = {key.replace("_", "/"): text for key, text in annotations.items()}
    named = {f"cotenant.dev/{key}" if "/" not in key else key: text for key, text in spelled.items()}
    return Node(Meta(name="n", annotations=named), status=NodeStatus(capacity=amounts, allocatable=amounts))


def test_what_the_agent_put_there_goes_and_what_others_put_stays() -> None:
    amounts = {"cpu": "8", "aliyun.com/gpu-mem": "80", "nvidia.com/gpu": "1", "cotenant.dev/gpu-slot": "128"}
    ours = {"aliyun.com/gpu-mem": None, "cotenant.dev/gpu-slot": None}
    assert traces(node(amounts, gpus=GPUS, drained="GPU-1")) == {
        "metadata": {"annotations": {"cotenant.dev/gpus": None, "cotenant.dev/drained": None}},
        "status": {"capacity": ours, "allocatable": ours},
    }


def test_the_condition_goes_and_those_of_others_stay() -> None:
    there = (Condition("Ready", "True"), Condition("cotenant.dev/GPUsHealthy", "False"))
    assert traces(Node(Meta(name="n"), status=NodeStatus(conditions=there))) == {
        "status": {"conditions": [{"$patch": "delete", "type": "cotenant.dev/GPUsHealthy"}]}
    }


def test_a_node_without_traces_is_left_alone() -> None:
    there = NodeStatus(conditions=(Condition("Ready", "True"),))
    assert traces(Node(Meta(name="n"), status=there)) is None
    assert traces(node({"cpu": "8", "aliyun.com/gpu-mem": "80"})) is None


def test_an_annotation_that_cannot_be_read_goes_all_the_same() -> None:
    changes = traces(node({"aliyun.com/gpu-mem": "80", "cotenant.dev/gpu": "1"}, gpus="{"))
    assert changes is not None
    assert changes["metadata"] == {"annotations": {"cotenant.dev/gpus": None}}
    assert changes["status"]["capacity"] == {"cotenant.dev/gpu": None}


@pytest.mark.asyncio
async def test_the_leases_of_servers_and_agents_go_and_those_of_others_stay() -> None:
    api = FakeApi(fully_guarded=False)
    for name in ("cotenant-server", "cotenant-agent-n1", "cotenant-agent-n2", "theirs"):
        api.put(LEASES, {"metadata": {"name": name}}, "cotenant-system")
    api.put(LEASES, {"metadata": {"name": "cotenant-agent-n1"}}, "elsewhere")
    removed = await uninstall(api, "cotenant-system", 1.0)  # type: ignore[arg-type]
    assert sorted(removed.objects) == [
        "Lease cotenant-agent-n1",
        "Lease cotenant-agent-n2",
        "Lease cotenant-server",
    ]
    assert {(key.namespace, key.name) for key in api.objects} == {
        ("cotenant-system", "theirs"),
        ("elsewhere", "cotenant-agent-n1"),
    }

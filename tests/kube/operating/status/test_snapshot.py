"""What nodes and pods say of themselves becomes the view, and JSON has the names that scripts read."""

from __future__ import annotations

import pytest
from kube.operating.clusters import GI, card_of, node, pod

from cotenant.core.demand import Demand, Memory
from cotenant.dialects import names
from cotenant.kube.operating.status.snapshot import NoSuchNode, document, node_json, one_node, snapshot

NODES = [node("n2", [16 * GI] * 2, drained=(1,)), node("n1", [16 * GI])]


def test_gpus_grants_and_their_shares_are_the_same_thing_seen_from_two_sides():
    view = snapshot(NODES, [pod("b", 8 * GI, on="n2", cards=(0, 1)), pod("a", GI, on="n2")])
    assert [each.name for each in view.nodes] == ["n1", "n2"]
    assert [(str(each), each.granted) for each in view.gpus] == [
        ("GPU 0 of n1", 0),
        ("GPU 0 of n2", sum(share.memory for share in view.nodes[1].gpus[0].shares)),
        ("GPU 1 of n2", sum(share.memory for share in view.nodes[1].gpus[1].shares)),
    ]
    of_grants = {share for grant in view.grants for share in grant.shares}
    assert of_grants == {share for each in view.gpus for share in each.shares}
    assert [str(share) for share in view.nodes[1].gpus[0].shares] == sorted(
        f"{grant.namespace}/{grant.name}" for grant in view.grants
    )


def test_a_drained_gpu_has_no_room():
    _, second = snapshot(NODES, []).nodes[1].gpus
    assert (second.drained, second.problem, second.room.free) == (True, None, 0)


def test_a_report_that_cannot_be_read_is_named_and_has_no_gpus():
    broken = node("n3", [16 * GI], annotations={names.GPUS: "{"})
    (found,) = snapshot([broken], []).nodes
    assert found.gpus == ()
    assert names.GPUS in found.trouble


def test_nodes_that_report_nothing_are_left_out():
    bare = node("n4", [])
    bare.metadata.annotations.pop(names.GPUS, None)
    assert snapshot([bare], []).nodes == ()


def test_json_has_its_names_in_their_order():
    (found,) = one_node(snapshot(NODES, [pod("a", GI, on="n2")]).nodes, "n2", NODES)
    told = node_json(found)
    assert " ".join(told) == (
        "name address agent enforcer mps trouble memory granted gpus allocatable unschedulable pods"
    )
    assert " ".join(told["gpus"][0]) == "index uuid model memory shared granted outside problem drained pods"
    assert " ".join(told["gpus"][0]["pods"][0]) == "namespace pod uid memory whole"
    assert (told["memory"], told["granted"], told["gpus"][0]["uuid"]) == (32 * GI, GI, card_of("n2", 0))


def test_all_pods_are_listed_with_what_they_ask_for_if_that_is_asked():
    there = node("n1", [16 * GI], unschedulable=True)
    there.status.allocatable.update(cpu="3500m", memory="8Gi", pods="110")
    owner = {"ownerReferences": [{"kind": "DaemonSet", "name": "agent", "controller": True}]}
    plain = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}}}]}
    pods = [
        pod("b", on="n1", metadata=owner, **plain),
        pod("a", 4 * GI, on="n1", annotations={names.GPU_MODEL: "A100", names.PLACEMENT: "spread"}),
        pod("done", on="n1", phase="Succeeded", **plain),
        pod("elsewhere", on="cpu-only", **plain),
        pod("waits", whole=True),
        pod("waits-without-gpu", **plain),
    ]
    view = snapshot([there], pods, all_pods=True)
    assert not any(each.pods for each in snapshot([there], pods).nodes)
    told = document(view.nodes, "GiB", view.pending)
    assert " ".join(told) == "unit memory granted nodes pending learned"
    (shown,) = told["nodes"]
    assert shown["allocatable"] == {"cpu": 3500, "memory": 8 * GI, "pods": 110}
    assert shown["unschedulable"]
    a, b = shown["pods"]
    assert " ".join(a) == "namespace pod uid workload version pinned created cpu memory demands"
    (demand,) = a["demands"]
    wanted = Demand(Memory(bytes=4 * GI), models=("A100",), placement="spread")
    assert (demand.pop("container"), Demand.from_json(demand)) == ("main", wanted)
    assert (b["pinned"], b["cpu"], b["memory"], b["demands"]) == (True, 250, 64 * 2**20, [])
    assert [(each["pod"], each["demands"][0]["whole"]) for each in told["pending"]] == [("waits", 1)]


def test_what_a_pod_was_granted_stands_for_a_demand_that_is_not_valid_any_more():
    asked = {names.GPU: "1", names.GPU_MEMORY: "4", names.GPU_SLOT: "1"}
    there = pod("a", 4 * GI, on="n1", cards=(0, 1), asks=asked)
    (seen,) = snapshot([node("n1", [16 * GI] * 2)], [there], all_pods=True).nodes
    assert seen.pods[0].demands == (("main", Demand(Memory(bytes=4 * GI), 2)),)


def test_a_node_that_is_not_there_or_has_no_gpus_is_refused():
    seen = snapshot(NODES, []).nodes
    with pytest.raises(NoSuchNode, match="no node n9: nodes with GPUs are n1, n2"):
        one_node(seen, "n9", NODES)
    with pytest.raises(NoSuchNode, match="node n4 shows no GPU"):
        one_node(seen, "n4", [*NODES, node("n4", [])])

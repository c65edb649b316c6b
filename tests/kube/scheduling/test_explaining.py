"""Why a pod waits: one sentence with figures, and what to do if it would wait in vain."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from kube.scheduling.plain import GI, fleets, gib, granted, ledger_of_cluster, pods

from cotenant.core.demand import Demand, Memory
from cotenant.core.gpu import GPU
from cotenant.core.grant import Share
from cotenant.kube.scheduling.cluster_ledger import ClusterLedger
from cotenant.kube.scheduling.explaining import why


def told(cluster: ClusterLedger, *demands: Demand, nodes: list[str] | None = None) -> str:
    return why(cluster, "me", demands, cluster.rows(nodes or list(cluster.nodes)))


def test_no_room_now_names_the_largest_room_and_where_it_is() -> None:
    cluster = ledger_of_cluster([(1, 16), (2, 16)], [(3, 16), (0, 16)], [])
    assert told(cluster, gib(4)) == "4Gi asked, largest free room 3Gi on GPU 0 of n1 (of 2 nodes with GPUs)"
    assert told(cluster, Demand(Memory(bytes=3 * GI + 1))).startswith("3.0Gi asked, largest free room 3Gi on")
    assert told(cluster, gib(4), nodes=["n0"]) == (
        "4Gi asked, largest free room 2Gi on GPU 1 of n0 (of 1 node with GPUs)"
    )


def test_several_cards_and_whole_cards_are_counted_on_one_node() -> None:
    cluster = ledger_of_cluster([(4, 16), (2, 16)], [(16, 16), (0, 16)])
    assert told(cluster, gib(8, gpus=2)) == (
        "4Gi on each of 2 GPUs of one node asked, at most 1 GPU has that room, on n0 (of 2 nodes with GPUs)"
    )
    assert told(cluster, Demand(whole=2)) == (
        "2 whole GPUs of one node asked, 1 is unused on n1 now (of 2 nodes with GPUs)"
    )
    assert told(ledger_of_cluster([(4, 16)]), Demand(whole=1)) == (
        "1 whole GPU asked, none is unused now (of 1 node with GPUs)"
    )


def test_a_percentage_is_told_as_one() -> None:
    half = Demand(Memory(percent=Fraction(50)))
    assert told(ledger_of_cluster([(20, 80)], [(6, 16)]), half) == (
        "50% of a GPU asked, largest free room 6Gi of 16Gi on GPU 0 of n1 (of 2 nodes with GPUs)"
    )


def test_missing_compute_is_told_apart_from_missing_memory() -> None:
    cluster = ledger_of_cluster([(16, 16)], [(1, 16)])
    cluster.charge("n0", granted("x", Share("n0-0", GI, 80)))
    assert told(cluster, gib(4, compute=50)) == (
        "4Gi and 50% of the compute asked, at most 20% is free beside that memory, on GPU 0 of n0 "
        "(of 2 nodes with GPUs)"
    )


def test_a_held_card_is_said_to_be_held() -> None:
    cluster = ledger_of_cluster([(2, 16), (16, 16)])
    cluster.hold("another", "n0", ["n0-1"])
    assert told(cluster, gib(4)) == "4Gi asked, GPU 1 of n0 has room but is held for a pod ahead in the line"


def test_what_can_never_be_says_so_with_the_remedy() -> None:
    cluster = ledger_of_cluster([(16, 16), (16, 16)], [(24, 24)])
    assert told(cluster, gib(30)) == (
        "30Gi asked, the largest GPU has 24Gi (GPU 0 of n1, T4): ask for less, or spread it over 2 GPUs "
        "with annotation gpu-count.cotenant.dev/<container>: 2"
    )
    assert told(cluster, gib(90)).endswith("(GPU 0 of n1, T4): ask for less")
    assert told(cluster, Demand(whole=3)) == (
        "3 whole GPUs of one node asked, no node has more than 2: ask for 2 or fewer"
    )
    assert told(cluster, gib(40, gpus=2)) == (
        "20Gi on each of 2 GPUs of one node asked, no node has more than 1 GPU of that size: ask for less"
    )


def test_wishes_that_no_node_meets_are_told_with_what_there_is() -> None:
    cluster = ledger_of_cluster([(16, 16)])
    cluster.set_node("a", [GPU("a", 0, "NVIDIA A100", 80 * GI)], {})
    assert told(cluster, Demand(Memory(bytes=GI), models=("H100", "B200"))) == (
        "model H100 or B200 asked, no such GPU is on any of 2 nodes with GPUs: there is NVIDIA A100, T4"
    )
    assert told(cluster, Demand(Memory(bytes=GI), uuids=("GPU-x",))) == (
        "GPU-x asked, no such GPU is on any of 2 nodes with GPUs: there is NVIDIA A100, T4"
    )
    assert told(cluster, Demand(Memory(bytes=90 * GI), models=("A100",))).startswith(
        "90Gi asked, the largest GPU that matches has 80Gi (GPU 0 of a, NVIDIA A100): ask for less"
    )


def test_nodes_without_cards_are_said_to_have_none() -> None:
    end = ": GPUs are known once the agent runs on their node"
    cluster = ledger_of_cluster([], [])
    assert told(cluster, gib(4)) == f"4Gi asked, none of 2 nodes has a known GPU{end}"
    assert told(cluster, gib(4), nodes=["n0"]) == f"4Gi asked, the only node has no known GPU{end}"
    assert (
        why(ClusterLedger(), "me", [gib(4)], ClusterLedger().rows([])) == f"4Gi asked, there is no node{end}"
    )


def test_a_sick_card_is_no_room() -> None:
    cluster = ClusterLedger()
    cluster.set_node("n", [GPU("a", 0, "T4", 16 * GI, healthy=False)], {})
    assert told(cluster, gib(4)) == "4Gi asked, no GPU that matches is healthy (of 1 node with GPUs)"


def test_a_pod_of_several_containers_is_told_which_of_them_or_all() -> None:
    cluster = ledger_of_cluster([(6, 16)], [(6, 16)])
    assert told(cluster, gib(8), gib(1)).startswith("8Gi asked, largest free room 6Gi")
    assert told(cluster, gib(4), gib(5)) == (
        "5Gi and 4Gi asked, no node has room for all of it at once (of 2 nodes with GPUs)"
    )
    assert told(cluster, gib(9), gib(10)) == (
        "10Gi and 9Gi asked, more than any node could give if it were empty: ask for less, or for fewer "
        "containers in a pod"
    )


def test_a_pod_that_fits_is_told_where_room_is() -> None:
    cluster = ledger_of_cluster([(6, 16)], [(2, 16)])
    assert told(cluster, gib(4)) == "4Gi asked, there is room on 1 of 2 nodes with GPUs"


@settings(max_examples=60)
@given(fleets(), pods)
def test_there_is_a_sentence_for_everything(cluster: ClusterLedger, demands: list[Demand]) -> None:
    sentence = told(cluster, *demands)
    assert " asked, " in sentence
    assert "\n" not in sentence

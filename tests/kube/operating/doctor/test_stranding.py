"""How much free GPU memory pods without GPU strand is said, with the nodes and the remedy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube.operating.clusters import GI, node, pod
from kube.operating.well import found

from cotenant.core.demand import Demand, Memory
from cotenant.core.loss import Beside, Spare
from cotenant.core.seen_pods import SeenPods
from cotenant.dialects import names
from cotenant.kube.operating.doctor.stranding import usable
from cotenant.kube.scheduling.pod_statistics import EndedPods

HAS = {"cpu": "32", "memory": "256Gi", "pods": "110"}
OWNED = {"ownerReferences": [{"kind": "DaemonSet", "name": "logs", "uid": "d", "controller": True}]}


def nodes(count=2):
    return tuple(node(f"n{at}", [80 * GI] * 4, agent="1.0", allocatable=HAS) for at in range(count))


def plain(name, on, metadata=None, phase="", **requests):
    return pod(name, on=on, asks=requests, namespace="web", metadata=metadata, phase=phase)


def learned(cpu=4000, memory=0):
    """Every pod had a card, with so much beside it."""
    seen = SeenPods()
    for _ in range(2000):
        seen.add((Demand(whole=1),), cpu, memory)
    return EndedPods(seen, 2000, 1.0)


def stranded(*pods, nodes=nodes(), ended_pods=learned()):  # noqa: B008
    return [each for each in found(nodes=nodes, pods=pods, ended_pods=ended_pods) if each.kind == "stranded"]


def test_pods_that_take_the_cpu_beside_free_cards_are_counted():
    (finding,) = stranded(
        plain("web-1", "n1", cpu="20"), plain("web-2", "n1", cpu="12"), plain("db", "n0", cpu="4")
    )
    assert finding.severity == "warning"
    assert finding.found.startswith(
        "320Gi of free GPU memory, as much as 4.0 GPUs have, is of no use: 2 pods"
    )
    assert "on n1 (320Gi)" in finding.found, "n0 has CPU enough left"
    assert "settings.extender.pods_without_gpu: true" in finding.do
    assert finding.do.endswith("kubectl get pods -A --field-selector spec.nodeName=n1")


def test_the_hosts_memory_counts_as_well():
    (finding,) = stranded(plain("db", "n0", memory="256Gi"), ended_pods=learned(0, 32 * GI))
    assert "on n0 (320Gi)" in finding.found


def test_so_do_places_for_pods():
    few = (node("n0", [80 * GI], agent="1.0", allocatable={**HAS, "pods": "2"}),)
    (finding,) = stranded(plain("a", "n0"), plain("b", "n0"), nodes=few)
    assert finding.found.startswith("80Gi of free GPU memory")


@pytest.mark.parametrize(
    "pods",
    [
        (),
        (plain("few", "n0", cpu="4"),),
        (plain("ended", "n0", cpu="32", phase="Succeeded"),),
        (plain("everywhere", "n0", cpu="32", metadata=OWNED),),
        (plain("elsewhere", "n9", cpu="32"),),
        (
            pod("train", asks={names.GPU_MEMORY: str(8 * GI), "cpu": "32"}, on="n0"),
            pod("granted", 8 * GI, on="n0"),
        ),
    ],
    ids=["none", "little", "ended", "of a DaemonSet", "on a node without GPUs", "with GPU"],
)
def test_others_strand_nothing(pods):
    kept = [each for each in pods if each.metadata.name != "train"]
    assert stranded(*kept) == []


def test_cards_that_are_full_are_not_stranded():
    full = [pod(f"full-{at}", 80 * GI, on="n0", cards=[at]) for at in range(4)]
    assert stranded(plain("web", "n0", cpu="32"), *full) == []


def test_without_the_right_to_see_pods_nothing_is_said():
    told = found(nodes=nodes(), pods=(), unread=("pods: forbidden",))
    assert "stranded" not in {each.kind for each in told}


amounts = st.integers(0, 2**50)
ratios = st.one_of(st.just(0.0), st.floats(1e-12, 1e3))


@given(amounts, amounts, amounts, amounts, ratios, ratios)
def test_more_left_never_makes_less_usable(free, cpu, memory, more, by_cpu, by_memory):
    beside = Beside(by_cpu, by_memory)
    before = usable(free, Spare(cpu, memory, 1), beside)
    assert 0 <= before <= free
    assert usable(free, Spare(cpu + more, memory + more, 2), beside) >= before
    assert usable(free, Spare(cpu, memory, 0), beside) == 0


def test_what_a_card_needs_is_what_pods_had_beside_theirs():
    small = EndedPods(SeenPods.of([Demand(Memory(8 * GI))] * 2000), 2000, 1.0)
    assert stranded(plain("web", "n0", cpu="28"), ended_pods=small) == [], "they need hardly any CPU"

"""Nodes that do not report their GPUs as they should, and agents that are missing."""

import pytest
from kube.operating.clusters import GI, node, pod
from kube.operating.well import WELL, found, kinds, ready, with_pod

from cotenant.dialects import names


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [
        ([node("n1", [80 * GI] * 2, annotations={names.GPUS: "{"})], "node-unreadable"),
        ([node("n1", [80 * GI] * 2, capacity={names.GPU_MEMORY: "0"})], "capacity-differs"),
        ([node("n1", [80 * GI] * 2, capacity={names.GPU_MEMORY: "999Gi"})], "capacity-differs"),
        ([node("n1", [80 * GI] * 2), node("n2", [80 * GI])], "agent-missing"),
    ],
)
def test_a_node_that_does_not_report_its_gpus_as_it_should(nodes, kind):
    assert kinds(nodes=tuple(nodes)) == [kind]


def test_a_node_that_has_gpu_memory_and_reports_no_gpus():
    bare = node("n2", [16 * GI])
    bare.metadata.annotations.pop(names.GPUS)
    assert kinds(nodes=(*WELL.nodes, bare)) == ["node-untold"]


@pytest.mark.parametrize(("shown", "kind"), [("82Gi", []), ("83Gi", ["capacity-differs"])])
def test_capacity_may_cover_what_pods_request_beyond_a_gpu_that_shrank(shown, kind):
    """An agent shows that much, so that the kubelet admits the pods again; init containers count too."""
    asks = {"limits": {names.GPU_MEMORY: "74Gi"}, "requests": {names.GPU_MEMORY: "74Gi"}}
    second = pod("second", GI, on="n1", cards=(1,), initContainers=[{"name": "load", "resources": asks}])
    one = node("n1", [40 * GI] * 2, agent="1.0", capacity={names.GPU_MEMORY: shown})
    assert kinds(nodes=(one,), **with_pod(second)) == kind


def test_an_agent_that_is_not_ready():
    (finding,) = found(pods=(pod("a", 8 * GI, on="n1"), ready("cotenant-server-1")))
    assert finding.kind == "agent-missing"
    assert "cotenant-agent-1 is not ready" in finding.found
    assert finding.do == "read the agent's log: kubectl logs -n cotenant-system cotenant-agent-1"


def test_a_node_without_an_agent_leads_to_the_daemonset():
    (finding,) = found(nodes=(*WELL.nodes, node("n2", [80 * GI], agent="1.0")))
    assert "no agent runs there" in finding.found
    assert finding.do.endswith("kubectl describe daemonset -n cotenant-system cotenant-agent")

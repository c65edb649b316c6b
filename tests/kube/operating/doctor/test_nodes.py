"""Nodes that do not report their GPUs as they should, and agents that are missing."""

import pytest
from kube.operating.clusters import GI, node, pod
from kube.operating.well import WELL, found, kinds, ready

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


def test_an_agent_that_is_not_ready():
    (finding,) = found(pods=(pod("a", 8 * GI, on="n1"), ready("cotenant-server-1")))
    assert finding.kind == "agent-missing"
    assert "cotenant-agent-1 is not ready" in finding.found
    assert finding.do == "read the agent's log: kubectl logs -n cotenant-system cotenant-agent-1"


def test_a_node_without_an_agent_leads_to_the_daemonset():
    (finding,) = found(nodes=(*WELL.nodes, node("n2", [80 * GI], agent="1.0")))
    assert "no agent runs there" in finding.found
    assert finding.do.endswith("kubectl describe daemonset -n cotenant-system cotenant-agent")

"""GPUs that are not healthy, memory that no grant covers, and drained marks of GPUs that are gone."""

import pytest
from kube.operating.clusters import GI, card_of, node
from kube.operating.doctor.wellapi import found_on, mended
from kube.operating.well import found, kinds

from cotenant.dialects import names
from cotenant.kube.api.resources import NODES

MARK = f'{{"cards":["{card_of("n1", 1)}"],"until":"2020-01-01T00:00:00Z"}}'
"""Of a command that was killed."""


@pytest.mark.parametrize(
    ("shown", "kind"),
    [
        (node("n1", [80 * GI] * 2, annotations={names.DRAINED: "GPU-gone"}), "drained-gone"),
        (node("n1", [80 * GI] * 2, problems={1: "XID 79"}), "sick"),
        (node("n1", [80 * GI] * 2, drained=(1,), annotations={names.DEFRAG: MARK}), "defrag-left"),
        (node("n1", [80 * GI] * 2, annotations={names.DEFRAG: "nonsense"}), "defrag-left"),
        (node("n1", [80 * GI], outside=GI), "outside"),
        (node("n1", [119 * GI], shared=True), "shared-memory"),
    ],
)
def test_what_a_node_reports_of_its_gpus(shown, kind):
    assert kinds(nodes=(shown,)) == [kind]


def test_pods_on_a_gpu_that_is_not_healthy_are_named():
    shown = node("n1", [80 * GI] * 2, problems={0: "XID 79"})
    (finding,) = found(nodes=(shown,))
    assert finding.means == "it gets no new grant; these pods hold it: team/a"
    assert finding.do.endswith("cotenant drain n1/0")


def test_a_drained_mark_stays_where_the_node_does_not_report_its_gpus(api):
    shown = api.raw(NODES, "n1")["metadata"]["annotations"]
    shown[names.DRAINED] = f"GPU-gone,{card_of('n1', 1)}"
    told = shown.pop(names.GPUS)
    assert "drained-gone" not in found_on(api), "nobody knows what is gone"
    shown[names.GPUS] = told
    assert mended(api) == "removed the drained mark of GPU-gone from n1"
    assert api.raw(NODES, "n1")["metadata"]["annotations"][names.DRAINED] == card_of("n1", 1)


def test_what_a_killed_command_has_left_drained_is_put_back_and_nothing_else(api):
    shown = api.raw(NODES, "n1")["metadata"]["annotations"]
    shown[names.DRAINED] = f"{card_of('n1', 0)},{card_of('n1', 1)}"
    shown[names.DEFRAG] = MARK
    assert mended(api) == "put back into service what was left drained on n1"
    after = api.raw(NODES, "n1")["metadata"]["annotations"]
    assert after[names.DRAINED] == card_of("n1", 0), "somebody drained that one"
    assert not after.get(names.DEFRAG)


def test_a_gpu_that_two_nodes_report_is_named_with_both():
    """With the token of one node's agent, somebody may report the GPUs of another node."""
    true = node("n2", [80 * GI], agent="1.0")
    forged = node(
        "n1", [80 * GI] * 2, agent="1.0", annotations={names.GPUS: true.metadata.annotations[names.GPUS]}
    )
    twice = [each for each in found(nodes=(forged, true)) if each.kind == "reported-twice"]
    assert [each.target for each in twice] == [card_of("n2", 0)]
    assert twice[0].found == f"{card_of('n2', 0)} is reported by 2 nodes: n1, n2"

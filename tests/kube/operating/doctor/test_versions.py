"""Versions of servers, agents and this program that differ."""

from kube.operating.clusters import GI, node
from kube.operating.well import WELL, found, kinds, own


def test_this_program_is_of_another_version_than_the_cluster():
    (finding,) = found(version="2.0")
    assert (finding.kind, finding.target) == ("versions-differ", "cotenant")
    assert "this program has version 2.0, but the cluster runs 1.0" in finding.found


def test_agents_differ_among_each_other_where_no_server_is_seen():
    nodes = tuple(node(f"n{at}", [80 * GI] * 2, agent=its) for at, its in enumerate(("1.0", "1.0", "0.9")))
    agents = tuple(own(f"cotenant-agent-{at}", "agent", on=f"n{at}") for at in range(3))
    told = [each for each in found(nodes=nodes, own=agents) if each.kind == "versions-differ"]
    assert [each.found for each in told] == ["the agents on n2 have version 0.9, but most others have 1.0"]


def test_servers_of_two_versions_and_an_agent_of_neither():
    servers = tuple(own(f"cotenant-server-{its}", "server", version=its) for its in ("1.0", "1.1"))
    told = found(own=(*WELL.own[:1], *servers), nodes=(node("n1", [80 * GI] * 2, agent="0.9"),), lease=None)
    targets = [each.target for each in told if each.kind == "versions-differ"]
    assert targets == ["server", "agent 0.9"]


def test_an_agent_of_another_version_than_the_server():
    assert kinds(nodes=(node("n1", [80 * GI] * 2, agent="0.9"),)) == ["versions-differ"]


def test_a_version_that_is_not_reported_is_not_compared():
    assert kinds(version="", nodes=(node("n1", [80 * GI] * 2),)) == []

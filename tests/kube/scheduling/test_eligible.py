"""A pod may go where it was refused, and to every node that came later, whatever row that has."""

from kube.scheduling.plain import GI, gib, ledger_of_cluster

from cotenant.core.gpu import GPU
from cotenant.kube.scheduling.eligible import no_wider, only, rows_of
from cotenant.kube.scheduling.waiting import WaitingPod, serve


def may_go(cluster, eligible):
    return [cluster.name(row) for row in rows_of(cluster, eligible).tolist()]


def add(cluster, name):
    cluster.set_node(name, [GPU(f"{name}-0", 0, "T4", 16 * GI)], {})


def test_a_node_that_came_later_is_open_to_it_also_in_the_row_of_one_that_is_gone():
    cluster = ledger_of_cluster([(16, 16)], [(16, 16)], [(16, 16)])
    eligible = only(cluster, cluster.rows(["n0"]))
    assert may_go(cluster, eligible) == ["n0"]
    cluster.drop_node("n1")
    add(cluster, "later")
    assert cluster.rows(["later"]).tolist() == [1]
    assert may_go(cluster, eligible) == ["n0", "later"]
    cluster.drop_node("n0")
    assert may_go(cluster, eligible) == ["later"]
    assert may_go(cluster, None) == ["later", "n2"]


def test_such_a_node_is_served():
    cluster = ledger_of_cluster([(1, 16)], [(16, 16)])
    pod = WaitingPod("w", (gib(8),), 0, 0.0, only(cluster, cluster.rows(["n0"])))
    assert serve(cluster, [pod], 1.0, 60.0).wake == ()
    cluster.drop_node("n1")
    add(cluster, "later")
    assert serve(cluster, [pod], 1.0, 60.0).places == {"w": ("later", ("later-0",))}


def test_who_may_go_to_newer_nodes_only_may_not_go_further():
    cluster = ledger_of_cluster([(16, 16)], [(16, 16)])
    older = only(cluster, cluster.rows(["n0"]))
    cluster.drop_node("n1")
    add(cluster, "later")
    newer = only(cluster, cluster.rows(["n0"]))
    assert no_wider(newer, older)
    assert not no_wider(older, newer)
    assert no_wider(older, None)
    assert not no_wider(None, older)

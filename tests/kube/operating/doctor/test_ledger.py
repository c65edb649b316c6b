"""The leader's ledger against the grants; servers whose ledger is wrong are restarted."""

import msgspec
import pytest
from kube.operating.clusters import GI, card_of, uid_of
from kube.operating.doctor.wellapi import SPACE, STATE, deployment, examine, found_on
from kube.operating.well import WELL, found, kinds, told_by_server

from cotenant.kube.extender.state import state
from cotenant.kube.operating.doctor.rollout import DEPLOYMENTS
from cotenant.kube.operating.explain.line_view import ledger_of_cluster
from cotenant.observe.state import ServerState

A = {"node": "n1", "gpus": {card_of("n1", 0): 8 * GI}}


@pytest.mark.parametrize(
    ("charged", "kind"),
    [
        ({uid_of("team/a"): A}, []),
        ({uid_of("team/a"): A, "uid-of-nobody": A}, ["charge-leaked"]),
        ({}, ["charge-missing"]),
        ({uid_of("team/a"): {**A, "node": "n2"}}, ["charge-differs"]),
        ({uid_of("team/a"): {**A, "gpus": {card_of("n1", 0): GI}}}, ["charge-differs"]),
    ],
)
def test_the_leaders_ledger_differs_from_the_grants(charged, kind):
    told = found(ledgers={"server-1": told_by_server(leads=True, charged=charged)})
    assert [each.kind for each in told] == kind
    assert all(each.repair == "servers" for each in told), "a server that starts reads all grants anew"
    follows = {"server-1": told_by_server(leads=False, charged=charged)}
    assert kinds(ledgers=follows) == [], "only the leader's counts"


def test_the_ledger_is_told_as_it_is_compared():
    cluster = ledger_of_cluster(WELL.nodes, WELL.pods)
    told = msgspec.json.decode(state(cluster, leads=True), type=ServerState)
    assert kinds(ledgers={"server-1": told}) == []
    assert kinds(ledgers={"server-1": told, "server-2": told}) == ["two-lead"]


def test_a_ledger_that_is_wrong_is_read_anew_by_servers_that_start(api, monkeypatch):
    right = api.paths[STATE]
    stranger = {"node": "n1", "gpus": {card_of("n1", 1): GI}}
    wrong = {**right, "charged": {**right["charged"], "nobody": stranger, "nobody-either": stranger}}

    def told():
        restarted = "restartedAt" in str(api.raw(DEPLOYMENTS, "cotenant-server", SPACE))
        return right if restarted else wrong

    api.paths[STATE] = told
    first, second = examine(api, fix=True)
    assert (first.finding.kind, first.left, second.left) == ("charge-leaked", False, False)
    assert "read all grants again" in first.done
    assert second.done == "nothing was left to do: the servers' ledger is right"
    assert api.writes == ["patch deployments cotenant-server"], "once for both"
    assert found_on(api) == []


def test_a_deployment_that_is_paused_or_not_ours_is_not_restarted(api):
    wrong = {**api.paths[STATE], "charged": {}}
    api.paths[STATE] = wrong
    api.put(DEPLOYMENTS, deployment("cotenant-server", paused=True), SPACE)
    (outcome,) = examine(api, fix=True)
    assert "kubectl rollout resume -n cotenant-system deployment/cotenant-server" in outcome.done
    api.raw(DEPLOYMENTS, "cotenant-server", SPACE)["metadata"]["labels"] = {}
    (outcome,) = examine(api, fix=True)
    assert outcome.left
    assert "is not Cotenant's" in outcome.done
    assert api.writes == []

"""A server's /state is the ledger as it was at one moment, made in pieces so that others are answered meanwhile."""

import msgspec
from kube.scheduling.plain import GI, granted, ledger_of_cluster

from cotenant.core.grant import Share
from cotenant.kube.extender.state import AT_ONCE, state, state_in_pieces
from cotenant.observe.state import Charge, Hold, ServerState, TermState


def full(pods: int):
    cluster = ledger_of_cluster([(64, 64)] * 4)
    for number in range(pods):
        shares = (Share(f"n0-{number % 4}", 1024), Share(f"n0-{number % 2}", 512))
        cluster.load("n0", granted(f'uid-"{number}', *shares))
    return cluster


def test_it_says_all_that_the_ledger_has():
    for pods in (0, 1, AT_ONCE, AT_ONCE + 1):
        cluster = full(pods)
        cluster.hold("w", "n0", ["n0-1", "n0-0"])
        term = TermState(3, begun=True)
        read = msgspec.json.decode(state(cluster, ("w",), term, leads=True), type=ServerState)
        assert (read.leads, read.line, read.term) == (True, ("w",), term)
        assert read.holds == {"w": Hold("n0", ("n0-0", "n0-1"))}
        assert len(read.charged) == pods
        if pods:
            assert read.charged['uid-"0'] == Charge("n0", {"n0-0": 1536})


def test_it_is_the_ledger_of_one_moment_whatever_happens_between_two_pieces():
    cluster = full(3 * AT_ONCE)
    made = state_in_pieces(cluster, leads=True)
    pieces = [next(made)]
    for number in range(3 * AT_ONCE):
        cluster.release(f'uid-"{number}')
    cluster.charge("n0", granted("new", Share("n0-0", GI)))
    pieces += made
    assert len(pieces) == 5, "its frame, and three with pods"
    read = msgspec.json.decode(b"".join(pieces), type=ServerState)
    assert len(read.charged) == 3 * AT_ONCE
    assert "new" not in read.charged

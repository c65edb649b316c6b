"""What may not be read is reported, and nothing is called wrong because of it."""

from kube.operating.well import LEADS, found, kinds, told_by_agent


def test_what_could_not_be_read_is_said():
    (finding,) = found(unread=("secret cotenant-certificates: not allowed",), certificates=None)
    assert finding.kind == "not-looked-at"


def test_without_the_pods_no_charge_and_no_slot_is_called_left():
    slot = {"device": "slot-0000", "uid": "x", "namespace": "team", "pod": "a", "container": "main"}
    told = told_by_agent(slots=[slot])
    blind = {"pods": (), "unread": ("pods: not allowed",), "states": {"n1": told}, "ledgers": LEADS}
    assert kinds(**blind) == ["not-looked-at"]

"""Which server leads, whether its term has begun, and the endpoint that leads to it, which is repaired."""

import msgspec
import pytest
from kube.operating.clusters import NOW
from kube.operating.doctor.wellapi import SPACE, STATE, examine, mended
from kube.operating.well import LEADS, WELL, found, kinds, leads_to, lease, own, told_by_server

from cotenant.kube.api.resources import LEASES
from cotenant.kube.extender.state import state
from cotenant.kube.operating.doctor.gather import SLICES
from cotenant.kube.operating.explain.line_view import ledger_of_cluster
from cotenant.observe.state import ServerState, TermState


@pytest.mark.parametrize("held", [None, lease(""), lease(age=300)])
def test_nobody_leads(held):
    assert kinds(lease=held) == ["not-led"]


def test_a_lease_in_the_future_is_held():
    ahead = msgspec.structs.replace(
        WELL.lease, spec=msgspec.structs.replace(WELL.lease.spec, renew_time=NOW.replace(hour=13))
    )
    assert kinds(lease=ahead) == []


TERM = {"number": 7, "begun": False, "waits_for": "ledger: 3 grants cannot be read"}


def test_a_term_that_cannot_begin_is_reported_with_the_part_and_the_reason():
    (finding,) = found(ledgers={"cotenant-server-1": told_by_server(leads=True, term=TERM)})
    assert (finding.kind, finding.severity, finding.repair) == ("term-not-begun", "error", None)
    assert finding.target == "pod cotenant-system/cotenant-server-1"
    assert "its part ledger is not ready: 3 grants cannot be read" in finding.found
    assert "term 7" in finding.found
    assert finding.do.endswith("kubectl logs -n cotenant-system cotenant-server-1")


@pytest.mark.parametrize(
    ("term", "kind"),
    [
        (None, []),
        ({"number": 7, "begun": True}, []),
        ({"number": 7, "begun": False, "waits_for": None}, []),
        ({"number": 7, "begun": False, "waits_for": "ledger", "since": 1}, ["term-not-begun"]),
        ({"number": 7, "waits_for": "ledger: x: y"}, ["term-not-begun"]),
    ],
)
def test_terms_of_older_and_newer_servers_are_read(term, kind):
    server = told_by_server(leads=False, term=term)
    assert kinds(ledgers={"cotenant-server-1": server}) == kind, "one that lost the lease waits for nothing"


def test_a_leader_whose_term_has_not_begun_is_the_reason_why_there_is_no_endpoint():
    """It writes the endpoint when its term begins: that it is missing is not another fault."""
    waits = told_by_server(leads=True, term=TERM)
    assert kinds(ledgers={"cotenant-server-1": waits}, slices={}) == ["term-not-begun"]
    assert kinds(ledgers={"cotenant-server-1": waits}, slices=leads_to("10.1.0.7")) == ["term-not-begun"]


def test_a_term_is_reported_as_it_is_read():
    cluster = ledger_of_cluster(WELL.nodes, WELL.pods)
    waits = TermState(7, begun=False, waits_for="ledger: 3 grants cannot be read")
    told = msgspec.json.decode(state(cluster, term=waits, leads=False), type=ServerState)
    assert kinds(ledgers={"cotenant-server-1": told}) == ["term-not-begun"]


def test_a_leader_that_does_not_say_why_its_term_has_not_begun():
    server = told_by_server(leads=True, term={"number": 7, "begun": False})
    (finding,) = found(ledgers={"cotenant-server-1": server})
    assert finding.found.endswith("term 7 has not begun: the server does not say why")


def test_a_term_that_begins_within_seconds_is_not_reported(api):
    told = api.paths[STATE]
    looks = iter([{**told, "leads": False, "term": TERM}, {**told, "term": {"number": 7, "begun": True}}])
    api.paths[STATE] = lambda: next(looks)
    assert examine(api) == ()


def test_a_server_whose_name_begins_like_the_leaders_is_another():
    others = (*WELL.own, own("cotenant-server-10", "server", ip="10.1.0.10"))
    assert kinds(own=others) == []


@pytest.mark.parametrize(
    "slices",
    [
        {},
        leads_to(),
        leads_to("10.1.0.9", "10.1.0.8"),
        leads_to("10.1.0.7"),
        leads_to("10.1.0.9", endpoints=[{"addresses": ["10.1.0.9"], "conditions": {"ready": False}}]),
        leads_to("10.1.0.9", port=443),
    ],
)
def test_the_service_does_not_point_to_the_leader(slices):
    (finding,) = found(slices=slices)
    assert (finding.kind, finding.repair) == ("wrong-endpoint", None), "nobody says that it leads"
    (finding,) = found(slices=slices, ledgers=LEADS)
    assert (finding.kind, finding.repair) == ("wrong-endpoint", "endpoint")


def test_endpoints_that_no_server_wrote_are_for_people_to_delete():
    strange = leads_to("10.9.9.9", name="by-hand")
    (finding,) = found(slices={**WELL.slices, **strange}, ledgers=LEADS)
    assert (finding.kind, finding.repair) == ("wrong-endpoint", None)
    assert finding.do == "delete them: kubectl delete endpointslice -n cotenant-system by-hand"


def test_the_endpoint_of_the_leader_is_written(api):
    api.raw(SLICES, "cotenant-extender", SPACE)["endpoints"] = [{"addresses": ["10.1.0.7"]}]
    assert mended(api) == "wrote the address of cotenant-server-1 (10.1.0.9)"
    api.raw(SLICES, "cotenant-extender", SPACE)["ports"] = [{"port": 1}]
    mended(api)
    api.raw(SLICES, "cotenant-extender", SPACE).update(addressType="IPv6", endpoints=[{"addresses": ["::1"]}])
    mended(api)
    del api.objects[("endpointslices", SPACE, "cotenant-extender")]
    mended(api)


def test_the_endpoint_is_left_to_a_leader_that_was_elected_meanwhile(api):
    slice_ = api.raw(SLICES, "cotenant-extender", SPACE)
    slice_["endpoints"] = [{"addresses": ["10.1.0.7"]}]
    told = api.paths[STATE]
    looks = []

    def taken_over():
        looks.append(1)
        if len(looks) == 2:  # after the facts, before the repair
            api.raw(LEASES, "cotenant-server", SPACE)["spec"]["holderIdentity"] = "cotenant-server-2_1_x"
        return told

    api.paths[STATE] = taken_over
    (outcome,) = [each for each in examine(api, fix=True) if each.done]
    assert outcome.done == "could not: cotenant-server-2_1_x leads now"
    assert api.writes == []

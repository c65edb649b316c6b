"""All subjects together: a cluster that is well gives nothing, and many faults at once are repaired where that is safe."""

import base64

import msgspec
import pytest
from kube.operating.clusters import GI, card_of, pod, uid_of
from kube.operating.doctor.wellapi import SPACE, STATE, examine, found_on, scheduler_map
from kube.operating.well import SCHEDULER, found

from cotenant.dialects import names
from cotenant.kube.admission.configuration import NAME
from cotenant.kube.api.errors import Forbidden
from cotenant.kube.api.resources import CONFIG_MAPS, NODES, PODS
from cotenant.kube.operating.doctor.gather import BINDINGS, SLICES
from cotenant.kube.operating.installed import RAW_WEBHOOKS


def test_a_cluster_that_is_well_gives_nothing():
    assert found() == []


def test_a_cluster_that_is_well_is_not_written_to(api):
    assert examine(api, fix=True) == ()
    assert api.writes == []


def test_a_write_that_is_not_allowed_is_told_and_the_rest_is_done(api, monkeypatch):
    api.raw(BINDINGS, "cotenant-grants")["spec"]["validationActions"] = ["Warn"]
    api.raw(NODES, "n1")["metadata"]["annotations"][names.DRAINED] = "GPU-gone"
    written = api.merge_patch

    async def refuse(resource, *words, **more):
        if resource.plural == "nodes":
            raise Forbidden("patch nodes n1: not allowed")
        return await written(resource, *words, **more)

    monkeypatch.setattr(api, "merge_patch", refuse)
    policy, mark = examine(api, fix=True)
    assert not policy.left
    assert (mark.left, mark.done) == (True, "could not: patch nodes n1: not allowed")


@pytest.mark.parametrize("plural", ["pods", "nodes", "leases", "secrets", "mutatingwebhookconfigurations"])
def test_what_may_not_be_read_is_told_and_not_called_wrong(api, plural):
    api.forbid(plural)
    assert set(found_on(api)) == {"not-looked-at"}
    assert examine(api, fix=True)
    assert api.writes == []


def test_states_that_may_not_be_asked_for_or_make_no_sense_are_told(api):
    api.paths[STATE] = Forbidden("get pods/proxy: not allowed")
    (outcome,) = examine(api)
    assert "/state of servers: get pods/proxy: not allowed" in outcome.finding.found


def test_eight_faults_at_once_the_safe_ones_are_mended_and_the_second_run_tells_only_of_pods(api):
    api.put(PODS, msgspec.to_builtins(pod("b", 75 * GI, on="n1")), "team")  # for people
    api.raw(NODES, "n1")["metadata"]["annotations"][names.DRAINED] = "GPU-gone"
    api.raw(RAW_WEBHOOKS, NAME)["webhooks"][0]["failurePolicy"] = "Ignore"
    other = base64.b64encode(b"another authority").decode()
    api.raw(RAW_WEBHOOKS, NAME)["webhooks"][0]["clientConfig"]["caBundle"] = other
    api.raw(BINDINGS, "cotenant-modes")["spec"]["validationActions"] = ["Audit"]
    api.put(CONFIG_MAPS, scheduler_map({**SCHEDULER, "percentageOfNodesToScore": 50}), SPACE)
    api.raw(SLICES, "cotenant-extender", SPACE)["endpoints"] = []
    charged = api.paths[STATE]["charged"]
    for name, size, card in (("b", 75 * GI, 0), ("a", 8 * GI, 0)):
        charged[uid_of(f"team/{name}")] = {"node": "n1", "gpus": {card_of("n1", card): size}}
    api.raw(NODES, "n1")["status"]["capacity"]["nvidia.com/gpu"] = "2"  # for people
    faults = {
        "over-granted",
        "drained-gone",
        "webhook-altered",
        "ca-bundle",
        "policy",
        "scheduler-samples",
        "wrong-endpoint",
        "second-plugin",
    }
    assert set(found_on(api)) == faults
    outcomes = examine(api, fix=True)
    assert {each.finding.kind for each in outcomes if each.left} == {"over-granted", "second-plugin"}
    assert set(found_on(api)) == {"over-granted", "second-plugin"}
    assert all("kubectl" in each.finding.do or "label" in each.finding.do for each in examine(api))

"""Slots that differ from grants or from the kubelet's record."""

import pytest
from kube.operating.clusters import GI, card_of, pod, uid_of
from kube.operating.well import WELL, found, kinds, told_by_agent

SLOT = {
    "device": "slot-0000",
    "uid": uid_of("team/a"),
    "namespace": "team",
    "pod": "a",
    "container": "main",
    "limits": {card_of("n1", 0): 8 * GI},
}


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"slots": [SLOT], "kubelet": {"slot-0000": ["team/a/main"]}}, []),
        ({"slots": [SLOT], "kubelet": {}}, []),
        ({"slots": [SLOT], "kubelet": {"slot-0000": ["team/b/main"]}}, ["slot-of-another"]),
        ({"slots": [SLOT], "kubelet": {"slot-0000": ["team/a/main", "team/b/main"]}}, ["slot-of-another"]),
        ({"waits": ["the kubelet does not know it"]}, ["agent-waits"]),
        ({"slots": [{**SLOT, "mode": "enforce", "used": {card_of("n1", 0): 9 * GI}}]}, ["over-limit"]),
        ({"slots": [{**SLOT, "mode": "warn", "used": {card_of("n1", 0): 9 * GI}}]}, []),
        ({"slots": [{**SLOT, "limits": {card_of("n1", 0): 9 * GI}}]}, ["limit-differs"]),
        ({"slots": [{**SLOT, "limits": {}}]}, ["limit-differs"]),
        ({"slots": [{**SLOT, "container": "other"}]}, ["limit-differs"]),
        ({"slots": [{**SLOT, "uid": "gone"}]}, ["slot-left"]),
        ({"slots": [{**SLOT, "uid": ""}]}, ["slot-left"]),
        ({"slots": [{**SLOT, "unlimited": [4711]}]}, ["limit-not-live"]),
    ],
)
def test_slots_that_differ_from_grants(told, kind):
    assert kinds(states={"n1": told_by_agent(**told)}) == kind


def test_a_slot_of_a_pod_that_ended_or_runs_on_another_node_is_left():
    ended = pod("a", 8 * GI, on="n1", phase="Succeeded")
    state = {"n1": told_by_agent(slots=[{**SLOT, "held": True}])}
    (finding,) = found(states=state, pods=(ended, *WELL.pods[1:]))
    assert finding.kind == "slot-left"
    assert "a process lives in it" in finding.found
    assert finding.repair is None, "the agent removes it when that process has ended"
    assert kinds(states={"n2": told_by_agent(slots=[SLOT])}) == ["slot-left"]


def test_the_limits_of_one_slot_on_two_gpus_are_two_findings():
    wrong = {**SLOT, "limits": {card_of("n1", 0): GI, card_of("n1", 1): GI}}
    both = found(states={"n1": told_by_agent(slots=[wrong])})
    assert len({each.key for each in both}) == 2


def test_a_container_without_its_limit_is_named_with_its_processes_and_what_to_do():
    (finding,) = found(states={"n1": told_by_agent(slots=[{**SLOT, "unlimited": [4711, 4712]}])})
    assert "team/a/main uses a GPU of n1 without the shim (processes 4711, 4712 of the host)" in finding.found
    assert "slots_label" in finding.do


def test_a_pod_that_its_agent_reports_over_its_limit_is_named():
    words = "asked shim, holds watch: container main holds 9Gi on GPU 0, 1Gi more than its limit of 8Gi"
    over = pod("a", 8 * GI, on="n1", held=("False", "OverLimit", words))
    (finding,) = found(pods=(over, *WELL.pods[1:]))
    assert finding.kind == "over-limit"
    assert "team/a on n1: container main holds 9Gi on GPU 0, 1Gi more" in finding.found

"""The definition of GpuScalers: missing, not served, or of an older version."""

import copy

import pytest
from kube.operating.doctor.wellapi import examine, found_on, well_api
from kube.operating.well import DEFINITION, found, kinds

from cotenant.kube.api.resources import DEFINITIONS
from cotenant.kube.operating.doctor.definitions import NAME


def test_one_that_is_missing_is_an_error_with_both_ways_to_restore_it():
    (finding,) = found(definition=None)
    assert (finding.kind, finding.target, finding.severity) == (
        "definition-missing",
        "definition gpuscalers.cotenant.dev",
        "error",
    )
    assert "helm upgrade" in finding.do
    assert "kubectl apply -f deploy/cotenant.yaml -l app.kubernetes.io/component=scaler" in finding.do


def test_as_installed_it_is_well_also_with_what_the_api_server_adds():
    made = {"spec": copy.deepcopy(DEFINITION)}
    made["spec"]["conversion"] = {"strategy": "None"}
    made["status"] = {
        "conditions": [
            {"type": "Established", "status": "True"},
            {"type": "NamesAccepted", "status": "True"},
            {"type": "NonStructuralSchema", "status": "False"},
        ]
    }
    assert kinds(definition=made) == []


def drop(*path):
    def change(spec):
        place = spec["versions"][0]["schema"]["openAPIV3Schema"]
        for each in path[:-1]:
            place = place["properties"][each]
        del place["properties"][path[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop("spec", "scaleDownThreshold"), "lacks fields: spec.scaleDownThreshold"),
        (drop("spec", "backlog", "queue", "nats"), "lacks fields: spec.backlog.queue.nats"),
        (drop("status", "memory"), "lacks fields: status.memory"),
        (drop("status"), "lacks fields: status"),
        (lambda spec: spec["versions"][0].pop("subresources"), "has no status subresource"),
        (lambda spec: spec["versions"][0].update(served=False), "does not serve v1alpha1"),
        (lambda spec: spec.update(versions=[]), "does not serve v1alpha1"),
        (lambda spec: spec["versions"][0].pop("schema"), "lacks fields: apiVersion, kind"),
    ],
)
def test_one_of_an_older_version_names_what_it_lacks(change, words):
    made = copy.deepcopy(DEFINITION)
    change(made)
    (finding,) = found(definition={"spec": made})
    assert finding.kind == "definition-outdated"
    assert words in finding.found


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (
            {"type": "Established", "status": "False", "message": "not all names are accepted"},
            "not all names",
        ),
        ({"type": "NamesAccepted", "status": "False", "message": ""}, "NamesAccepted"),
        ({"type": "Terminating", "status": "True", "message": "instances remain"}, "instances remain"),
    ],
)
def test_one_that_the_api_server_does_not_serve(condition, words):
    made = {"spec": DEFINITION, "status": {"conditions": [condition]}}
    (finding,) = found(definition=made)
    assert finding.kind == "definition-missing"
    assert words in finding.found


def test_what_may_not_be_read_or_belongs_to_another_version_is_not_judged():
    assert kinds(definition=None, unread=("definition: forbidden",)) == ["not-looked-at"]
    assert "definition-missing" not in kinds(definition=None, version="2.0")


def test_it_is_read_from_the_api_server():
    api = well_api()
    assert found_on(api) == []
    api.remove(DEFINITIONS, NAME)
    assert found_on(api) == ["definition-missing"]
    assert all(each.left for each in examine(api, fix=True)), "the chart's text is not written here"

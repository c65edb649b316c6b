"""Policies that are missing, changed, or do not deny; their bindings are restored."""

from pathlib import Path

import pytest
import yaml
from kube.operating.doctor.wellapi import OURS, examine, mended
from kube.operating.well import POLICY, WELL, binding, found, kinds

from cotenant.kube.operating.doctor.gather import BINDINGS
from cotenant.kube.operating.doctor.gather import POLICIES as POLICY_OBJECTS
from cotenant.kube.operating.doctor.policy_checksum import ANNOTATION


@pytest.mark.parametrize(
    ("policy", "changes", "repair"),
    [
        (None, {}, None),
        ({"spec": {"failurePolicy": "Ignore"}}, {}, "policy"),
        ({"spec": {}}, {}, "policy"),
        (POLICY, None, "policy"),
        (POLICY, {"validationActions": ["Audit"]}, "policy"),
        (POLICY, {"matchResources": {"namespaceSelector": {}}}, "policy"),
        (POLICY, {"policyName": "cotenant-modes"}, "policy"),
        (POLICY, {"paramRef": {"name": "x"}}, "policy"),
    ],
)
def test_a_policy_that_is_missing_or_does_not_deny(policy, changes, repair):
    policies = {**WELL.policies, "cotenant-grants": policy}
    bound = None if changes is None else binding("cotenant-grants", **changes)
    bindings = {**WELL.bindings, "cotenant-grants": bound}
    (finding,) = found(
        policies={name: each for name, each in policies.items() if each},
        bindings={name: each for name, each in bindings.items() if each},
    )
    assert (finding.kind, finding.target) == ("policy", "policy cotenant-grants")
    assert finding.repair == repair, "the text of a policy is the chart's"


def installed_policies() -> dict[str, dict]:
    """Those of deploy/cotenant.yaml, which Helm wrote."""
    text = (Path(__file__).parents[4] / "deploy" / "cotenant.yaml").read_text()
    found = [each for each in yaml.safe_load_all(text) if each]
    return {each["metadata"]["name"]: each for each in found if each["kind"] == "ValidatingAdmissionPolicy"}


def test_policies_as_the_chart_made_them_are_recognised_by_their_checksum():
    made = installed_policies()
    assert set(made) == set(WELL.policies)
    assert all(ANNOTATION in each["metadata"]["annotations"] for each in made.values())
    assert kinds(policies=made) == []
    for each in made.values():  # as an API server gives them back
        defaults = {"matchPolicy": "Equivalent", "objectSelector": {}, "namespaceSelector": {}}
        each["spec"]["matchConstraints"] = {**defaults, **each["spec"]["matchConstraints"]}
        each["spec"]["somethingNew"] = "a default of next year"
    assert kinds(policies=made) == []


@pytest.mark.parametrize(
    "alter",
    [
        lambda spec: spec["validations"].pop(),
        lambda spec: spec["validations"][0].update(expression="true"),
        lambda spec: spec.update(matchConditions=[{"name": "never", "expression": "false"}]),
        lambda spec: spec["matchConstraints"].update(namespaceSelector={"matchLabels": {"a": "b"}}),
        lambda spec: spec["matchConstraints"].update(excludeResourceRules=[{"resources": ["pods"]}]),
        lambda spec: spec["matchConstraints"].update(matchPolicy="Exact"),
        lambda spec: spec.update(matchConstraints=None),
        lambda spec: spec.update(paramKind={"kind": "ConfigMap", "apiVersion": "v1"}),
        lambda spec: spec.pop("variables"),
    ],
)
def test_a_policy_whose_text_was_changed(alter):
    made = installed_policies()
    alter(made["cotenant-demands"]["spec"])
    (finding,) = found(policies=made)
    assert (finding.kind, finding.target) == ("policy-altered", "policy cotenant-demands")
    assert finding.repair is None
    assert "kubectl apply -f deploy/cotenant.yaml -l app.kubernetes.io/component=policy" in finding.do
    del made["cotenant-demands"]["metadata"]["annotations"]
    assert kinds(policies=made) == [], "who changes one on purpose says so by taking the sum off"


@pytest.mark.parametrize(
    "change",
    [
        {"validationActions": ["Audit"]},
        {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}},
        {"policyName": "cotenant-modes"},
        {"paramRef": {"name": "x"}},
    ],
)
def test_a_binding_that_does_not_deny_everywhere(api, change):
    api.raw(BINDINGS, "cotenant-grants")["spec"].update(change)
    assert mended(api) == "restored its binding: it denies everywhere"
    assert api.writes == ["patch validatingadmissionpolicybindings cotenant-grants"]
    assert api.raw(BINDINGS, "cotenant-grants")["spec"] == binding("cotenant-grants")["spec"]


def test_a_binding_that_is_gone_is_made_with_its_policys_labels(api):
    del api.objects[("validatingadmissionpolicybindings", "", "cotenant-nodes")]
    assert mended(api) == "created its binding"
    made = api.raw(BINDINGS, "cotenant-nodes")["metadata"]["labels"]
    assert made == {**OURS, "app.kubernetes.io/component": "policy"}


def test_a_policy_that_lets_pass_what_it_cannot_judge_and_is_not_bound(api):
    api.raw(POLICY_OBJECTS, "cotenant-cards")["spec"] = {"failurePolicy": "Ignore", "validations": ["kept"]}
    del api.objects[("validatingadmissionpolicybindings", "", "cotenant-cards")]
    assert mended(api) == "set failurePolicy to Fail, created its binding"
    spec = api.raw(POLICY_OBJECTS, "cotenant-cards")["spec"]
    assert spec == {"failurePolicy": "Fail", "validations": ["kept"]}


def test_a_policy_that_is_gone_is_for_the_chart_to_bring_back(api):
    del api.objects[("validatingadmissionpolicies", "", "cotenant-cards")]
    (outcome,) = examine(api, fix=True)
    assert (outcome.left, outcome.done) == (True, None)
    assert "kubectl apply" in outcome.finding.do
    assert api.writes == []

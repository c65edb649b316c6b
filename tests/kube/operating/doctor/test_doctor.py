"""Each thing that can be wrong in a cluster is found, by itself, and a cluster that is well gives nothing."""

import base64
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
import yaml
from kube.operating.clusters import GI, NOW, card_of, node, pod, uid_of
from kube.operating.well import (
    DATA,
    EXTENDER,
    LEADS,
    POLICY,
    SCHEDULER,
    WEBHOOK,
    WELL,
    WHERE,
    binding,
    found,
    image,
    kinds,
    leads_to,
    lease,
    ready,
    told_by_agent,
    told_by_server,
    with_pod,
)

from cotenant.dialects import names
from cotenant.kube.api.objects import Generic, Meta
from cotenant.kube.extender.state import state
from cotenant.kube.operating.doctor.installed_sum import ANNOTATION
from cotenant.kube.operating.explain.line_view import ledger_of_cluster
from cotenant.observe.state import ServerState


def test_a_cluster_that_is_well_gives_nothing():
    assert found() == []


def test_a_card_granted_beyond_its_size():
    (finding,) = found(**with_pod(pod("b", 75 * GI, on="n1")))
    assert finding.kind == "over-granted"
    assert finding.target == card_of("n1", 0)
    assert "GPU 0 of n1 has 80Gi, and 83Gi are granted: team/a 8Gi, team/b 75Gi" in finding.found
    assert finding.repair is None, "which pod has to go is for people to say"


def test_a_whole_card_that_is_shared():
    whole = pod("w", 80 * GI, on="n1", cards=(1,), whole=True)
    assert kinds(**with_pod(whole, pod("x", GI, on="n1", cards=(1,)))) == ["over-granted"]


def test_grants_that_are_forged_or_of_another_pod():
    copied = pod("a", 8 * GI, on="n1").metadata.annotations[names.GRANT]
    (finding,) = found(**with_pod(pod("thief", GI, on="n1", annotations={names.GRANT: copied})))
    assert finding.kind == "grant-unreadable"
    assert "it is of the pod with UID" in finding.found
    assert kinds(**with_pod(pod("early", GI, annotations={names.GRANT: copied}))) == ["grant-forged"]
    ended = pod("done", 80 * GI, on="n1", phase="Succeeded", annotations={names.GRANT: copied})
    assert kinds(**with_pod(ended)) == [], "one that has ended holds nothing"


def test_gpu_pods_past_the_scheduler_and_past_the_webhook():
    asks = {names.GPU_MEMORY: "4Gi", names.GPU_SLOT: "1"}
    assert kinds(**with_pod(pod("p", on="n1", asks=asks))) == ["no-grant"]
    assert kinds(**with_pod(pod("p", asks={names.GPU_MEMORY: "4Gi"}))) == ["not-admitted"]


def test_a_grant_of_a_card_that_is_gone():
    assert kinds(**with_pod(pod("p", GI, on="n1", cards=(5,)))) == ["card-gone"]


@pytest.mark.parametrize(
    ("nodes", "kind"),
    [
        ([node("n1", [80 * GI] * 2, annotations={names.GPUS: "{"})], "node-unreadable"),
        ([node("n1", [80 * GI] * 2, capacity={names.GPU_MEMORY: "0"})], "capacity-differs"),
        ([node("n1", [80 * GI] * 2, capacity={names.GPU_MEMORY: "999Gi"})], "capacity-differs"),
        ([node("n1", [80 * GI] * 2, agent="0.9")], "versions-differ"),
        ([node("n1", [80 * GI] * 2, capacity={"nvidia.com/gpu": "2"})], "second-plugin"),
        ([node("n1", [80 * GI] * 2, annotations={names.DRAINED: "GPU-gone"})], "drained-gone"),
        ([node("n1", [80 * GI] * 2, problems={1: "XID 79"})], "sick"),
        ([node("n1", [80 * GI], outside=GI)], "outside"),
        ([node("n1", [80 * GI] * 2), node("n2", [80 * GI])], "agent-missing"),
    ],
)
def test_nodes(nodes, kind):
    assert kinds(nodes=tuple(nodes)) == [kind]


def test_a_node_that_shows_memory_and_no_cards():
    bare = node("n2", [16 * GI])
    bare.metadata.annotations.pop(names.GPUS)
    assert kinds(nodes=(*WELL.nodes, bare)) == ["node-untold"]


def test_an_agent_that_is_not_ready():
    (finding,) = found(pods=(pod("a", 8 * GI, on="n1"), ready("cotenant-server-1")))
    assert finding.kind == "agent-missing"
    assert "cotenant-agent-1 is not ready" in finding.found


@pytest.mark.parametrize(
    "image_",
    [
        "registry.cn-hangzhou.aliyuncs.com/acs/k8s-gpushare-plugin:v2",
        "volcanosh/volcano-device-plugin:v1",
        "nvcr.io/nvidia/k8s-device-plugin:v0.17",
    ],
)
def test_a_second_device_plugin_on_the_same_cards(image_):
    assert kinds(images=(image("plugin", image_),)) == ["second-plugin"]
    assert kinds(images=(image("plugin", image_, on="elsewhere"),)) == []


def test_a_pod_that_sees_cards_without_asking():
    assert kinds(images=(image("peeks", NVIDIA_VISIBLE_DEVICES="all"),)) == ["sees-cards"]
    assert kinds(images=(image("blind", NVIDIA_VISIBLE_DEVICES="void"),)) == []


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"percentageOfNodesToScore": None}, "scheduler-samples"),
        ({"percentageOfNodesToScore": 0}, "scheduler-samples"),
        ({"profiles": [{"schedulerName": "x", "percentageOfNodesToScore": 20}]}, "scheduler-samples"),
        ({"extenders": [{**EXTENDER, "ignorable": True}]}, "scheduler-extender"),
        ({"extenders": [{**EXTENDER, "bindVerb": ""}]}, "scheduler-extender"),
    ],
)
def test_a_scheduler_that_does_not_ask_as_it_should(change, kind):
    assert kinds(schedulers={WHERE: {**SCHEDULER, **change}}) == [kind]


def test_schedulers_without_our_extender_are_none_of_our_business():
    assert kinds(schedulers={WHERE: {"kind": "KubeSchedulerConfiguration"}}) == []


def test_certificates_that_have_ended_or_are_damaged():
    after = {"now": NOW + timedelta(days=100), "lease": None}
    assert kinds(**after) == ["not-led", "certificate", "certificate"]
    assert kinds(certificates={**DATA, "tls.crt": "AAAA"}) == ["certificate"]
    late = NOW + timedelta(days=80)
    (serving, scheduler) = [each for each in found(now=late) if each.kind == "certificate"]
    assert serving.severity == scheduler.severity == "warning"
    assert kinds(certificates=None) == ["no-certificates"]


def test_the_webhook_trusts_somebody_else():
    (own_webhook,) = WEBHOOK["webhooks"]
    client = {**own_webhook["clientConfig"], "caBundle": base64.b64encode(b"other").decode()}
    changed = {**WEBHOOK, "webhooks": [{**own_webhook, "clientConfig": client}]}
    (finding,) = found(installed=replace(WELL.installed, webhook=changed))
    assert (finding.kind, finding.repair) == ("ca-bundle", "ca-bundle")


@pytest.mark.parametrize(
    ("key", "value"),
    [("failurePolicy", "Ignore"), ("objectSelector", {"matchLabels": {"a": "b"}}), ("matchConditions", [])],
)
def test_a_webhook_that_was_altered(key, value):
    (own_webhook,) = WEBHOOK["webhooks"]
    changed = {**WEBHOOK, "webhooks": [{**own_webhook, key: value}]}
    (finding,) = found(installed=replace(WELL.installed, webhook=changed))
    assert (finding.kind, finding.repair) == ("webhook-altered", "webhook")
    assert key in finding.found


def test_a_webhook_that_is_missing_is_made_anew_only_with_known_settings():
    (finding,) = found(installed=replace(WELL.installed, webhook=None))
    assert (finding.kind, finding.repair) == ("webhook-missing", "webhook")
    (finding,) = found(installed=replace(WELL.installed, webhook=None, settings_known=False))
    assert finding.repair is None
    missing, differs = found(installed=replace(WELL.installed, webhook=None), version="2.0")
    assert (missing.repair, differs.kind) == (None, "versions-differ"), "another version made it"


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


def test_policies_as_the_chart_made_them_are_known_again_by_their_sum():
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


@pytest.mark.parametrize("held", [None, lease(""), lease(age=300)])
def test_nobody_leads(held):
    assert kinds(lease=held) == ["not-led"]


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
def test_the_service_does_not_lead_to_the_leader(slices):
    (finding,) = found(slices=slices)
    assert (finding.kind, finding.repair) == ("wrong-endpoint", None), "nobody says that it leads"
    (finding,) = found(slices=slices, ledgers=LEADS)
    assert (finding.kind, finding.repair) == ("wrong-endpoint", "endpoint")


def test_a_way_to_somebody_else_beside_the_leaders_is_for_people_to_close():
    strange = leads_to("10.9.9.9", name="by-hand")
    (finding,) = found(slices={**WELL.slices, **strange}, ledgers=LEADS)
    assert (finding.kind, finding.repair) == ("wrong-endpoint", None)
    assert finding.do == "kubectl delete endpointslice -n cotenant-system by-hand"


def test_a_namespace_with_a_mode_that_does_not_exist_and_a_quota_that_counts_nothing():
    assert kinds(namespaces=(Meta(name="x", labels={names.ENFORCE: "maybe"}),)) == ["bad-mode"]
    hard = {names.GPU_MEMORY: "40Gi", "requests.cotenant.dev/gpu": "1", "limits.cotenant.dev/gpu": "1"}
    quota = Generic(Meta(name="q", namespace="x"), spec={"hard": hard})
    assert kinds(quotas=(quota,)) == ["quota-not-counted"] * 2


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


def test_the_limits_of_one_slot_on_two_cards_are_two_findings():
    wrong = {**SLOT, "limits": {card_of("n1", 0): GI, card_of("n1", 1): GI}}
    both = found(states={"n1": told_by_agent(slots=[wrong])})
    assert len({each.key for each in both}) == 2


def test_what_could_not_be_read_is_said():
    (finding,) = found(unread=("secret cotenant-certificates: not allowed",), certificates=None)
    assert finding.kind == "not-looked-at"


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

"""What --fix writes: guarded, only to what is Cotenant's own, never to a pod; and a second look finds it mended."""

import asyncio
import base64
import itertools

import msgspec
import pytest
import yaml
from kube.operating.clusters import GI, NOW, card_of, pod, uid_of
from kube.operating.fakeapi import FakeApi
from kube.operating.well import (
    DATA,
    EXTENDER,
    LEADS,
    POLICY,
    SCHEDULER,
    WEBHOOK,
    WELL,
    binding,
    leads_to,
    lease,
)

from cotenant.dialects import names
from cotenant.kube.admission.configuration import NAME
from cotenant.kube.api.errors import Forbidden
from cotenant.kube.api.resources import CONFIG_MAPS, LEASES, NODES, PODS, SECRETS
from cotenant.kube.certificates.keeper import SECRET
from cotenant.kube.operating.doctor import report
from cotenant.kube.operating.doctor.finding import Outcome
from cotenant.kube.operating.doctor.gathering import BINDINGS, SLICES
from cotenant.kube.operating.doctor.gathering import POLICIES as POLICY_OBJECTS
from cotenant.kube.operating.doctor.policy_checks import POLICIES
from cotenant.kube.operating.doctor.repairs import rollout
from cotenant.kube.operating.doctor.repairs.repair import NotRepaired
from cotenant.kube.operating.doctor.repairs.rollout import DEPLOYMENTS
from cotenant.kube.operating.installed import RAW_WEBHOOKS

SPACE = "cotenant-system"
OURS = {"app.kubernetes.io/name": "cotenant"}
STATE = f"/api/v1/namespaces/{SPACE}/pods/https:cotenant-server-1:8443/proxy/state"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(report, "SECOND_LOOK", 0.0)
    monkeypatch.setattr(report, "LASTING", {})
    monkeypatch.setattr(rollout, "_LOOK", 0.0)


@pytest.fixture
def api() -> FakeApi:
    """The cluster that is well."""
    api = FakeApi()
    api.put(RAW_WEBHOOKS, {**WEBHOOK, "metadata": {"name": NAME}})
    api.put(SECRETS, {"metadata": {"name": SECRET}, "data": DATA}, SPACE)
    settings = {"metadata": {"name": "cotenant-settings", "labels": OURS}, "data": {"settings.toml": ""}}
    api.put(CONFIG_MAPS, settings, SPACE)
    api.put(CONFIG_MAPS, scheduler_map(SCHEDULER), SPACE)
    for name in POLICIES:
        meta = {"name": name, "labels": {**OURS, "app.kubernetes.io/component": "policy"}}
        api.put(POLICY_OBJECTS, {"metadata": meta, **POLICY})
        api.put(BINDINGS, {"metadata": meta, **binding(name)})
    held = msgspec.to_builtins(lease())["spec"]
    api.put(LEASES, {"metadata": {"name": "cotenant-server"}, "spec": held}, SPACE)
    for name, slice_ in leads_to("10.1.0.9").items():
        labels = {"kubernetes.io/service-name": "cotenant-extender"}
        api.put(
            SLICES, {"metadata": {"name": name, "labels": labels}, "addressType": "IPv4", **slice_}, SPACE
        )
    for each in WELL.nodes:
        api.put(NODES, msgspec.to_builtins(each))
    for each in WELL.pods:
        body = msgspec.to_builtins(each)
        for image in WELL.own:
            if image.metadata.uid == each.metadata.uid:
                body["metadata"]["labels"] = image.metadata.labels
                body["status"]["podIP"] = image.status.pod_ip
        api.put(PODS, body, each.metadata.namespace)
    for name in ("cotenant-server", "cotenant-scheduler"):
        api.put(DEPLOYMENTS, deployment(name), SPACE)
    api.paths[STATE] = msgspec.to_builtins(LEADS["cotenant-server-1"])
    return api


def deployment(name: str, **spec) -> dict:
    spec = {"replicas": 1, "template": {"metadata": {}}, **spec}
    status = {"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
    return {"metadata": {"name": name, "labels": OURS}, "spec": spec, "status": status}


def scheduler_map(configuration: dict, labels: dict = OURS) -> dict:
    text = f"# explained\n{yaml.safe_dump(configuration)}"
    return {"metadata": {"name": "cotenant-scheduler", "labels": labels}, "data": {"scheduler.yaml": text}}


def examine(api: FakeApi, *, fix: bool = False) -> tuple[Outcome, ...]:
    return asyncio.run(report.check(api, lambda: NOW, "1.0", fix=fix))


def found(api: FakeApi) -> list[str]:
    return [each.finding.kind for each in examine(api)]


def mended(api: FakeApi) -> str:
    """What was done about the one finding, which is gone now and stays away."""
    pods = [each for each in api.objects if each[0] == "pods"]
    before = {key: api.objects[key] for key in pods}
    (outcome,) = examine(api, fix=True)
    assert outcome.finding.repair is not None
    assert not outcome.left, outcome
    assert found(api) == []
    assert {key: api.objects.get(key) for key in pods} == before, "no pod was touched"
    return outcome.done


def test_a_cluster_that_is_well_is_not_written_to(api):
    assert examine(api, fix=True) == ()
    assert api.writes == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"validationActions": ["Audit"]}, "it denies again, everywhere"),
        ({"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}, "it denies again"),
        ({"policyName": "cotenant-modes"}, "it denies again"),
        ({"paramRef": {"name": "x"}}, "it denies again"),
    ],
)
def test_a_binding_that_does_not_deny_everywhere(api, change, said):
    api.raw(BINDINGS, "cotenant-grants")["spec"].update(change)
    assert said in mended(api)
    assert api.writes == ["patch validatingadmissionpolicybindings cotenant-grants"]
    assert api.raw(BINDINGS, "cotenant-grants")["spec"] == binding("cotenant-grants")["spec"]


def test_a_binding_that_is_gone_is_made_with_its_policys_labels(api):
    del api.objects[("validatingadmissionpolicybindings", "", "cotenant-nodes")]
    assert mended(api) == "it is bound again"
    made = api.raw(BINDINGS, "cotenant-nodes")["metadata"]["labels"]
    assert made == {**OURS, "app.kubernetes.io/component": "policy"}


def test_a_policy_that_lets_pass_what_it_cannot_judge_and_is_not_bound(api):
    api.raw(POLICY_OBJECTS, "cotenant-cards")["spec"] = {"failurePolicy": "Ignore", "validations": ["kept"]}
    del api.objects[("validatingadmissionpolicybindings", "", "cotenant-cards")]
    assert mended(api) == "it fails closed again, it is bound again"
    spec = api.raw(POLICY_OBJECTS, "cotenant-cards")["spec"]
    assert spec == {"failurePolicy": "Fail", "validations": ["kept"]}


def test_a_policy_that_is_gone_is_for_the_chart_to_bring_back(api):
    del api.objects[("validatingadmissionpolicies", "", "cotenant-cards")]
    (outcome,) = examine(api, fix=True)
    assert (outcome.left, outcome.done) == (True, None)
    assert "kubectl apply" in outcome.finding.do
    assert api.writes == []


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"percentageOfNodesToScore": 50}, "scheduler-samples"),
        ({"profiles": [{"schedulerName": "x", "percentageOfNodesToScore": 5}]}, "scheduler-samples"),
        ({"extenders": [{**EXTENDER, "ignorable": True}]}, "scheduler-extender"),
        ({"extenders": [{**EXTENDER, "preemptVerb": ""}]}, "scheduler-extender"),
        ({"extenders": [{**EXTENDER, "bindVerb": "bnid"}]}, "scheduler-extender"),
        (
            {"extenders": [{**EXTENDER, "managedResources": [{"name": "aliyun.com/gpu-mem"}]}]},
            "scheduler-extender",
        ),
    ],
)
def test_our_schedulers_configuration(api, change, kind):
    kept = {"podMaxBackoffSeconds": 2, "leaderElection": {"leaderElect": True}}
    api.put(CONFIG_MAPS, scheduler_map({**SCHEDULER, **kept, **change}), SPACE)
    assert found(api) == [kind]
    assert "cotenant-system/cotenant-scheduler is restarted" in mended(api)
    text = api.raw(CONFIG_MAPS, "cotenant-scheduler", SPACE)["data"]["scheduler.yaml"]
    after = yaml.safe_load(text)
    assert kept.items() <= after.items()
    template = api.raw(DEPLOYMENTS, "cotenant-scheduler", SPACE)["spec"]["template"]
    assert template["metadata"]["annotations"] == {"kubectl.kubernetes.io/restartedAt": NOW.isoformat()}
    assert "restartedAt" not in str(api.raw(DEPLOYMENTS, "cotenant-server", SPACE)), "only who reads it"


def test_two_faults_of_one_configuration_are_one_change(api):
    wrong = {**SCHEDULER, "percentageOfNodesToScore": 1, "extenders": [{**EXTENDER, "filterVerb": None}]}
    api.put(CONFIG_MAPS, scheduler_map(wrong), SPACE)
    first, second = examine(api, fix=True)
    assert not first.left
    assert not second.left
    assert second.done == "it is right by now"
    assert api.writes == ["patch configmaps cotenant-scheduler", "patch deployments cotenant-scheduler"]


@pytest.mark.parametrize(
    ("labels", "space"), [({}, SPACE), ({"app.kubernetes.io/name": "other"}, SPACE), (OURS, "team")]
)
def test_a_scheduler_of_somebody_else_is_theirs_to_change(api, labels, space):
    del api.objects[("configmaps", SPACE, "cotenant-scheduler")]
    api.put(CONFIG_MAPS, scheduler_map({**SCHEDULER, "percentageOfNodesToScore": 50}, labels), space)
    (outcome,) = examine(api, fix=True)
    assert outcome.left
    assert outcome.finding.do.startswith(f"kubectl edit configmap -n {space} cotenant-scheduler")
    assert api.writes == []


def test_without_our_deployment_it_is_said_that_the_scheduler_must_be_restarted(api):
    del api.objects[("deployments", SPACE, "cotenant-scheduler")]
    api.put(CONFIG_MAPS, scheduler_map({**SCHEDULER, "percentageOfNodesToScore": 50}), SPACE)
    assert mended(api) == "it is right again; restart that scheduler, which reads it at its start"


def test_the_way_to_the_leader(api):
    api.raw(SLICES, "cotenant-extender", SPACE)["endpoints"] = [{"addresses": ["10.1.0.7"]}]
    assert mended(api) == "it leads to cotenant-server-1 (10.1.0.9)"
    api.raw(SLICES, "cotenant-extender", SPACE)["ports"] = [{"port": 1}]
    mended(api)
    api.raw(SLICES, "cotenant-extender", SPACE).update(addressType="IPv6", endpoints=[{"addresses": ["::1"]}])
    mended(api)
    del api.objects[("endpointslices", SPACE, "cotenant-extender")]
    mended(api)


def test_the_way_is_left_to_a_leader_that_came_meanwhile(api):
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
    assert outcome.done == "could not: cotenant-server-2_1_x leads by now"
    assert api.writes == []


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
    assert "read all grants anew" in first.done
    assert second.done == "the servers' ledger is right by now"
    assert api.writes == ["patch deployments cotenant-server"], "once for both"
    assert found(api) == []


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


def test_a_restart_is_waited_for(api):
    body = deployment("cotenant-server")
    assert rollout.is_done(body)
    assert not rollout.is_done({**body, "metadata": {"generation": 3}}), "the controller has not seen it"
    for late in ({"updatedReplicas": 0}, {"replicas": 2}, {"availableReplicas": 0}):
        assert not rollout.is_done({**body, "status": {**body["status"], **late}})


def test_a_server_that_is_still_ending_keeps_the_restart_from_being_over(api):
    times = itertools.count(step=50)
    asyncio.run(rollout.wait(api, WELL, "cotenant-server", clock=lambda: next(times)))
    ending = api.raw(PODS, "cotenant-server-1", SPACE)["metadata"]
    ending["deletionTimestamp"] = NOW.isoformat()
    with pytest.raises(
        NotRepaired, match="kubectl rollout status -n cotenant-system deployment/cotenant-server"
    ):
        asyncio.run(rollout.wait(api, WELL, "cotenant-server", clock=lambda: next(times)))


def test_a_drained_mark_stays_where_the_node_does_not_tell_of_its_cards(api):
    shown = api.raw(NODES, "n1")["metadata"]["annotations"]
    shown[names.DRAINED] = f"GPU-gone,{card_of('n1', 1)}"
    told = shown.pop(names.GPUS)
    assert "drained-gone" not in found(api), "nobody knows what is gone"
    shown[names.GPUS] = told
    assert mended(api) == "the drained mark of GPU-gone is taken off n1"
    assert api.raw(NODES, "n1")["metadata"]["annotations"][names.DRAINED] == card_of("n1", 1)


def test_the_webhook_is_found_where_its_configuration_points_elsewhere(api):
    webhook = api.raw(RAW_WEBHOOKS, NAME)["webhooks"][0]
    webhook["clientConfig"]["service"]["namespace"] = "nowhere"
    assert mended(api) == "clientConfig.service.namespace as installed again"
    webhook = api.raw(RAW_WEBHOOKS, NAME)["webhooks"][0]
    assert webhook["clientConfig"]["service"]["namespace"] == SPACE
    assert webhook["clientConfig"]["caBundle"] == DATA["bundle.crt"]


def test_settings_in_a_namespace_of_somebody_else_are_not_believed(api):
    """Whoever has a namespace could otherwise have the webhook asked about fewer pods."""
    del api.objects[("configmaps", SPACE, "cotenant-settings")]
    forged = '[dialects.aliyun]\nenabled = false\n[webhook]\nservice = "mine"\n'
    api.put(
        CONFIG_MAPS,
        {"metadata": {"name": "cotenant-settings", "labels": OURS}, "data": {"settings.toml": forged}},
        "team",
    )
    assert found(api) == []
    api.raw(RAW_WEBHOOKS, NAME)["webhooks"].append({"name": "another", "clientConfig": {}})
    (outcome,) = [each for each in examine(api, fix=True) if each.finding.kind == "webhook-altered"]
    assert outcome.finding.repair is None, "without its settings nobody knows what was installed"


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
    api.forbidden.add(plural)
    assert set(found(api)) == {"not-looked-at"}
    assert examine(api, fix=True)
    assert api.writes == []


def test_states_that_may_not_be_asked_for_or_make_no_sense_are_told(api):
    api.paths[STATE] = Forbidden("get pods/proxy: not allowed")
    (outcome,) = examine(api)
    assert "what servers tell: get pods/proxy: not allowed" in outcome.finding.found


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
    assert set(found(api)) == faults
    outcomes = examine(api, fix=True)
    assert {each.finding.kind for each in outcomes if each.left} == {"over-granted", "second-plugin"}
    assert set(found(api)) == {"over-granted", "second-plugin"}
    assert all("kubectl" in each.finding.do or "label" in each.finding.do for each in examine(api))

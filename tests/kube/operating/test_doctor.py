"""Each thing that can be wrong in a cluster is found, by itself, and a cluster that is well gives nothing."""

import base64
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest
from kube.operating.clusters import GI, NOW, card_of, node, pod, uid_of

from cotenant.dialects import names
from cotenant.kube import certificate_set
from cotenant.kube.admission.configuration import webhook_configuration
from cotenant.kube.certificate_set import Wanted
from cotenant.kube.extender.state import state
from cotenant.kube.objects import Generic, Lease, Meta
from cotenant.kube.operating.doctor.facts import Facts, ImagePod
from cotenant.kube.operating.doctor.finding import Finding
from cotenant.kube.operating.doctor.findings import findings
from cotenant.kube.operating.doctor.server_checks import POLICIES
from cotenant.kube.operating.installed import Installed
from cotenant.kube.operating.line_view import fleet_of
from cotenant.kube.settings import Settings

SETTINGS = Settings()
WANTED = Wanted(("cotenant-webhook",), timedelta(days=90), timedelta(days=3650), timedelta(seconds=10))
KEPT = certificate_set.renewed(certificate_set.CertificateSet(), WANTED, NOW)
DATA = certificate_set.to_data(KEPT)
WEBHOOK = webhook_configuration(SETTINGS, SETTINGS.dialects, KEPT.bundle)
POLICY = {"spec": {"failurePolicy": "Fail"}}
BINDING = {"spec": {"validationActions": ["Deny"]}}
EXTENDER = {
    "urlPrefix": "https://cotenant-extender.cotenant-system.svc",
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "preemptVerb": "preempt",
    "bindVerb": "bind",
}
SCHEDULER = {"kind": "KubeSchedulerConfiguration", "percentageOfNodesToScore": 100, "extenders": [EXTENDER]}
WHERE = "configmap cotenant-system/cotenant-scheduler: config.yaml"


def lease(holder: str = "cotenant-server-1_7_abc", age: float = 2) -> Lease:
    spec = {"holderIdentity": holder, "renewTime": (NOW - timedelta(seconds=age)).isoformat()}
    return msgspec.convert({"spec": spec}, Lease)


def own(name: str, component: str, *, on: str = "n1", version: str = "1.0", ip: str = "10.1.0.1") -> ImagePod:
    body = {
        "metadata": {
            "name": name,
            "namespace": "cotenant-system",
            "uid": uid_of(f"cotenant-system/{name}"),
            "labels": {
                "app.kubernetes.io/name": "cotenant",
                "app.kubernetes.io/component": component,
                "app.kubernetes.io/version": version,
            },
        },
        "spec": {"nodeName": on, "containers": [{"name": component, "image": "cotenant.dev/cotenant:1.0"}]},
        "status": {"podIP": ip},
    }
    return msgspec.convert(body, ImagePod)


def image(name: str, image_: str = "app", *, on: str = "n1", **env: str) -> ImagePod:
    container = {"image": image_, "env": [{"name": key, "value": value} for key, value in env.items()]}
    meta = {"name": name, "namespace": "kube-system", "uid": uid_of(f"kube-system/{name}")}
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": on, "containers": [container]}}, ImagePod)


def ready(name: str, *, on: str = "n1"):
    made = pod(name, on=on, namespace="cotenant-system")
    status = msgspec.convert(
        {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}, type(made.status)
    )
    return msgspec.structs.replace(made, status=status)


WELL = Facts(
    now=NOW,
    installed=Installed("cotenant-system", SETTINGS, WEBHOOK, settings_known=True),
    nodes=(node("n1", [80 * GI] * 2, agent="1.0"),),
    pods=(pod("a", 8 * GI, on="n1"), ready("cotenant-agent-1"), ready("cotenant-server-1")),
    own=(own("cotenant-agent-1", "agent"), own("cotenant-server-1", "server", ip="10.1.0.9")),
    namespaces=(Meta(name="team", labels={names.ENFORCE: "warn"}),),
    lease=lease(),
    endpoints=("10.1.0.9",),
    certificates=DATA,
    policies=dict.fromkeys(POLICIES, POLICY),
    bindings=dict.fromkeys(POLICIES, BINDING),
    schedulers={WHERE: SCHEDULER},
    version="1.0",
)


def found(**changes) -> list[Finding]:
    return list(findings(replace(WELL, **changes)))


def kinds(**changes) -> list[str]:
    return [each.kind for each in found(**changes)]


def with_pod(*pods):
    return {"pods": (*WELL.pods, *pods)}


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


@pytest.mark.parametrize(
    ("policy", "binding"),
    [
        (None, BINDING),
        ({"spec": {"failurePolicy": "Ignore"}}, BINDING),
        (POLICY, None),
        (POLICY, {"spec": {"validationActions": ["Audit"]}}),
        (POLICY, {"spec": {"validationActions": ["Deny"], "matchResources": {"namespaceSelector": {}}}}),
    ],
)
def test_a_policy_that_is_missing_or_altered(policy, binding):
    policies = {**WELL.policies, "cotenant-grants": policy}
    bindings = {**WELL.bindings, "cotenant-grants": binding}
    (finding,) = found(
        policies={name: each for name, each in policies.items() if each},
        bindings={name: each for name, each in bindings.items() if each},
    )
    assert (finding.kind, finding.target) == ("policy", "policy cotenant-grants")


@pytest.mark.parametrize("held", [None, lease(""), lease(age=300)])
def test_nobody_leads(held):
    assert kinds(lease=held) == ["not-led"]


@pytest.mark.parametrize("addresses", [(), ("10.1.0.9", "10.1.0.8"), ("10.1.0.7",)])
def test_the_service_does_not_lead_to_the_leader(addresses):
    assert kinds(endpoints=addresses) == ["wrong-endpoint"]


def test_a_namespace_with_a_mode_that_does_not_exist_and_a_quota_that_counts_nothing():
    assert kinds(namespaces=(Meta(name="x", labels={names.ENFORCE: "maybe"}),)) == ["bad-mode"]
    hard = {names.GPU_MEMORY: "40Gi", "requests.cotenant.dev/gpu": "1", "limits.cotenant.dev/gpu": "1"}
    quota = Generic(Meta(name="q", namespace="x"), spec={"hard": hard})
    assert kinds(quotas=(quota,)) == ["quota-not-counted"] * 2


def test_slots_that_differ_from_grants():
    slot = {
        "device": "slot-0000",
        "uid": uid_of("team/a"),
        "namespace": "team",
        "pod": "a",
        "container": "main",
        "limits": {card_of("n1", 0): 8 * GI},
    }
    kubelet = {"slot-0000": ["team/a/main"]}
    assert kinds(states={"n1": {"waits": [], "slots": [slot], "kubelet": kubelet}}) == []
    assert kinds(states={"n1": {"slots": [slot], "kubelet": {"slot-0000": ["team/b/main"]}}}) == [
        "slot-of-another"
    ]
    assert kinds(states={"n1": {"waits": ["the kubelet does not know it"]}}) == ["agent-waits"]
    beyond = {**slot, "mode": "enforce", "used": {card_of("n1", 0): 9 * GI}}
    assert kinds(states={"n1": {"slots": [beyond]}}) == ["over-limit"]
    other = {**slot, "limits": {card_of("n1", 0): 9 * GI}}
    assert kinds(states={"n1": {"slots": [other]}}) == ["limit-differs"]
    assert kinds(states={"n1": {"slots": [{**slot, "uid": "gone"}]}}) == ["slot-left"]


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
    assert kinds(ledgers={"server-1": {"leads": True, "charged": charged}}) == kind
    assert kinds(ledgers={"server-1": {"leads": False, "charged": charged}}) == [], "only the leader's counts"


def test_the_ledger_is_told_as_it_is_compared():
    fleet = fleet_of(WELL.nodes, WELL.pods)
    told = msgspec.json.decode(state(fleet, leads=True))
    assert kinds(ledgers={"server-1": told}) == []
    assert kinds(ledgers={"server-1": told, "server-2": told}) == ["two-lead"]

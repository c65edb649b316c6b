"""A cluster that is well, as a doctor sees it; tests change one thing of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import msgspec
from kube.operating.clusters import GI, NOW, card_of, node, pod, uid_of

from cotenant.core.checkup import findings
from cotenant.core.finding import Finding
from cotenant.dialects import names
from cotenant.kube.admission.configuration import webhook_configuration
from cotenant.kube.api.objects import Lease, Meta
from cotenant.kube.certificates import renewal
from cotenant.kube.certificates.renewal import CertificatePolicy
from cotenant.kube.operating.doctor.checkup import SUBJECTS
from cotenant.kube.operating.doctor.facts import Facts, ImagePod
from cotenant.kube.operating.doctor.policies import POLICIES
from cotenant.kube.operating.installed import Installed
from cotenant.kube.scaler.definition import definition
from cotenant.kube.settings import Settings
from cotenant.observe.state import AgentState, ServerState

SETTINGS = Settings()
NAMES = tuple(f"cotenant-{service}.cotenant-system.svc" for service in ("webhook", "extender"))
WANTED = CertificatePolicy(
    NAMES, ("cotenant-agent",), timedelta(days=90), timedelta(days=3650), timedelta(seconds=10)
)
KEPT = renewal.renewed(renewal.CertificateSet(), WANTED, NOW)
DATA = renewal.to_data(KEPT)
WEBHOOK = webhook_configuration(SETTINGS, SETTINGS.dialects, KEPT.bundle)
POLICY = {"spec": {"failurePolicy": "Fail"}}
EXTENDER = {
    "urlPrefix": "https://cotenant-extender.cotenant-system.svc",
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "preemptVerb": "preempt",
    "bindVerb": "bind",
}
SCHEDULER = {"kind": "KubeSchedulerConfiguration", "percentageOfNodesToScore": 100, "extenders": [EXTENDER]}
WHERE = "configmap cotenant-system/cotenant-scheduler: config.yaml"


def binding(name: str, **changes) -> dict:
    return {"spec": {"policyName": name, "validationActions": ["Deny"], **changes}}


def told_by_server(**told) -> ServerState:
    return msgspec.convert(told, ServerState)


def told_by_agent(**told) -> AgentState:
    return msgspec.convert(told, AgentState)


def leads_to(*addresses: str, name: str = "cotenant-extender", port: int = 8444, **changes) -> dict:
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    return {name: {"endpoints": [{"addresses": list(addresses)}], "ports": ports, **changes}}


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


DEFINITION = definition()
WELL = Facts(
    now=NOW,
    installed=Installed("cotenant-system", SETTINGS, WEBHOOK, settings_known=True),
    nodes=(node("n1", [80 * GI] * 2, agent="1.0"),),
    pods=(pod("a", 8 * GI, on="n1"), ready("cotenant-agent-1"), ready("cotenant-server-1")),
    own=(own("cotenant-agent-1", "agent"), own("cotenant-server-1", "server", ip="10.1.0.9")),
    namespaces=(Meta(name="team", labels={names.ENFORCE: "warn"}),),
    lease=lease(),
    slices=leads_to("10.1.0.9"),
    certificates=DATA,
    policies=dict.fromkeys(POLICIES, POLICY),
    bindings={name: binding(name) for name in POLICIES},
    schedulers={WHERE: SCHEDULER},
    definition={"spec": DEFINITION},
    version="1.0",
)


def found(**changes) -> list[Finding]:
    return list(findings(SUBJECTS, replace(WELL, **changes)))


def kinds(**changes) -> list[str]:
    return [each.kind for each in found(**changes)]


def with_pod(*pods):
    return {"pods": (*WELL.pods, *pods)}


LEADS = {
    "cotenant-server-1": told_by_server(
        leads=True, charged={uid_of("team/a"): {"node": "n1", "gpus": {card_of("n1", 0): 8 * GI}}}
    )
}

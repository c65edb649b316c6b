"""A cluster that is well, as an API server holds it, and what the doctor finds and repairs there."""

from __future__ import annotations

import asyncio

import msgspec
import yaml
from kube.fakeapi import FakeApi
from kube.operating.clusters import NOW
from kube.operating.well import (
    DATA,
    DEFINITION,
    LEADS,
    POLICY,
    SCHEDULER,
    WEBHOOK,
    WELL,
    binding,
    leads_to,
    lease,
)

from cotenant.core.finding import Outcome
from cotenant.kube.admission.configuration import NAME
from cotenant.kube.api.resources import CONFIG_MAPS, DAEMON_SETS, DEFINITIONS, LEASES, NODES, PODS, SECRETS
from cotenant.kube.certificates.keeper import SECRET
from cotenant.kube.operating.doctor import checkup
from cotenant.kube.operating.doctor.gather import BINDINGS, SLICES
from cotenant.kube.operating.doctor.gather import POLICIES as POLICY_OBJECTS
from cotenant.kube.operating.doctor.policies import POLICIES
from cotenant.kube.operating.doctor.rollout import DEPLOYMENTS
from cotenant.kube.operating.installed import RAW_WEBHOOKS

SPACE = "cotenant-system"
OURS = {"app.kubernetes.io/name": "cotenant"}
STATE = f"/api/v1/namespaces/{SPACE}/pods/https:cotenant-server-1:8443/proxy/state"


def well_api() -> FakeApi:
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
    api.put(DAEMON_SETS, daemon_set(), SPACE)
    api.put(DEFINITIONS, {"metadata": {"name": "gpuscalers.cotenant.dev"}, "spec": DEFINITION})
    api.paths[STATE] = msgspec.to_builtins(LEADS["cotenant-server-1"])
    return api


def deployment(name: str, **spec) -> dict:
    spec = {"replicas": 1, "template": {"metadata": {}}, **spec}
    status = {"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
    labels = {**OURS, "app.kubernetes.io/component": name.removeprefix("cotenant-")}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def daemon_set() -> dict:
    status = {"desiredNumberScheduled": 1, "currentNumberScheduled": 1}
    labels = {**OURS, "app.kubernetes.io/component": "agent"}
    return {"metadata": {"name": "cotenant-agent", "labels": labels}, "spec": {}, "status": status}


def scheduler_map(configuration: dict, labels: dict = OURS) -> dict:
    text = f"# explained\n{yaml.safe_dump(configuration)}"
    return {"metadata": {"name": "cotenant-scheduler", "labels": labels}, "data": {"scheduler.yaml": text}}


def examine(api: FakeApi, *, fix: bool = False) -> tuple[Outcome, ...]:
    async def at_once(_seconds: float) -> None:
        pass

    return asyncio.run(checkup.check(api, lambda: NOW, "1.0", fix=fix, wait=at_once))


def found_on(api: FakeApi) -> list[str]:
    return [each.finding.kind for each in examine(api)]


def mended(api: FakeApi) -> str:
    """What was done about the one finding, which is gone now and stays away."""
    pods = [each for each in api.objects if each[0] == "pods"]
    before = {key: api.objects[key] for key in pods}
    (outcome,) = examine(api, fix=True)
    assert outcome.finding.repair is not None
    assert not outcome.left, outcome
    assert found_on(api) == []
    assert {key: api.objects.get(key) for key in pods} == before, "no pod was touched"
    return outcome.done

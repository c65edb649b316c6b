"""Pods that their agent reports over their limit are evicted only where the policy says so, and never past a budget.

The servers have the rights of their account; the conditions are written with the agent's own token.
"""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from cluster import chart
from cluster.cotenant.gpunodes import GIB, gpu_node
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import container, pod, pods_of, running
from cluster.policies.pods import as_account, plain
from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.controlplane import ControlPlane

from cotenant.dialects import names
from cotenant.kube.nodes.agent_reports import lease_of

pytestmark = pytest.mark.timeout(120)

NODE = "hollow-over"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{chart.NAMESPACE}/leases"
OVER = {
    "type": names.GPU_LIMIT_HELD,
    "status": "False",
    "reason": "OverLimit",
    "message": "asked shim, holds watch: container main holds 3Gi on GPU 0, 1Gi more than its limit of 2Gi",
}


@pytest.fixture(scope="module")
def cotenant(start_cotenant) -> Installation:
    installation: Installation = start_cotenant(
        servers=1, policies=True, settings={"limits": {"evict_after": "2s"}}
    )
    return installation


@pytest.fixture
def agent(control_plane: ControlPlane, cotenant: Installation, api: Api, hollow_nodes) -> Iterator[Api]:
    """It reports from its node: its Lease is fresh."""
    hollow_nodes([gpu_node(NODE, [16 * GIB])])
    path = f"/api/v1/namespaces/{chart.NAMESPACE}/pods"
    made = api.create(path, plain("agent", nodeName=NODE, serviceAccountName="cotenant-agent"))
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "agent", "uid": made["metadata"]["uid"]}
    client = as_account(control_plane, "cotenant-agent", bound)
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": NODE, "leaseDurationSeconds": 30, "renewTime": now}
    client.create(LEASES, {"metadata": {"name": lease_of(NODE)}, "spec": spec})
    yield client
    client.close()
    api.delete(f"{LEASES}/{lease_of(NODE)}")
    api.delete(f"{path}/agent", gracePeriodSeconds=0)
    api.until_gone(f"{path}/agent")


def put(api: Api, namespace: str, name: str, **metadata: dict[str, str]) -> str:
    body = pod(name, container(memory="2Gi"))
    body["metadata"] |= metadata
    api.create(pods_of(namespace), body)
    running(api, namespace, name, 30)
    return f"{pods_of(namespace)}/{name}"


def report(agent: Api, path: str, **changes: str) -> None:
    agent.patch(f"{path}/status", {"status": {"conditions": [{**OVER, **changes}]}}, kind="strategic")


def event(api: Api, namespace: str, name: str, reason: str, seconds: float = 20) -> str:
    end = time.monotonic() + seconds
    path = f"/api/v1/namespaces/{namespace}/events"
    while True:
        for each in api.items(path, fieldSelector=f"involvedObject.name={name}"):
            if each["reason"] == reason:
                return str(each["message"])
        assert time.monotonic() < end
        time.sleep(0.1)


def is_leaving(api: Api, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    there = [each["metadata"] for each in api.items(folder) if each["metadata"]["name"] == name]
    return not there or "deletionTimestamp" in there[0]


def until_left(api: Api, path: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not is_leaving(api, path):
        assert time.monotonic() < end
        time.sleep(0.1)


def test_by_default_it_is_only_said(agent: Api, api: Api, namespace: str):
    path = put(api, namespace, "greedy")
    report(agent, path)
    said = event(api, namespace, "greedy", "GPUOverLimitDryRun")
    assert (
        "it would be evicted, since it has been over its limit for more than 2s: container main holds 3Gi"
        in said
    )
    time.sleep(3)
    assert not is_leaving(api, path)


def test_where_the_namespace_says_so_it_is_evicted_and_a_budget_is_kept(agent: Api, api: Api, namespace: str):
    labels = {names.EVICT_OVER_LIMIT: "on"}
    api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})
    greedy, fine = put(api, namespace, "greedy"), put(api, namespace, "fine")
    guarded = put(api, namespace, "guarded", labels={"app": "guarded"})
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    selector = {"matchLabels": {"app": "guarded"}}
    api.create(budgets, {"metadata": {"name": "one"}, "spec": {"minAvailable": 1, "selector": selector}})
    api.until(f"{budgets}/one", lambda seen: seen.get("status", {}).get("expectedPods") == 1)
    for path in (greedy, guarded):
        report(agent, path)
    report(agent, fine, status="True", reason="Shim")
    until_left(api, greedy)
    assert f"evicted, by the namespace's label {names.EVICT_OVER_LIMIT}" in event(
        api, namespace, "greedy", "EvictedOverGPULimit"
    )
    said = event(api, namespace, "guarded", "GPUOverLimitNotEvicted")
    assert "disruption budget" in said
    assert not is_leaving(api, guarded)
    assert not is_leaving(api, fine)
    api.delete(f"{budgets}/one")
    until_left(api, guarded)
    assert not is_leaving(api, fine)


def test_nobody_but_the_agent_of_its_node_says_that_a_pod_is_over(
    agent: Api, api: Api, control_plane: ControlPlane, namespace: str
):
    path = put(api, namespace, "victim")
    server = as_account(control_plane, "cotenant-server")
    for other in (api, server):
        with pytest.raises(Refused, match="403"):
            report(other, path)
    server.close()
    body: Object = api.get(path)
    body["status"]["conditions"].append({**OVER, "lastTransitionTime": "2026-11-01T12:00:00Z"})
    with pytest.raises(Refused, match="is written by Cotenant's agent alone"):
        api.request("PUT", f"{path}/status", body)
    report(agent, path)
    with pytest.raises(Refused, match="is written by Cotenant's agent alone"):
        api.patch(
            f"{path}/status",
            {"status": {"conditions": [{"$patch": "delete", "type": names.GPU_LIMIT_HELD}]}},
            kind="strategic",
        )

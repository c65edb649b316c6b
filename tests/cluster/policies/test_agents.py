"""An agent writes about its own node's cards."""

import json

import pytest
from cluster import chart
from cluster.policies.pods import as_account, may
from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.controlplane import ControlPlane

from cotenant.dialects import names

HEALTHY = {"type": names.GPUS_HEALTHY, "status": "False", "reason": "GPUUnhealthy", "message": "GPU 1: lost"}

LEASES = "coordination.k8s.io"

WRITES = {
    "metadata": {"annotations": {names.GPUS: "{}"}},
    "status": {
        "capacity": {names.GPU_MEMORY: "80Gi", "volcano.sh/gpu-memory": "81920", "nvidia.com/gpu": "1"}
    },
}


class TestAnAgent:
    def test_writes_of_its_own_cards(self, api: Api, agent: Api):
        agent.patch("/api/v1/nodes/hollow-own/status", WRITES)
        seen = api.get("/api/v1/nodes/hollow-own")
        assert seen["metadata"]["annotations"][names.GPUS] == "{}"
        assert seen["status"]["capacity"][names.GPU_MEMORY] == "80Gi"
        taken = {"capacity": {"volcano.sh/gpu-memory": None}, "allocatable": {names.GPU: "1"}}
        agent.patch("/api/v1/nodes/hollow-own/status", {"status": taken})

    def test_writes_its_own_condition_and_leaves_those_of_the_kubelet(self, api: Api, agent: Api):
        path = "/api/v1/nodes/hollow-own/status"
        theirs = [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}]
        api.patch(path, {"status": {"conditions": theirs}}, kind="strategic")
        before = api.get(path)["status"]["conditions"]
        agent.patch(
            path, {**WRITES, "status": {**WRITES["status"], "conditions": [HEALTHY]}}, kind="strategic"
        )
        agent.patch(path, {"status": {"conditions": [{**HEALTHY, "status": "True"}]}}, kind="strategic")
        *others, own = sorted(
            api.get(path)["status"]["conditions"], key=lambda c: c["type"] == HEALTHY["type"]
        )
        assert others == before
        assert (own["type"], own["status"], own["message"]) == (HEALTHY["type"], "True", "GPU 1: lost")
        agent.patch(
            path,
            {"status": {"conditions": [{"$patch": "delete", "type": HEALTHY["type"]}]}},
            kind="strategic",
        )
        assert api.get(path)["status"]["conditions"] == before

    @pytest.mark.parametrize(
        ("kind", "conditions"),
        [
            ("strategic", [{"type": "Ready", "status": "False"}]),
            ("strategic", [{"type": "Ready", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]),
            ("strategic", [{"$patch": "delete", "type": "Ready"}]),
            ("strategic", [{"type": "cotenant.dev/Other", "status": "True"}]),
            ("strategic", [HEALTHY, {"type": "Ready", "status": "False"}]),
            ("merge", [HEALTHY]),
            ("merge", [{"type": "Ready", "status": "True"}, HEALTHY, HEALTHY]),
        ],
        ids=str,
    )
    def test_writes_no_condition_of_others(self, api: Api, agent: Api, kind: str, conditions: list[Object]):
        path = "/api/v1/nodes/hollow-own/status"
        ready = [{"type": "Ready", "status": "True"}]
        api.patch(path, {"status": {"conditions": ready}}, kind="merge")
        with pytest.raises(Refused, match=r"403.*no condition of a node but cotenant.dev/GPUsHealthy"):
            agent.patch(path, {"status": {"conditions": conditions}}, kind=kind)

    def test_writes_of_no_other_node(self, agent: Api):
        with pytest.raises(Refused, match=r"403.*the node that it runs on"):
            agent.patch("/api/v1/nodes/hollow-other/status", WRITES)

    def test_without_a_node_in_its_token_it_writes_nothing(self, control_plane: ControlPlane, agent: Api):
        loose = as_account(control_plane, "cotenant-agent")
        with pytest.raises(Refused, match=r"403.*the node that it runs on"):
            loose.patch("/api/v1/nodes/hollow-own/status", WRITES)

    @pytest.mark.parametrize(
        "body",
        [
            {"metadata": {"annotations": {"example.com/other": "x"}}},
            {"metadata": {"labels": {"zone": "x"}}},
            {"metadata": {"annotations": {names.DRAINED: "GPU-1"}}},
            {"status": {"capacity": {"cpu": "1"}}},
            {"status": {"capacity": {"memory": None}}},
            {"status": {"allocatable": {"pods": "1"}}},
            {"status": {"capacity": {"example.com/card": "1"}}},
            {"status": {"conditions": []}},
            {"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}},
            {"status": {"nodeInfo": {"kubeletVersion": "v0"}}},
            {"status": {"images": [{"names": ["x"], "sizeBytes": 1}]}},
            {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}},
        ],
        ids=lambda body: json.dumps(body)[:60],
    )
    def test_writes_nothing_else_of_its_own(self, agent: Api, body: Object):
        with pytest.raises(Refused, match=r"403.*Cotenant's agent changes no"):
            agent.patch("/api/v1/nodes/hollow-own/status", body)

    def test_has_the_rights_that_it_needs_and_no_others(self, agent: Api):
        assert all(may(agent, verb, each) for verb in ("get", "list", "watch") for each in ("nodes", "pods"))
        assert may(agent, "get", "namespaces")
        assert may(agent, "patch", "nodes/status")
        assert may(agent, "patch", "pods/status"), "limited by the policy cotenant-idleness"
        assert all(may(agent, verb, "leases", chart.NAMESPACE, group=LEASES) for verb in ("create", "patch"))
        assert not any(
            may(agent, verb, "leases", chart.NAMESPACE, group=LEASES) for verb in ("get", "delete")
        )
        assert not may(agent, "create", "leases", "default", group=LEASES)
        writing = ("create", "update", "patch", "delete")
        for resource in (
            "pods",
            "pods/binding",
            "pods/ephemeralcontainers",
            "pods/resize",
            "pods/eviction",
            "nodes",
            "namespaces",
            "secrets",
        ):
            assert not any(may(agent, verb, resource) for verb in writing)
        assert not may(agent, "get", "secrets", chart.NAMESPACE, "cotenant-certificates")
        assert not may(agent, "update", "nodes/status")
        assert not any(may(agent, verb, "pods/status") for verb in ("create", "update", "delete"))

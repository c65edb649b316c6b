"""An agent says which pods of its own node are idle, and nothing else of any pod."""

import contextlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cluster import chart
from cluster.policies.pods import as_account, plain
from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.controlplane import ControlPlane

from cotenant.dialects import names

IDLE = {
    "type": names.GPU_IDLE,
    "status": "True",
    "reason": "NoActivity",
    "message": "container main has launched no kernel",
    "lastTransitionTime": "2026-11-01T12:00:05Z",
}
READY = {"type": "Ready", "status": "True"}
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{chart.NAMESPACE}/leases"
HELD = {
    "type": names.GPU_LIMIT_HELD,
    "status": "False",
    "reason": "OverLimit",
    "message": "asked shim, holds watch: container main holds 3Gi on GPU 0",
    "lastTransitionTime": "2026-11-01T12:00:05Z",
}
OTHERS = r"403.*no condition of a pod but cotenant.dev/GPUIdle and cotenant.dev/GPULimitHeld"
STATUS = (
    r"403.*nothing in a pod's status but the conditions cotenant.dev/GPUIdle and cotenant.dev/GPULimitHeld"
)
METADATA = r"403.*(does not change a pod's metadata or spec|a grant is written by)"


def conditions(*each: Object) -> Object:
    return {"status": {"conditions": list(each)}}


@pytest.fixture
def own(api: Api, agent: Api, pods: str) -> str:
    """A pod on the agent's node, as a kubelet has reported it; without a kubelet that would go on."""
    made = plain("own", annotations={"note": "x"}, nodeName="hollow-own")
    made["metadata"]["labels"] = {"app": "web"}
    api.create(pods, made)
    path = f"{pods}/own"
    api.until(path, lambda pod: pod["status"]["phase"] == "Running")
    api.patch(f"{path}/status", conditions(READY), kind="strategic")
    return path


def condition(api: Api, path: str) -> Object | None:
    return next((c for c in api.get(path)["status"]["conditions"] if c["type"] == names.GPU_IDLE), None)


def test_writes_its_condition_and_leaves_all_others(api: Api, agent: Api, own: str):
    before = api.get(own)
    agent.patch(f"{own}/status", conditions(IDLE), kind="strategic")
    assert IDLE.items() <= (condition(api, own) or {}).items()
    agent.patch(
        f"{own}/status", conditions({**IDLE, "status": "False", "reason": "Working"}), kind="strategic"
    )
    assert (condition(api, own) or {})["status"] == "False"
    after = api.get(own)
    others = [c for c in after["status"]["conditions"] if c["type"] != names.GPU_IDLE]
    assert others == before["status"]["conditions"]
    assert after["spec"] == before["spec"]
    agent.patch(f"{own}/status", conditions({"$patch": "delete", "type": names.GPU_IDLE}), kind="strategic")
    assert condition(api, own) is None


def test_writes_both_of_its_conditions_at_once_or_one_by_one(api: Api, agent: Api, own: str):
    agent.patch(f"{own}/status", conditions(IDLE, HELD), kind="strategic")
    agent.patch(f"{own}/status", conditions({**HELD, "status": "True", "reason": "Shim"}), kind="strategic")
    found = {each["type"]: each["status"] for each in api.get(own)["status"]["conditions"]}
    assert found[names.GPU_IDLE] == "True"
    assert found[names.GPU_LIMIT_HELD] == "True"
    with pytest.raises(Refused, match=OTHERS):
        agent.patch(f"{own}/status", conditions(HELD, {"type": "Ready", "status": "False"}), kind="strategic")


def test_nobody_else_says_what_holds_a_pod(api: Api, author: Api, server: Api, agent: Api, own: str):
    """A pod may be evicted by it."""
    for other, why in ((api, "is written by Cotenant's agent alone"), (author, "403"), (server, "403")):
        with pytest.raises(Refused, match=why):
            other.patch(f"{own}/status", conditions(HELD), kind="strategic")
    agent.patch(f"{own}/status", conditions(HELD), kind="strategic")
    with pytest.raises(Refused, match="is written by Cotenant's agent alone"):
        api.patch(
            f"{own}/status",
            conditions({"$patch": "delete", "type": names.GPU_LIMIT_HELD}),
            kind="strategic",
        )
    api.patch(f"{own}/status", conditions({**READY, "status": "False"}), kind="strategic")


def test_the_same_again_is_no_write(api: Api, agent: Api, own: str):
    agent.patch(f"{own}/status", conditions(IDLE), kind="strategic")
    version = api.get(own)["metadata"]["resourceVersion"]
    agent.patch(f"{own}/status", conditions(IDLE), kind="strategic")
    assert api.get(own)["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize(
    ("kind", "listed"),
    [
        ("strategic", [{"type": "Ready", "status": "False"}]),
        ("strategic", [IDLE, {"type": "Ready", "status": "False"}]),
        ("strategic", [{"type": "cotenant.dev/Other", "status": "True"}]),
        ("strategic", [{"type": "cotenant.dev/GPUIdle2", "status": "True"}]),
        ("strategic", [{"type": "PodScheduled", "status": "False"}]),
        ("strategic", [{"$patch": "delete", "type": "Ready"}]),
        ("strategic", [{"$patch": "replace"}, IDLE]),
        ("merge", [IDLE]),
        ("merge", []),
    ],
    ids=str,
)
def test_writes_no_condition_of_others(api: Api, agent: Api, own: str, kind: str, listed: list[Object]):
    before = api.get(own)["status"]
    with pytest.raises(Refused, match=OTHERS):
        agent.patch(f"{own}/status", {"status": {"conditions": listed}}, kind=kind)
    assert api.get(own)["status"] == before


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Failed"},
        {"phase": "Succeeded", "conditions": [IDLE]},
        {"reason": "Evicted"},
        {"message": "x"},
        {"nominatedNodeName": "hollow-other"},
        {"hostIP": "10.0.0.9", "hostIPs": [{"ip": "10.0.0.9"}]},
        {"podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}]},
        {"startTime": "2020-01-01T00:00:00Z"},
        {
            "containerStatuses": [
                {"name": "main", "image": "x", "imageID": "x", "ready": True, "restartCount": 0}
            ]
        },
        {
            "ephemeralContainerStatuses": [
                {"name": "debug", "image": "x", "imageID": "x", "ready": True, "restartCount": 0}
            ]
        },
        {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "theirs"}]},
        {"observedGeneration": 7},
    ],
    ids=lambda status: next(iter(status)),
)
def test_writes_nothing_else_of_the_status(api: Api, agent: Api, own: str, status: Object):
    before = api.get(own)["status"]
    with contextlib.suppress(Refused):
        agent.patch(f"{own}/status", {"status": status}, kind="strategic")
    assert api.get(own)["status"] == before, "refused, or ignored by the API server itself"


@pytest.mark.parametrize("status", [{"phase": "Failed"}, {"reason": "Evicted"}], ids=str)
def test_the_policy_itself_says_so(agent: Api, own: str, status: Object):
    with pytest.raises(Refused, match=STATUS):
        agent.patch(f"{own}/status", {"status": status}, kind="strategic")


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"app": "other"}},
        {"labels": None},
        {"annotations": {names.GRANT: "{}"}},
        {"annotations": {"note": None}},
        {"annotations": {names.RETRY: "1"}},
        {"finalizers": ["example.com/mine"]},
    ],
    ids=lambda metadata: json.dumps(metadata)[:60],
)
def test_writes_no_metadata(api: Api, agent: Api, own: str, metadata: Object):
    """The API server lets whoever writes a status write labels and annotations."""
    with pytest.raises(Refused, match=METADATA):
        agent.patch(f"{own}/status", {"metadata": metadata, **conditions(IDLE)}, kind="strategic")
    assert condition(api, own) is None


def test_writes_no_spec(api: Api, agent: Api, own: str):
    """The API server itself keeps the spec in a write of the status; all other ways are not the agent's."""
    before = api.get(own)["spec"]
    image = {"spec": {"containers": [{"name": "main", "image": "theirs"}]}}
    agent.patch(f"{own}/status", {**image, **conditions(IDLE)}, kind="strategic")
    assert api.get(own)["spec"] == before
    for path, body in (
        (own, image),
        (f"{own}/ephemeralcontainers", {"spec": {"ephemeralContainers": [{"name": "debug", "image": "x"}]}}),
        (
            f"{own}/resize",
            {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]}},
        ),
    ):
        with pytest.raises(Refused, match="403"):
            agent.patch(path, body, kind="strategic")


def test_writes_of_no_pod_on_another_node_or_on_none(api: Api, agent: Api, pods: str):
    other, waiting = plain("other", nodeName="hollow-other"), plain("waiting")
    for body in (other, waiting):
        api.create(pods, body)
        with pytest.raises(Refused, match=r"403.*pods on the node that it runs on"):
            agent.patch(f"{pods}/{body['metadata']['name']}/status", conditions(IDLE), kind="strategic")


def test_without_a_node_in_its_token_it_writes_nothing(control_plane: ControlPlane, own: str):
    loose = as_account(control_plane, "cotenant-agent")
    with pytest.raises(Refused, match=r"403.*pods on the node that it runs on"):
        loose.patch(f"{own}/status", conditions(IDLE), kind="strategic")


def test_rights_that_somebody_gives_it_by_mistake_are_worth_nothing(
    control_plane: ControlPlane, api: Api, agent: Api, own: str, pods: str, namespace: str
):
    """The policy covers every way to write a pod, not only the one that RBAC leaves open."""
    binding = {
        "metadata": {"name": "mistake"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "cotenant-agent", "namespace": chart.NAMESPACE}],
    }
    api.create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding)
    chart.until_allowed(lambda: agent.get(f"/api/v1/namespaces/{namespace}/configmaps"))
    for attempt in (
        lambda: agent.create(pods, plain("mine")),
        lambda: agent.patch(own, {"metadata": {"labels": {"app": "other"}}}),
        lambda: agent.delete(own),
        lambda: agent.create(f"{own}/eviction", {"metadata": {"name": "own"}}),
    ):
        with pytest.raises(Refused, match=r"403.*nothing of a pod but its status"):
            attempt()


def test_every_field_of_a_pods_status_is_in_the_policy(control_plane: ControlPlane, api: Api):
    """So that a new version of Kubernetes brings no field that an agent may write."""
    schemas: dict[str, Any] = api.get("/openapi/v3/api/v1")["components"]["schemas"]
    fields = set(schemas["io.k8s.api.core.v1.PodStatus"]["properties"]) - {"conditions"}
    policy = json.dumps(chart.named(chart.render(), "ValidatingAdmissionPolicy", "cotenant-idleness"))
    assert {name for name in fields if f"status.?{name} ==" not in policy} == set()


def lease(name: str, **meta: object) -> Object:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {"metadata": {"name": name, **meta}, "spec": {"holderIdentity": "hollow-own", "renewTime": now}}


def test_renews_the_lease_of_its_own_node_and_no_other(api: Api, agent: Api):
    agent.create(LEASES, lease("cotenant-agent-hollow-own"))
    agent.patch(f"{LEASES}/cotenant-agent-hollow-own", {"spec": lease("x")["spec"]})
    api.create(LEASES, lease("cotenant-agent-hollow-other"))
    api.create(LEASES, lease("cotenant-taken"))
    try:
        for name in ("cotenant-agent-hollow-other", "cotenant-taken"):
            with pytest.raises(Refused, match=r"403.*no Lease but that of the node"):
                agent.patch(f"{LEASES}/{name}", {"spec": {"holderIdentity": "hollow-own"}})
        for name in ("cotenant-server", "cotenant-agent-hollow-third", "cotenant-agent-"):
            with pytest.raises(Refused, match=r"403.*no Lease but that of the node|422"):
                agent.create(LEASES, lease(name))
    finally:
        for name in ("cotenant-agent-hollow-own", "cotenant-agent-hollow-other", "cotenant-taken"):
            api.delete(f"{LEASES}/{name}")

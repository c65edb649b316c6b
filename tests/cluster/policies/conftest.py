"""The policies and rights of the chart, in force for the tests of this folder."""

import time
from collections.abc import Iterator

import pytest
import yaml
from cluster import chart
from cluster.policies.pods import NODE, RUNTIME_CLASS, as_account, may, plain
from cluster.testbed import hollow
from cluster.testbed.api import Api
from cluster.testbed.controlplane import ControlPlane

from cotenant.dialects import names


@pytest.fixture(scope="module", autouse=True)
def _installed(control_plane: ControlPlane) -> Iterator[None]:
    api = control_plane.api
    chart.make_namespace(api)
    documents = chart.render(settings__admission__runtime_class=RUNTIME_CLASS)
    definition = chart.named(documents, "CustomResourceDefinition", "gpuscalers.cotenant.dev")
    mine = [*chart.policies(documents), *chart.access(documents), definition]
    chart.apply(control_plane, mine)
    forged = plain("probe", {names.GRANT: "x"})
    chart.until_refused(
        lambda: api.request("POST", "/api/v1/namespaces/default/pods", forged, query={"dryRun": "All"})
    )
    node = hollow.node("hollow-")
    node["metadata"] = {"name": NODE}
    api.create("/api/v1/nodes", node)
    time.sleep(1)  # for the others, of which some refuse only certain users
    yield
    api.delete(f"/api/v1/nodes/{NODE}")
    control_plane.kubectl(
        "delete", "--ignore-not-found", "--wait=false", "-f", "-", manifest=yaml.safe_dump_all(mine)
    )
    unseen = plain("probe", {})
    unseen["spec"]["containers"][0]["resources"] = {"limits": {names.GPU_MEMORY: "1Gi"}}
    for body in (forged, unseen):
        chart.until_allowed(
            lambda body=body: api.request(
                "POST", "/api/v1/namespaces/default/pods", body, query={"dryRun": "All"}
            )
        )


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
def author(control_plane: ControlPlane, api: Api, namespace: str) -> Api:
    """Somebody with the right to edit in the namespace."""
    binding = {
        "metadata": {"name": "author"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "author"}],
    }
    api.create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding)
    client = control_plane.client("author")
    while not may(client, "create", "pods", namespace):
        time.sleep(0.05)
    return client


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> Api:
    return as_account(control_plane, "cotenant-server")


@pytest.fixture
def agent(control_plane: ControlPlane, api: Api, hollow_nodes) -> Iterator[Api]:
    """An agent with a token as the kubelet gets it for the agent's pod, on hollow-own; hollow-other is there too."""
    hollow_nodes([hollow.node("hollow-own"), hollow.node("hollow-other")])
    path = f"/api/v1/namespaces/{chart.NAMESPACE}/pods"
    made = api.create(path, plain("agent", nodeName="hollow-own", serviceAccountName="cotenant-agent"))
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "agent", "uid": made["metadata"]["uid"]}
    client = as_account(control_plane, "cotenant-agent", bound)
    yield client
    client.close()
    api.delete(f"{path}/agent", gracePeriodSeconds=0)
    api.until_gone(f"{path}/agent")

"""What the server may do to scale and release workloads, tried as its own account on the real API server."""

import time
from collections.abc import Callable

import pytest
from cluster import chart
from cluster.policies.pods import may, plain
from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.controlplane import ControlPlane
from kube.scaler.specs import spec

RELEASED = "cotenant.dev/released-replicas"
COST = "controller.kubernetes.io/pod-deletion-cost"
LABELS = {"app": "worker"}
ROLES = "/apis/rbac.authorization.k8s.io/v1"
TEMPLATE = {
    "metadata": {"labels": LABELS},
    "spec": {"containers": [{"name": "main", "image": "none"}], "schedulerName": "nobody"},
}
KINDS = {
    "deployments": ("/apis/apps/v1", "Deployment", {"selector": {"matchLabels": LABELS}}),
    "statefulsets": (
        "/apis/apps/v1",
        "StatefulSet",
        {"selector": {"matchLabels": LABELS}, "serviceName": "worker"},
    ),
    "replicasets": ("/apis/apps/v1", "ReplicaSet", {"selector": {"matchLabels": LABELS}}),
    "replicationcontrollers": ("/api/v1", "ReplicationController", {"selector": LABELS}),
}


@pytest.fixture(params=KINDS)
def workload(request: pytest.FixtureRequest, api: Api, namespace: str) -> str:
    """The path of one, of each kind."""
    group, kind, selector = KINDS[request.param]
    path = f"{group}/namespaces/{namespace}/{request.param}"
    body = {
        "kind": kind,
        "metadata": {"name": "worker"},
        "spec": {"replicas": 1, "template": TEMPLATE, **selector},
    }
    api.create(path, body)
    return f"{path}/worker"


def scaler(name: str = "room-scene") -> Object:
    return {
        "apiVersion": "cotenant.dev/v1alpha1",
        "kind": "GpuScaler",
        "metadata": {"name": name},
        "spec": spec(),
    }


def scalers(namespace: str) -> str:
    return f"/apis/cotenant.dev/v1alpha1/namespaces/{namespace}/gpuscalers"


def retried(attempt: Callable[[], Object]) -> Object:
    """Rights reach the API server's authorizer a moment after they were given."""
    end = time.monotonic() + 20
    while True:
        try:
            return attempt()
        except Refused as refused:
            if refused.code != 403 or time.monotonic() > end:
                raise
            time.sleep(0.1)


def scaled(server: Api, workload: str, replicas: int) -> Object:
    """Guarded by the version that was read. A new workload's own controller writes to it too: then once more."""
    end = time.monotonic() + 20
    while True:
        scale = server.get(f"{workload}/scale")
        assert scale["spec"]["replicas"] == 1
        guard = {"resourceVersion": scale["metadata"]["resourceVersion"]}
        try:
            return server.patch(f"{workload}/scale", {"metadata": guard, "spec": {"replicas": replicas}})
        except Refused as refused:
            if refused.code != 409 or time.monotonic() > end:
                raise


class TestWorkloads:
    def test_the_server_scales_by_the_subresource(self, server: Api, workload: str):
        assert scaled(server, workload, 3)["spec"]["replicas"] == 3
        assert server.get(workload)["spec"]["replicas"] == 3

    def test_it_releases_one_and_writes_down_what_it_was(self, server: Api, workload: str):
        released = {"metadata": {"annotations": {RELEASED: "1"}}, "spec": {"replicas": 0}}
        made = server.patch(workload, released)
        assert made["spec"]["replicas"] == 0
        assert made["metadata"]["annotations"][RELEASED] == "1"
        back = server.patch(workload, {"metadata": {"annotations": {RELEASED: None}}})
        assert RELEASED not in back["metadata"].get("annotations", {})

    @pytest.mark.parametrize(
        "change",
        [
            {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "other"}]}}}},
            {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}},
            {"spec": {"minReadySeconds": 5}},
            {"metadata": {"labels": {"owner": "me"}}},
            {"metadata": {"annotations": {"other": "x"}}},
            {"metadata": {"finalizers": ["example.com/mine"]}},
            {"metadata": {"annotations": {"cotenant.dev/scale-down-threshold": "1s"}}},
        ],
        ids=["image", "template", "spec", "label", "annotation", "finalizer", "threshold"],
    )
    def test_it_changes_nothing_else(self, server: Api, api: Api, workload: str, change: Object):
        before = api.get(workload)
        with pytest.raises(Refused, match=r"403.*changes nothing in a workload but its replicas"):
            server.patch(workload, change, "strategic")
        after = api.get(workload)
        assert (after["metadata"].get("labels"), after["spec"]) == (
            before["metadata"].get("labels"),
            before["spec"],
        )

    def test_nor_removes_what_others_wrote(self, server: Api, api: Api, workload: str):
        api.patch(workload, {"metadata": {"annotations": {"theirs": "x"}}})
        with pytest.raises(Refused, match="changes nothing in a workload"):
            server.patch(workload, {"metadata": {"annotations": {"theirs": None}}})

    def test_others_may(self, author: Api, workload: str):
        author.patch(workload, {"metadata": {"annotations": {"cotenant.dev/scale-down-threshold": "15m"}}})

    @pytest.mark.parametrize("verb", ["create", "update", "delete", "deletecollection"])
    @pytest.mark.parametrize("kind", KINDS)
    def test_it_makes_and_deletes_none(self, server: Api, namespace: str, kind: str, verb: str):
        group = "" if kind == "replicationcontrollers" else "apps"
        assert not may(server, verb, kind, namespace, group=group)


class TestPods:
    def test_the_server_names_the_replica_that_goes_first(self, server: Api, api: Api, pods: str):
        api.create(pods, plain("worker"))
        made = server.patch(f"{pods}/worker", {"metadata": {"annotations": {COST: "-100"}}})
        assert made["metadata"]["annotations"][COST] == "-100"
        made = server.patch(f"{pods}/worker", {"metadata": {"annotations": {COST: None}}})
        assert COST not in made["metadata"].get("annotations", {})

    def test_and_changes_nothing_else_of_it(self, server: Api, api: Api, pods: str):
        api.create(pods, plain("worker"))
        for change in (
            {"metadata": {"annotations": {COST: "1", "other": "x"}}},
            {"metadata": {"labels": {"app": "x"}}},
            {"spec": {"activeDeadlineSeconds": 1}},
        ):
            with pytest.raises(Refused, match="changes nothing in a pod but the annotations"):
                server.patch(f"{pods}/worker", change)

    def test_it_deletes_none(self, server: Api, namespace: str):
        assert not may(server, "delete", "pods", namespace)


class TestGpuScalers:
    def test_the_server_reads_them_and_writes_their_status(self, server: Api, author: Api, namespace: str):
        retried(lambda: author.create(scalers(namespace), scaler()))
        assert [each["metadata"]["name"] for each in server.items(scalers(namespace))] == ["room-scene"]
        path = f"{scalers(namespace)}/room-scene"
        status = {"status": {"observedGeneration": 1, "state": "Active", "memory": {"a": [1.5]}}}
        assert server.patch(f"{path}/status", status)["status"]["memory"] == {"a": [1.5]}

    def test_it_changes_no_spec(self, server: Api, author: Api, namespace: str):
        retried(lambda: author.create(scalers(namespace), scaler()))
        path = f"{scalers(namespace)}/room-scene"
        with pytest.raises(Refused, match="403"):
            server.patch(path, {"spec": {"mode": "observe"}})
        for verb in ("create", "update", "patch", "delete"):
            assert not may(server, verb, "gpuscalers", namespace, group="cotenant.dev")

    def test_those_who_edit_a_namespace_edit_its_scalers_and_not_their_status(
        self, author: Api, namespace: str
    ):
        retried(lambda: author.create(scalers(namespace), scaler()))
        path = f"{scalers(namespace)}/room-scene"
        author.patch(path, {"spec": {"mode": "observe"}})
        with pytest.raises(Refused, match="403"):
            author.patch(f"{path}/status", {"status": {"state": "Active"}})
        author.delete(path)

    def test_those_who_view_it_see_them(self, control_plane: ControlPlane, api: Api, namespace: str):
        binding = {
            "metadata": {"name": "viewer"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "viewer"}],
        }
        api.create(f"{ROLES}/namespaces/{namespace}/rolebindings", binding)
        viewer = control_plane.client("viewer")
        assert retried(lambda: viewer.get(scalers(namespace)))["items"] == []
        assert not may(viewer, "create", "gpuscalers", namespace, group="cotenant.dev")


class TestConflicts:
    @pytest.mark.parametrize(
        ("resource", "group"), [("horizontalpodautoscalers", "autoscaling"), ("scaledobjects", "keda.sh")]
    )
    def test_the_server_sees_who_else_scales_and_changes_nothing_of_it(
        self, server: Api, namespace: str, resource: str, group: str
    ):
        assert may(server, "watch", resource, namespace, group=group)
        for verb in ("create", "update", "patch", "delete"):
            assert not may(server, verb, resource, namespace, group=group)


class TestSecrets:
    def test_the_server_reads_none_of_a_namespace_until_it_is_granted_one(
        self, server: Api, author: Api, api: Api, namespace: str
    ):
        secrets = f"/api/v1/namespaces/{namespace}/secrets"
        for name in ("queue-password", "other"):
            author.create(secrets, {"metadata": {"name": name}, "stringData": {"password": "x"}})
        with pytest.raises(Refused, match="403"):
            server.get(f"{secrets}/queue-password")
        rules = [
            {
                "apiGroups": [""],
                "resources": ["secrets"],
                "resourceNames": ["queue-password"],
                "verbs": ["get"],
            }
        ]
        api.create(f"{ROLES}/namespaces/{namespace}/roles", {"metadata": {"name": "r"}, "rules": rules})
        account = {"kind": "ServiceAccount", "name": "cotenant-server", "namespace": chart.NAMESPACE}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
        api.create(
            f"{ROLES}/namespaces/{namespace}/rolebindings",
            {"metadata": {"name": "r"}, "roleRef": role, "subjects": [account]},
        )
        assert "password" in retried(lambda: server.get(f"{secrets}/queue-password"))["data"]
        for refused in (f"{secrets}/other", secrets):
            with pytest.raises(Refused, match="403"):
                server.get(refused)


class TestOtherKinds:
    def test_a_labelled_role_adds_a_kind(self, server: Api, api: Api, namespace: str):
        assert not may(server, "patch", "rollouts/scale", namespace, group="argoproj.io")
        role = {
            "metadata": {
                "name": "cotenant-scales-rollouts",
                "labels": {"cotenant.dev/aggregate-to-targets": "true"},
            },
            "rules": [
                {"apiGroups": ["argoproj.io"], "resources": ["rollouts/scale"], "verbs": ["get", "patch"]}
            ],
        }
        api.create(f"{ROLES}/clusterroles", role)
        try:
            end = time.monotonic() + 30
            while not may(server, "patch", "rollouts/scale", namespace, group="argoproj.io"):
                assert time.monotonic() < end
                time.sleep(0.1)
        finally:
            api.delete(f"{ROLES}/clusterroles/cotenant-scales-rollouts")

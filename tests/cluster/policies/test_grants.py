"""A grant is written by the server, and by nobody else in whatever way."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cluster import chart
from cluster.policies.pods import GRANT, NATIVE, NODE, OF_DIALECTS, gpu, grant, may, plain
from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.controlplane import ControlPlane

from cotenant.dialects import names


@contextmanager
def refused_or_ignored() -> Iterator[None]:
    """Some parts of a pod take no annotations at all; what counts is the pod afterwards."""
    try:
        yield
    except Refused as refused:
        if "server alone" not in str(refused) and "ends with its pod" not in str(refused):
            raise


class TestAGrantIsTheServers:
    @pytest.mark.parametrize("annotation", NATIVE)
    def test_no_pod_is_created_with_a_native_one(self, author: Api, pods: str, annotation: str):
        with pytest.raises(
            Refused, match=f"403.*annotation {annotation}: a grant is written by Cotenant's server"
        ):
            author.create(pods, plain("forger", {annotation: "x"}))
        with pytest.raises(Refused, match=annotation):
            author.create(pods, gpu("forger", {annotation: "x"}))

    @pytest.mark.parametrize("annotation", OF_DIALECTS)
    def test_no_gpu_pod_is_created_with_one_of_a_dialect(self, author: Api, pods: str, annotation: str):
        with pytest.raises(Refused, match=f"annotation {annotation}: a grant is written"):
            author.create(pods, gpu("forger", {annotation: "x"}))

    def test_other_pods_may_carry_what_other_systems_write(self, author: Api, pods: str):
        author.create(pods, plain("theirs", dict.fromkeys(OF_DIALECTS, "x")))
        author.patch(f"{pods}/theirs", {"metadata": {"annotations": {OF_DIALECTS[0]: "y"}}})

    def test_the_server_grants_at_bind(self, server: Api, author: Api, pods: str):
        author.create(pods, gpu("trainer"))
        granted = grant(server, pods, "trainer")
        assert granted["metadata"]["annotations"].items() >= GRANT.items()
        assert granted["spec"]["nodeName"] == NODE

    @pytest.mark.parametrize("value", ["forged", None], ids=["changed", "removed"])
    @pytest.mark.parametrize("annotation", [NATIVE[0], NATIVE[1], NATIVE[2], OF_DIALECTS[0], OF_DIALECTS[-1]])
    @pytest.mark.parametrize("part", ["", "/status", "/ephemeralcontainers", "/resize"])
    def test_not_even_an_administrator_changes_one_by_any_part_of_the_pod(
        self, api: Api, server: Api, pods: str, part: str, annotation: str, value: str | None
    ):
        api.create(pods, gpu("trainer"))
        before = grant(server, pods, "trainer")["metadata"]["annotations"]
        with refused_or_ignored():
            api.patch(
                f"{pods}/trainer{part}", {"metadata": {"annotations": {annotation: value}}}, "strategic"
            )
        assert api.get(f"{pods}/trainer")["metadata"]["annotations"] == before

    @pytest.mark.parametrize("part", ["", "/status", "/ephemeralcontainers", "/resize"])
    def test_nor_adds_one(self, api: Api, pods: str, part: str):
        api.create(pods, gpu("waiting"))
        for annotation in (NATIVE[0], OF_DIALECTS[0]):
            with refused_or_ignored():
                api.patch(
                    f"{pods}/waiting{part}", {"metadata": {"annotations": {annotation: "x"}}}, "strategic"
                )
        assert "annotations" not in api.get(f"{pods}/waiting")["metadata"]

    def test_the_status_is_refused_and_not_merely_ignored(self, api: Api, pods: str):
        api.create(pods, gpu("waiting"))
        with pytest.raises(Refused, match=r"403.*server alone"):
            api.patch(f"{pods}/waiting/status", {"metadata": {"annotations": {names.GRANT: "x"}}})

    def test_a_replaced_pod_keeps_its_grant_or_is_refused(self, api: Api, server: Api, pods: str):
        api.create(pods, gpu("trainer"))
        granted = grant(server, pods, "trainer")
        del granted["metadata"]["annotations"]
        with pytest.raises(Refused, match="kubectl apply or patch"):
            api.replace(f"{pods}/trainer", granted)

    @pytest.mark.parametrize("where", ["pods/forged/binding", "bindings"])
    @pytest.mark.parametrize("annotation", [NATIVE[0], NATIVE[2], OF_DIALECTS[0]])
    def test_no_binding_but_the_servers_brings_one(
        self, api: Api, namespace: str, where: str, annotation: str, pods: str
    ):
        api.create(pods, gpu("forged"))
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "forged", "namespace": namespace, "annotations": {annotation: "x"}},
            "target": {"kind": "Node", "name": NODE},
        }
        with pytest.raises(Refused, match=r"403.*server alone"):
            api.create(f"/api/v1/namespaces/{namespace}/{where}", body)
        assert "nodeName" not in api.get(f"{pods}/forged")["spec"]

    def test_other_schedulers_bind_other_pods(self, control_plane: ControlPlane, api: Api, pods: str):
        api.create(pods, plain("theirs"))
        scheduler = control_plane.client("system:kube-scheduler")
        body = {
            "metadata": {"name": "theirs", "annotations": {"example.com/why": "best fit"}},
            "target": {"kind": "Node", "name": NODE},
        }
        scheduler.create(f"{pods}/theirs/binding", body)
        assert api.get(f"{pods}/theirs")["spec"]["nodeName"] == NODE

    def test_an_author_cannot_bind_at_all(self, author: Api, namespace: str):
        assert not may(author, "create", "pods/binding", namespace)
        assert not may(author, "create", "bindings", namespace)
        assert not may(author, "patch", "pods/status", namespace)


class TestWhatGoesOn:
    """A pod with a grant lives like any other."""

    @pytest.fixture
    def trainer(self, author: Api, server: Api, pods: str) -> str:
        author.create(pods, gpu("trainer"))
        grant(server, pods, "trainer")
        return f"{pods}/trainer"

    def test_its_author_labels_annotates_and_deletes_it(self, author: Api, trainer: str):
        author.patch(
            trainer, {"metadata": {"labels": {"team": "a"}, "annotations": {"example.com/note": "x"}}}
        )
        author.patch(trainer, {"metadata": {"annotations": {"example.com/note": None}}})
        author.delete(trainer, gracePeriodSeconds=0)

    def test_demands_may_be_rewritten_since_nobody_reads_them_again(self, author: Api, trainer: str):
        author.patch(
            trainer, {"metadata": {"annotations": {names.gpu_count("main"): "8", names.GPU_MODEL: "H100"}}}
        )

    def test_the_kubelet_writes_its_status(self, control_plane: ControlPlane, api: Api, trainer: str):
        kubelet = control_plane.client(f"system:node:{NODE}", ["system:nodes"])
        conditions = {
            "status": {"conditions": [{"type": "PodScheduled", "status": "True"}], "message": "seen"}
        }
        kubelet.patch(f"{trainer}/status", conditions, kind="strategic")
        assert api.get(trainer)["status"]["message"] == "seen"

    def test_a_pod_may_bring_as_many_annotations_as_the_api_server_takes(
        self, author: Api, api: Api, server: Api, pods: str
    ):
        """The time that a policy takes does not grow with them: else a few such pods would stop everybody."""
        many = {f"a{number}": "" for number in range(30000)}
        author.create(pods, gpu("wordy", many))
        server.patch(f"{pods}/wordy", {"metadata": {"annotations": {names.RETRY: "1"}}})
        grant(server, pods, "wordy")
        api.patch(f"{pods}/wordy/status", {"status": {"message": "seen"}})
        api.patch(f"{pods}/wordy", {"metadata": {"annotations": {"a0": "changed"}}})
        with pytest.raises(Refused, match="server alone"):
            api.patch(f"{pods}/wordy", {"metadata": {"annotations": {names.GRANT: "changed"}}})


class TestTheServer:
    @pytest.fixture
    def waiting(self, author: Api, pods: str) -> str:
        author.create(pods, gpu("waiting", {"example.com/note": "x"}))
        return f"{pods}/waiting"

    def test_tells_a_waiting_pod_to_try_again(self, server: Api, waiting: str):
        server.patch(waiting, {"metadata": {"annotations": {names.RETRY: "1"}}})
        server.patch(waiting, {"metadata": {"annotations": {names.RETRY: "2"}}})
        server.patch(waiting, {"metadata": {"annotations": {names.RETRY: None}}})

    @pytest.mark.parametrize(
        "body",
        [
            {"spec": {"containers": [{"name": "main", "image": "other"}]}},
            {"metadata": {"labels": {"app": "other"}}},
            {"metadata": {"annotations": {"example.com/note": "y"}}},
            {"metadata": {"annotations": {"example.com/note": None}}},
            {"metadata": {"annotations": {names.GRANT: "y"}}},
            {"metadata": {"finalizers": ["example.com/stay"]}},
            {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]}},
        ],
        ids=["image", "label", "annotation", "annotation gone", "grant", "finalizer", "owner"],
    )
    def test_changes_nothing_else_in_it(self, server: Api, waiting: str, body: Object):
        with pytest.raises(Refused, match=r"403.*nothing in a pod but the annotations cotenant.dev/retry"):
            server.patch(waiting, body, kind="strategic")

    @pytest.mark.parametrize(
        ("resource", "name", "type"),
        [
            ("secrets", "cotenant-certificates", "Opaque"),
            ("secrets", "cotenant-agent-certificate", "kubernetes.io/tls"),
            ("configmaps", "cotenant-ca", ""),
            ("configmaps", "cotenant-statistics", ""),
        ],
    )
    def test_creates_what_it_keeps_certificates_and_statistics_in(
        self, server: Api, resource: str, name: str, type: str
    ):
        self.creates(server, resource, name, type)

    @pytest.mark.parametrize(
        ("resource", "name", "type"),
        [
            ("secrets", "another", "Opaque"),
            ("secrets", "cotenant-ca", "Opaque"),
            ("secrets", "cotenant-certificates", "kubernetes.io/service-account-token"),
            ("secrets", "cotenant-agent-certificate", "kubernetes.io/service-account-token"),
            ("configmaps", "another", ""),
            ("configmaps", "cotenant-settings", ""),
            ("configmaps", "cotenant-certificates", ""),
        ],
    )
    def test_creates_no_other_secret_or_config_map(self, server: Api, resource: str, name: str, type: str):
        with pytest.raises(Refused, match=r"403.*creates no Secret but cotenant-certificates"):
            self.creates(server, resource, name, type)

    def creates(self, server: Api, resource: str, name: str, type: str) -> None:
        body: Object = {"metadata": {"name": name}}
        if resource == "secrets":
            annotation = {"kubernetes.io/service-account.name": "cotenant-agent"}
            body["metadata"]["annotations"] = annotation
            body |= {"type": type, "stringData": {"tls.crt": "x", "tls.key": "y"}}
        path = f"/api/v1/namespaces/{chart.NAMESPACE}/{resource}"
        server.request("POST", path, body, query={"dryRun": "All"})

    def test_has_the_rights_that_it_needs(self, server: Api):
        own = chart.NAMESPACE
        for verb in ("get", "list", "watch"):
            assert all(may(server, verb, resource) for resource in ("pods", "nodes", "namespaces"))
        assert may(server, "create", "pods/binding")
        assert may(server, "create", "pods/eviction")
        assert may(server, "create", "events")
        assert may(server, "patch", "events")
        for verb in ("get", "watch", "patch"):
            assert may(server, verb, "secrets", own, "cotenant-certificates")
        for verb in ("get", "patch"):
            assert may(server, verb, "secrets", own, "cotenant-agent-certificate")
            assert may(server, verb, "configmaps", own, "cotenant-ca")
            assert may(server, verb, "configmaps", own, "cotenant-statistics")
        for verb in ("get", "patch"):
            assert may(server, verb, "leases", own, "cotenant-server", "coordination.k8s.io")
        for verb in ("get", "patch", "delete"):
            assert may(server, verb, "endpointslices", own, "cotenant-extender", "discovery.k8s.io")
        for verb in ("get", "watch", "patch"):
            assert may(
                server,
                verb,
                "mutatingwebhookconfigurations",
                name="cotenant",
                group="admissionregistration.k8s.io",
            )

    def test_has_no_others(self, server: Api):
        own = chart.NAMESPACE
        for verb in ("create", "update", "delete"):
            assert not may(server, verb, "pods")
        assert not any(may(server, verb, "pods/eviction") for verb in ("patch", "update", "delete"))
        for resource in ("pods/status", "pods/exec", "nodes", "nodes/status", "namespaces"):
            assert not any(may(server, verb, resource) for verb in ("create", "patch", "update", "delete"))
        assert not may(server, "get", "secrets", own, "another")
        assert not may(server, "get", "secrets", "kube-system", "cotenant-certificates")
        assert not may(server, "list", "secrets")
        assert not may(server, "delete", "secrets", own, "cotenant-certificates")
        assert not may(server, "delete", "secrets", own, "cotenant-agent-certificate")
        for verb in ("get", "patch", "update", "delete"):
            assert not may(server, verb, "configmaps", own, "cotenant-settings")
        assert not may(server, "delete", "configmaps", own, "cotenant-ca")
        for verb in ("list", "watch", "update", "delete"):
            assert not may(server, verb, "configmaps", own, "cotenant-statistics")
        assert not may(server, "get", "configmaps", "kube-system", "cotenant-statistics")
        assert not may(server, "create", "configmaps", "kube-system")
        assert not may(server, "get", "leases", own, "another", "coordination.k8s.io")
        assert not may(server, "delete", "leases", own, "cotenant-server", "coordination.k8s.io")
        assert not may(server, "delete", "endpointslices", own, "another", "discovery.k8s.io")
        assert not may(server, "update", "secrets", own, "cotenant-certificates")
        assert not may(server, "update", "leases", own, "cotenant-server", "coordination.k8s.io")
        assert not may(server, "update", "endpointslices", own, "cotenant-extender", "discovery.k8s.io")
        webhooks = "mutatingwebhookconfigurations"
        assert not may(server, "patch", webhooks, name="another", group="admissionregistration.k8s.io")
        assert not may(server, "create", webhooks, group="admissionregistration.k8s.io")
        assert not may(server, "impersonate", "users")

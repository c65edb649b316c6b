"""doctor on a real API server: faults are put into a cluster that is well, found, and mended where that is safe."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

import pytest
import yaml
from cluster import chart
from cluster.cotenant.commands import Commands, installer, publish_settings, withdraw_settings
from cluster.cotenant.gpunodes import GIB, gpu_node, uuid_of
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import bound, container, pod, pods_of, running
from cluster.cotenant.objects import NAMESPACE, WEBHOOKS
from cluster.cotenant.observed import define
from cluster.cotenant.telling import telling
from cluster.testbed.api import Api, Object
from cluster.testbed.controlplane import ControlPlane

from cotenant.kube.certificates import renewal
from cotenant.kube.certificates.renewal import CertificatePolicy, CertificateSet

pytestmark = pytest.mark.timeout(240)
NODES = ("hollow-a", "hollow-b")
OWN = f"/api/v1/namespaces/{NAMESPACE}"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/cotenant-server"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
TELLER = "10.200.0.77"
LABELS = {"app.kubernetes.io/name": "cotenant"}
SCHEDULER = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "percentageOfNodesToScore": 100,
    "extenders": [
        {
            "urlPrefix": f"https://cotenant-extender.{NAMESPACE}.svc",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "preemptVerb": "preempt",
            "bindVerb": "bind",
        }
    ],
}


@pytest.fixture(scope="module")
def cotenant(start_cotenant, control_plane: ControlPlane) -> Iterator[Installation]:
    """With the chart's policies; the servers run as the administrator here."""
    chart.make_namespace(control_plane.api)
    policies = chart.policies(chart.render(policies__servers=["admin"]))
    chart.apply(control_plane, policies)
    define(control_plane)
    started: Installation = start_cotenant(servers=1)
    publish_settings(control_plane, {})
    installer(control_plane).create(f"{OWN}/configmaps", scheduler_map(SCHEDULER))
    for part in ("server", "scheduler"):
        control_plane.api.create(DEPLOYMENTS, deployment(f"cotenant-{part}"))
    yield started
    for part in ("server", "scheduler"):
        control_plane.api.delete(f"{DEPLOYMENTS}/cotenant-{part}")
    control_plane.api.delete(f"{OWN}/configmaps/cotenant-scheduler")
    withdraw_settings(control_plane)
    control_plane.kubectl("delete", "--wait=false", "-f", "-", manifest=yaml.safe_dump_all(policies))


@pytest.fixture
def commands(control_plane: ControlPlane) -> Commands:
    """As somebody else than the servers: these may not restart a Deployment."""
    return Commands(control_plane, "operator", ("system:masters",))


def scheduler_map(configuration: Object) -> Object:
    meta = {"name": "cotenant-scheduler", "labels": LABELS}
    return {"metadata": meta, "data": {"config.yaml": yaml.safe_dump(configuration)}}


def deployment(name: str) -> Object:
    """As the chart makes it, but that nothing runs: here the parts are processes."""
    chosen = {"made": name}
    template = {"metadata": {"labels": chosen}, "spec": {"containers": [container()]}}
    spec = {"replicas": 0, "selector": {"matchLabels": chosen}, "template": template}
    labels = {**LABELS, "app.kubernetes.io/component": name.removeprefix("cotenant-")}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def restarted(api: Api, part: str) -> bool:
    template = api.get(f"{DEPLOYMENTS}/cotenant-{part}")["spec"]["template"]
    return "kubectl.kubernetes.io/restartedAt" in template["metadata"].get("annotations", {})


def own_pod(api: Api, name: str, component: str, node: str, address: str = "", version: str = "") -> None:
    """A pod of Cotenant's own on a hollow node, which runs there as far as anybody can tell."""
    made = pod(name, container(component), nodeName=node)
    made["metadata"]["labels"] = {**LABELS, "app.kubernetes.io/component": component}
    if version:
        made["metadata"]["labels"]["app.kubernetes.io/version"] = version
    api.create(f"{OWN}/pods", made)
    running(api, NAMESPACE, name)
    if address:
        api.patch(f"{OWN}/pods/{name}/status", {"status": {"podIP": address, "podIPs": [{"ip": address}]}})


def grant(uid: str, node: str, memory: int) -> str:
    share = {"uuid": uuid_of(node, 0), "memory": memory}
    return json.dumps({"version": 1, "uid": uid, "slots": [{"container": "main", "shares": [share]}]})


def bind(api: Api, namespace: str, name: str, node: str, annotation: str | None) -> None:
    """As somebody would who is not Cotenant but may write what it writes."""
    meta: Object = {"name": name}
    if annotation is not None:
        meta["annotations"] = {"cotenant.dev/grant": annotation}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    api.create(f"{pods_of(namespace)}/{name}/binding", {"metadata": meta, "target": target})


def stray(api: Api, namespace: str, name: str) -> str:
    """A GPU pod that no scheduler looks at."""
    made = api.create(pods_of(namespace), pod(name, container(memory="2Gi"), schedulerName="nobody"))
    uid: str = made["metadata"]["uid"]
    return uid


def examine(commands: Commands, *words: str) -> tuple[int, dict[str, Object]]:
    done = commands.run("doctor", "--cluster", "-o", "json", *words)
    found = json.loads(done.stdout)["findings"]
    return done.returncode, {each["kind"]: each for each in found}


def test_faults_are_found_the_safe_ones_are_mended_and_then_all_is_well(
    cotenant: Installation, commands: Commands, api: Api, namespace: str, hollow_nodes, tmp_path
):
    hollow_nodes([gpu_node(name, [16 * GIB] * 2) for name in NODES])
    for name in NODES:
        own_pod(api, f"agent-{name}", "agent", name)
    api.create(pods_of(namespace), pod("well", container(memory="4Gi")))
    bound(api, namespace, "well")
    done = commands.as_plugin(tmp_path, "doctor")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.startswith("nothing is wrong with leader, certificates, webhook")

    # 1: two pods that were granted more than the card has
    for name in ("over-1", "over-2"):
        bind(api, namespace, name, "hollow-b", grant(stray(api, namespace, name), "hollow-b", 12 * GIB))
    # 2: a grant that belongs to another pod
    stray(api, namespace, "thief")
    bind(api, namespace, "thief", "hollow-b", grant("somebody-elses-uid", "hollow-b", GIB))
    # 3: a pod past our scheduler
    stray(api, namespace, "past")
    bind(api, namespace, "past", "hollow-b", None)
    # 4: the mark of a card that is gone
    drained = {"metadata": {"annotations": {"cotenant.dev/drained": f"GPU-gone,{uuid_of('hollow-a', 1)}"}}}
    api.patch("/api/v1/nodes/hollow-a", drained)
    # 5: NVIDIA's plugin on the same cards
    api.patch("/api/v1/nodes/hollow-a/status", {"status": {"capacity": {"nvidia.com/gpu": "2"}}})
    # 6: a scheduler that samples
    sampling = scheduler_map({**SCHEDULER, "percentageOfNodesToScore": 50, "podMaxBackoffSeconds": 7})
    api.replace(f"{OWN}/configmaps/cotenant-scheduler", sampling)
    # 7: a node without agent
    api.delete(f"{OWN}/pods/agent-hollow-b", gracePeriodSeconds=0)
    api.until_gone(f"{OWN}/pods/agent-hollow-b")
    # 8: a policy that only watches, one that counts in some namespaces only, one that is not bound, one that
    # lets pass what it cannot judge
    api.patch(f"{BINDINGS}/cotenant-modes", {"spec": {"validationActions": ["Audit"]}})
    some = {"namespaceSelector": {"matchLabels": {"some": "thing"}}}
    api.patch(f"{BINDINGS}/cotenant-cards", {"spec": {"matchResources": some}})
    api.delete(f"{BINDINGS}/cotenant-nodes")
    api.patch(f"{POLICIES}/cotenant-demands", {"spec": {"failurePolicy": "Ignore"}})
    # 9: a mode that does not exist
    api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"cotenant.dev/enforce": "maybe"}}})
    # 10 and 11: the webhook lets pass what it cannot ask about, and trusts somebody else; no server mends that
    cotenant.servers[0].kill()
    webhooks = api.get(f"{WEBHOOKS}/cotenant")["webhooks"]
    webhooks[0]["failurePolicy"] = "Ignore"
    other = chart_free_bundle(cotenant)
    webhooks[0]["clientConfig"]["caBundle"] = base64.b64encode(other).decode()
    api.patch(f"{WEBHOOKS}/cotenant", {"webhooks": webhooks})

    code, found = examine(commands)
    assert code == 1
    assert set(found) == {
        "over-granted",
        "grant-unreadable",
        "no-grant",
        "drained-gone",
        "second-plugin",
        "scheduler-samples",
        "agent-missing",
        "policy",
        "bad-mode",
        "webhook-altered",
        "ca-bundle",
    }
    assert all("kubectl" in found[kind]["do"] for kind in ("over-granted", "grant-unreadable", "no-grant"))
    assert f"{namespace}/over-1 12Gi, {namespace}/over-2 12Gi" in found["over-granted"]["found"]
    assert "failurePolicy" in found["webhook-altered"]["found"]
    pods = {each["metadata"]["uid"] for each in api.items(pods_of(namespace))}

    code, mended = examine(commands, "--fix")
    assert code == 1
    fixed = {kind for kind, each in mended.items() if each["fixed"]}
    assert fixed == {"drained-gone", "webhook-altered", "ca-bundle", "policy", "scheduler-samples"}
    assert all(mended[kind]["done"] for kind in fixed), "it says what it did"
    assert {each["metadata"]["uid"] for each in api.items(pods_of(namespace))} == pods, "no pod was touched"
    node = api.get("/api/v1/nodes/hollow-a")["metadata"]["annotations"]
    assert node["cotenant.dev/drained"] == uuid_of("hollow-a", 1), "the other mark is somebody's wish"
    webhook = api.get(f"{WEBHOOKS}/cotenant")["webhooks"][0]
    assert webhook["failurePolicy"] == "Fail"
    secret = api.get(f"{OWN}/secrets/cotenant-certificates")["data"]
    assert webhook["clientConfig"]["caBundle"] == secret["bundle.crt"]
    configuration = yaml.safe_load(api.get(f"{OWN}/configmaps/cotenant-scheduler")["data"]["config.yaml"])
    assert configuration == {**SCHEDULER, "podMaxBackoffSeconds": 7}, "what else stood there is kept"
    assert restarted(api, "scheduler")
    assert not restarted(api, "server")
    for name in ("modes", "cards", "nodes", "demands"):
        assert api.get(f"{BINDINGS}/cotenant-{name}")["spec"] == {
            "policyName": f"cotenant-{name}",
            "validationActions": ["Deny"],
        }
        assert api.get(f"{POLICIES}/cotenant-{name}")["spec"]["failurePolicy"] == "Fail"

    cotenant.servers[0].start()
    cotenant.wait()
    for name in ("over-1", "over-2", "thief", "past"):
        api.delete(f"{pods_of(namespace)}/{name}", gracePeriodSeconds=0)
        api.until_gone(f"{pods_of(namespace)}/{name}")
    api.patch("/api/v1/nodes/hollow-a/status", {"status": {"capacity": {"nvidia.com/gpu": None}}})
    own_pod(api, "agent-hollow-b", "agent", "hollow-b")
    api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"cotenant.dev/enforce": None}}})
    code, left = examine(commands, "--fix")
    assert (code, left) == (0, {})
    for name in NODES:
        api.delete(f"{OWN}/pods/agent-{name}", gracePeriodSeconds=0)


def chart_free_bundle(cotenant: Installation) -> bytes:
    """Some authority, but not ours: the API server takes only certificates."""
    return cotenant.control_plane.authority.pair.certificate.read_bytes()


@pytest.fixture
def leader(cotenant: Installation, api: Api, hollow_nodes) -> Iterator[str]:
    """The server as the pod that it would be, by which the doctor reaches its ledger."""
    hollow_nodes([gpu_node("hollow-c", [16 * GIB])])
    own_pod(api, "agent-hollow-c", "agent", "hollow-c", TELLER)
    name = api.get(LEASE)["spec"]["holderIdentity"].partition("_")[0]
    own_pod(api, name, "server", "hollow-c", cotenant.addresses[0], version("cotenant"))
    yield name
    for each in ("agent-hollow-c", name):
        api.delete(f"{OWN}/pods/{each}", gracePeriodSeconds=0)


def mend(commands: Commands, cotenant: Installation) -> None:
    """By the doctor, unless the leader was faster: it writes its endpoint again every 30 seconds."""
    code, mended = examine(commands, "--fix")
    assert (code, set(mended) - {"wrong-endpoint"}) == (0, set())
    if mended:
        assert cotenant.addresses[0] in mended["wrong-endpoint"]["done"]


def test_the_way_to_the_leader_is_mended(
    leader: str, cotenant: Installation, commands: Commands, api: Api, namespace: str
):
    assert examine(commands) == (0, {})
    wrong = [{"addresses": ["10.200.0.99"], "conditions": {"ready": True}}]
    api.patch(f"{SLICES}/cotenant-extender", {"endpoints": wrong})
    mend(commands, cotenant)
    api.create(pods_of(namespace), pod("placed", container(memory="1Gi")))
    bound(api, namespace, "placed")
    api.delete(f"{SLICES}/cotenant-extender")
    mend(commands, cotenant)
    assert examine(commands) == (0, {})


def test_leaks_of_ledger_and_slots_and_versions_that_differ_are_found(
    leader: str, control_plane: ControlPlane, commands: Commands, api: Api, namespace: str
):
    stranger = {"node": "hollow-c", "gpus": {uuid_of("hollow-c", 0): GIB}}
    slot = {"device": "slot-0000", "uid": "gone", "namespace": namespace, "pod": "gone", "container": "main"}

    def ledger() -> Object:
        """A second server that believes to lead, and charges somebody who is not there, until it starts anew."""
        if restarted(api, "server"):
            return {"leads": False}
        return {"leads": True, "charged": {"uid-of-nobody": stranger}}

    own_pod(api, "cotenant-server-2", "server", "hollow-c", TELLER, "9.9.9")
    try:
        with (
            telling(control_plane, TELLER, 8443, ledger),
            telling(control_plane, TELLER, 8889, lambda: {"slots": [slot], "kubelet": {}}),
        ):
            code, mended = examine(commands, "--fix")
            assert code == 1
            assert set(mended) == {"two-lead", "charge-leaked", "slot-left", "versions-differ"}
            fixed = {kind for kind, each in mended.items() if each["fixed"]}
            assert fixed == {"two-lead", "charge-leaked"}
            assert "restarted" in mended["two-lead"]["done"] + mended["charge-leaked"]["done"]
            assert "9.9.9" in mended["versions-differ"]["found"]
            assert "keeps the slot slot-0000" in mended["slot-left"]["found"]
    finally:
        api.delete(f"{OWN}/pods/cotenant-server-2", gracePeriodSeconds=0)
        api.until_gone(f"{OWN}/pods/cotenant-server-2")
    assert examine(commands) == (0, {})


def test_certificates_that_have_expired_are_told_until_a_server_runs_and_renews_them(
    leader: str, cotenant: Installation, commands: Commands, api: Api
):
    then = datetime.now(UTC) - timedelta(days=100)
    wanted = CertificatePolicy(
        ("cotenant-webhook",),
        ("cotenant-agent",),
        timedelta(days=90),
        timedelta(days=3650),
        timedelta(seconds=10),
    )
    expired = renewal.to_data(renewal.renewed(CertificateSet(), wanted, then))
    cotenant.servers[0].kill()
    try:
        api.patch(f"{OWN}/secrets/cotenant-certificates", {"data": expired})
        code, found = examine(commands)
        assert code == 1
        assert {"certificate", "ca-bundle"} <= set(found)
        assert "has expired at" in found["certificate"]["found"]
    finally:
        cotenant.servers[0].start()
        cotenant.wait()
        cotenant.schedule()
    name = api.get(LEASE)["spec"]["holderIdentity"].partition("_")[0]
    assert name == leader
    assert examine(commands) == (0, {})


def test_a_server_that_is_gone_is_told(cotenant: Installation, commands: Commands, api: Api):
    cotenant.servers[0].stop()
    try:
        code, found = examine(commands)
        assert code == 1
        assert "has no holder" in found["not-led"]["found"]
        text = commands.run("doctor", "--cluster").stdout
        assert "error not-led" in text
        assert "do     read the log of the servers: kubectl logs" in text
    finally:
        cotenant.servers[0].start()
        cotenant.wait()


def test_who_may_see_little_is_told_what_was_not_looked_at(
    cotenant: Installation, control_plane: ControlPlane
):
    nobody = Commands(control_plane, "somebody", ())
    code, found = examine(nobody)
    assert code == 1
    assert "not-looked-at" in found


def test_without_a_cluster_it_looks_at_this_machine(commands: Commands, tmp_path, monkeypatch):
    monkeypatch.setenv("COTENANT_HOME", str(tmp_path / "home"))
    done = commands.run("--simulate", "1x16GiB", "doctor")
    assert "nothing is wrong with the ledger" in done.stdout, done.stdout + done.stderr


def gpu_scaler(name: str, **spec: object) -> Object:
    queue = {"nats": {"url": "nats://queue:4222", "stream": "jobs", "consumer": "workers"}}
    return {
        "apiVersion": "cotenant.dev/v1alpha1",
        "kind": "GpuScaler",
        "metadata": {"name": name},
        "spec": {"target": {"name": "web"}, "replicas": {"max": 2}, "backlog": {"queue": queue}, **spec},
    }


def test_an_outdated_definition_and_several_scalers_of_one_workload_are_found(
    cotenant: Installation, control_plane: ControlPlane, commands: Commands, api: Api, namespace: str
):
    scalers = f"/apis/cotenant.dev/v1alpha1/namespaces/{namespace}/gpuscalers"
    api.create(scalers, gpu_scaler("one"))
    api.create(scalers, gpu_scaler("observes", mode="observe"))
    assert "scalers-conflict" not in examine(commands)[1]
    api.create(scalers, gpu_scaler("two"))
    found = examine(commands)[1]["scalers-conflict"]
    assert found["target"] == f"deployment {namespace}/web"
    assert "GpuScaler one, GpuScaler two" in found["found"]
    definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpuscalers.cotenant.dev"
    versions = api.get(definition)["spec"]["versions"]
    del versions[0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["memory"]
    api.patch(definition, {"spec": {"versions": versions}})
    try:
        found = examine(commands)[1]["definition-outdated"]
        assert "lacks fields: status.memory" in found["found"]
        assert not found["fixable"]
    finally:
        define(control_plane)
    assert "definition-outdated" not in examine(commands)[1]
    for name in ("one", "two", "observes"):
        api.delete(f"{scalers}/{name}")

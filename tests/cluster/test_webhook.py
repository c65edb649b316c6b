"""A real API server asks the webhook about GPU pods, about nothing else, and trusts it whatever happens to certificates."""

import base64
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Self

import pytest
from cluster.cotenant.hook import (
    NAMESPACE,
    RIGHTS,
    SECRET,
    SETTINGS,
    WEBHOOKS,
    Hook,
    forget,
    give_rights,
    install,
)
from cluster.testbed.api import Api, Object, Refused, pause
from cluster.testbed.controlplane import ControlPlane
from cryptography import x509

from cotenant.dialects.nvidia import Nvidia
from cotenant.dialects.registry import Dialects
from cotenant.kube.admission.configuration import webhook_configuration
from cotenant.kube.certificates.renewal import CertificatePolicy, CertificateSet, is_signed, renewed, to_data

MEMORY, SLOT = "cotenant.dev/gpu-memory", "cotenant.dev/gpu-slot"
FORGED = {
    "cotenant.dev/grant": "{}",
    "cotenant.dev/retry": "1",
    "devices.cotenant.dev/main": "GPU-0",
    "compute.cotenant.dev/main": "100",
    "card-memory.cotenant.dev/main": "1",
    "mps-memory.cotenant.dev/main": "0=1M",
}
REFUSED = 'failed calling webhook "pods.cotenant.dev"'


def pod(name: str = "", *, annotations: dict[str, str] | None = None, **limits: str) -> Object:
    """`memory` is GPU memory; without any resource it is a plain pod."""
    container: Object = {"name": "main", "image": "none"}
    if limits:
        container["resources"] = {
            "limits": {MEMORY if key == "memory" else key: text for key, text in limits.items()}
        }
    metadata: Object = {"name": name} if name else {"generateName": "pod-"}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": {"containers": [container]}}


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane) -> Iterator[Hook]:
    api = control_plane.api
    install(api)
    give_rights(api, "cotenant-server")
    yield Hook(control_plane, str(control_plane.kubeconfig("cotenant-server", ())))
    api.delete(f"{WEBHOOKS}/cotenant")
    api.delete(f"{RIGHTS}/clusterroles/cotenant-webhook-test")
    api.delete(f"{RIGHTS}/clusterrolebindings/cotenant-webhook-test")
    api.delete(f"/api/v1/namespaces/{NAMESPACE}")


@pytest.fixture
def hook(installed: Hook) -> Iterator[Hook]:
    """Up and trusted."""
    installed.start()
    yield installed
    installed.process.stop()
    assert "PRIVATE" not in installed.process.log.read_text(), "no log shows a key"


@pytest.fixture
def down(installed: Hook) -> Hook:
    """Not there, though the API server is told to ask it."""
    assert not installed.process.running
    return installed


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def until(true: Callable[[], bool], seconds: float = 30) -> None:
    began = time.monotonic()
    while not true():
        assert time.monotonic() < began + seconds
        pause(began)


def refusal(api: Api, pods: str, body: Object) -> str:
    with pytest.raises(Refused) as refused:
        api.create(pods, body)
    return str(refused.value)


def test_a_gpu_pod_is_changed_and_the_change_is_what_is_stored(hook: Hook, api: Api, pods: str):
    made = api.create(pods, pod("it", memory="4Gi"))
    (container,) = made["spec"]["containers"]
    assert container["resources"]["limits"] == {MEMORY: "4Gi", SLOT: "1"}
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert [each["name"] for each in container["env"]] == ["NVIDIA_VISIBLE_DEVICES"]
    assert made["spec"]["schedulerName"] == "cotenant"
    assert api.get(f"{pods}/it")["spec"] == made["spec"]


def test_another_dialects_pod_is_changed_too(hook: Hook, api: Api, pods: str):
    made = api.create(pods, pod("it", **{"volcano.sh/gpu-memory": "1024"}))
    assert made["spec"]["containers"][0]["resources"]["limits"] == {
        "volcano.sh/gpu-memory": "1024",
        MEMORY: "1Gi",
        SLOT: "1",
    }


@pytest.mark.parametrize("place", ["init", "request", "sidecar", "misspelt", "zero"])
def test_wherever_a_pod_asks_the_webhook_is_asked(hook: Hook, api: Api, pods: str, place: str):
    body, before = pod(), hook.asked()
    main = body["spec"]["containers"][0]
    asks = {"name": "other", "image": "none", "resources": {"limits": {MEMORY: "1Gi"}}}
    if place in {"init", "sidecar"}:
        body["spec"]["initContainers"] = [{**asks, "restartPolicy": "Always"} if place == "sidecar" else asks]
    elif place == "zero":
        main["resources"] = {"limits": {"nvidia.com/gpu": "0"}}
    elif place == "request":
        main["resources"] = {"requests": {MEMORY: "1Gi"}}
    else:
        main["resources"] = {"limits": {"cotenant.dev/gpu-ram": "1Gi"}}
    if place in {"misspelt", "request"}:
        assert "denied the request: container 'main': cotenant.dev/gpu-" in refusal(api, pods, body)
    else:
        api.create(pods, body)
    assert hook.asked() > before


def plain_pods() -> dict[str, Object]:
    """Pods that are no concern of ours, in every shape that a condition could stumble over."""
    many = {f"{number:x}": "" for number in range(5_000)}
    containers = [{"name": f"c{number}", "image": "i"} for number in range(300)]
    with_cpu = pod(cpu="1", memory_="1")
    with_cpu["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}, "requests": {"memory": "1Mi"}}
    empty = pod(annotations={})
    empty["spec"]["containers"][0]["resources"] = {}
    empty["spec"]["initContainers"] = []
    other_device = pod(**{"example.com/gpu": "1"})
    return {
        "bare": pod(),
        "with empty fields": empty,
        "with resources": with_cpu,
        "with annotations": pod(
            annotations={"a": "b", "example.com/cotenant.dev": "x", "cotenant.dev/note": "x"}
        ),
        "with another device": other_device,
        "with very many annotations": pod(annotations=many),
        "with very many containers": {
            "metadata": {"generateName": "pod-"},
            "spec": {
                "containers": containers,
                "initContainers": [{**each, "name": f"i{each['name']}"} for each in containers],
            },
        },
    }


@pytest.mark.parametrize("kind", list(plain_pods()))
def test_a_plain_pod_never_reaches_the_webhook(hook: Hook, api: Api, pods: str, kind: str):
    before = hook.counts()
    made = api.create(pods, plain_pods()[kind])
    assert made["spec"]["schedulerName"] == "default-scheduler"
    assert hook.counts() == before


@pytest.mark.parametrize("kind", list(plain_pods()))
def test_a_plain_pod_is_unaffected_while_the_webhook_is_down(down: Hook, api: Api, pods: str, kind: str):
    api.create(pods, plain_pods()[kind])


def test_a_gpu_pod_is_refused_while_the_webhook_is_down_and_is_told_why(down: Hook, api: Api, pods: str):
    told = refusal(api, pods, pod(memory="4Gi"))
    assert REFUSED in told
    assert "cotenant-webhook.webhook-system.svc" in told
    assert REFUSED in refusal(api, pods, pod(annotations=FORGED))
    assert api.items(pods) == []


def test_while_the_webhook_hangs_gpu_pods_are_refused_in_time_and_others_pass(
    hook: Hook, api: Api, pods: str
):
    hook.process.pause()
    try:
        began = time.monotonic()
        assert REFUSED in refusal(api, pods, pod(memory="4Gi"))
        assert time.monotonic() - began < 30
        api.create(pods, pod())
    finally:
        hook.process.resume()
    until(lambda: _created(api, pods))


def _created(api: Api, pods: str) -> bool:
    try:
        api.create(pods, pod(memory="1Gi"))
    except Refused:
        return False
    return True


def test_what_can_never_be_done_is_refused_with_the_field_and_the_remedy(hook: Hook, api: Api, pods: str):
    told = refusal(api, pods, {**pod(memory="4Gi"), "spec": {**pod(memory="4Gi")["spec"], "nodeName": "n1"}})
    assert told.startswith("422 Invalid")
    assert 'webhook "pods.cotenant.dev" denied the request: spec.nodeName' in told
    assert "choose nodes by nodeSelector" in told
    both = pod(memory="4Gi", **{"aliyun.com/gpu-mem": "1"})
    assert "ask for the same thing twice" in refusal(api, pods, both)


def test_a_pretended_grant_is_stripped_at_creation(hook: Hook, api: Api, pods: str):
    for body in (pod(memory="4Gi", annotations={**FORGED, "a": "b"}), pod(annotations={**FORGED, "a": "b"})):
        assert api.create(pods, body)["metadata"]["annotations"] == {"a": "b"}
    for key, value in FORGED.items():
        assert "annotations" not in api.create(pods, pod(annotations={key: value}))["metadata"], key


def test_a_dry_run_shows_what_would_be_and_stores_nothing(hook: Hook, api: Api, pods: str):
    shown = api.request("POST", pods, pod("it", memory="4Gi"), query={"dryRun": "All"})
    assert SLOT in shown["spec"]["containers"][0]["resources"]["limits"]
    assert api.items(pods) == []


def test_changes_of_a_pod_do_not_reach_the_webhook(hook: Hook, api: Api, pods: str):
    api.create(pods, pod("it", memory="4Gi"))
    before = hook.counts()
    api.patch(f"{pods}/it", {"metadata": {"labels": {"a": "b"}}})
    api.patch(f"{pods}/it/status", {"status": {"message": "hello"}})
    api.delete(f"{pods}/it", gracePeriodSeconds=0)
    assert hook.counts() == before


def test_asked_again_after_another_webhook_it_changes_nothing_more(hook: Hook, api: Api, pods: str):
    other = webhook_configuration(SETTINGS, Dialects(), hook.bundle())
    other["metadata"]["name"] = "zz-after-ours"
    webhook = other["webhooks"][0]
    webhook["name"] = "label.example.com"
    webhook["clientConfig"]["service"]["path"] = "/label"
    api.create(WEBHOOKS, other)
    try:
        until(lambda: "labels" in api.create(pods, pod(memory="1Gi"))["metadata"])
        before = hook.counts()
        made = api.create(pods, pod(memory="4Gi"))
        after = hook.counts()
    finally:
        api.delete(f"{WEBHOOKS}/zz-after-ours")
    assert made["spec"]["containers"][0]["resources"]["limits"] == {MEMORY: "4Gi", SLOT: "1"}
    assert len(made["spec"]["containers"][0]["env"]) == 1
    assert after["mutated"] - before["mutated"] == 1
    assert after["unchanged"] - before.get("unchanged", 0) == 1


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
def test_pods_of_controllers_are_changed(hook: Hook, api: Api, namespace: str, pods: str, kind: str):
    labels = {"app": "it"}
    template = {"metadata": {"labels": labels}, "spec": pod(memory="4Gi")["spec"]}
    if kind == "Job":
        path, spec = f"/apis/batch/v1/namespaces/{namespace}/jobs", {"template": template, "parallelism": 2}
        template["spec"]["restartPolicy"] = "Never"
    else:
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    api.create(path, {"metadata": {"name": "it"}, "spec": spec})
    until(lambda: len(api.items(pods)) == 2)
    for each in api.items(pods):
        assert each["spec"]["containers"][0]["resources"]["limits"][SLOT] == "1"
        assert each["spec"]["schedulerName"] == "cotenant"


def test_a_restricted_namespace_takes_the_changed_pod(hook: Hook, api: Api, namespace: str, pods: str):
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": level}})
    assert "violates PodSecurity" in refusal(api, pods, pod(memory="4Gi"))
    body = pod(memory="4Gi")
    body["spec"]["containers"][0]["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    made = api.create(pods, body)
    assert SLOT in made["spec"]["containers"][0]["resources"]["limits"]


def test_odd_bodies_are_answered_and_the_server_lives(hook: Hook, api: Api, pods: str):
    review = {"KIND": "AdmissionReview", "apiversion": "admission.k8s.io/v1"}
    resource = {"Group": "", "Version": "v1", "Resource": "pods"}
    odd = {"UID": "u", "Operation": "CREATE", "resource": resource, "OBJECT": pod("it", memory="4Gi")}
    status, answer = hook.ask("POST", "/mutate", json.dumps({**review, "Request": odd}).encode())
    assert status == 200
    assert json.loads(answer)["response"]["patchType"] == "JSONPatch"
    for body in (
        b"",
        b"{",
        b"[]",
        b"\xff\x00",
        b'{"a":' * 50_000,
        json.dumps({**review, "request": []}).encode(),
    ):
        status, answer = hook.ask("POST", "/mutate", body)
        assert status == 400
        assert answer.decode().strip()
    with contextlib.suppress(OSError):  # it may hang up before all of it was sent
        assert hook.ask("POST", "/mutate", b" " * (4 * 2**20))[0] == 413
    api.create(pods, pod(memory="4Gi"))


def test_a_bundle_that_is_reset_by_hand_is_mended(hook: Hook, api: Api, pods: str):
    before = api.get(f"{WEBHOOKS}/cotenant")
    path = "/webhooks/0/clientConfig/caBundle"
    strangers = api.get("/api/v1/namespaces/default/configmaps/kube-root-ca.crt")["data"]["ca.crt"]
    for step in (
        {"op": "remove", "path": path},
        {"op": "replace", "path": path, "value": base64.b64encode(strangers.encode()).decode()},
    ):
        api.patch(f"{WEBHOOKS}/cotenant", [step], "json")
        until(lambda: hook.bundle() == hook.kept().bundle, 10)
        until(lambda: _created(api, pods), 10)
    after = api.get(f"{WEBHOOKS}/cotenant")
    assert after["webhooks"] == before["webhooks"]
    # A whole configuration that is applied anew, as by an upgrade, is mended in the same way.
    fresh = webhook_configuration(SETTINGS, Dialects(nvidia=Nvidia(enabled=True)))
    api.replace(f"{WEBHOOKS}/cotenant", {**fresh, "metadata": after["metadata"]})
    until(lambda: hook.bundle() == hook.kept().bundle, 10)
    until(lambda: _created(api, pods), 10)


class Creator:
    """Creates GPU pods, some dozens a second, until it is stopped."""

    def __init__(self, api: Api, pods: str) -> None:
        self.made, self.lost = 0, list[str]()
        self._api, self._pods = api, pods
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._create)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _create(self) -> None:
        while not self._stop.wait(0.02):
            try:
                self._api.create(self._pods, pod(memory="1Gi"))
                self.made += 1
            except Refused as refused:
                self.lost.append(str(refused))
        self._api.close()


def test_no_pod_is_lost_while_certificates_and_authorities_change(installed: Hook, api: Api, pods: str):
    """A certificate lives for 12 seconds; its authority for 120, of which 70 are over. Every question meets the newest."""
    wanted = CertificatePolicy(
        ("none",), ("none",), timedelta(seconds=12), timedelta(seconds=120), timedelta(seconds=1)
    )
    old = renewed(CertificateSet(), wanted, datetime.now(UTC) - timedelta(seconds=70))
    forget(api)
    secrets = SECRET.rsplit("/", 1)[0]
    api.create(secrets, {"metadata": {"name": "cotenant-certificates"}, "data": to_data(old)})
    installed.start(webhook={"certificate_lifetime": 12.0, "authority_lifetime": 120.0})
    seen: dict[str, set[bytes]] = {"served": set(), "authorities": set(), "bundles": set()}
    try:
        with Creator(api, pods) as creator:
            end = time.monotonic() + 45
            while time.monotonic() < end:
                kept = installed.kept()
                seen["served"].add(kept.serving.certificate)
                seen["authorities"].add(kept.authority.certificate)
                seen["bundles"].add(installed.bundle())
                time.sleep(0.2)
    finally:
        installed.process.stop()
        forget(api)
    assert creator.lost == []
    assert creator.made > 100
    assert len(seen["served"]) >= 4
    assert len(seen["authorities"]) == 2
    assert len(seen["bundles"]) >= 2


def test_no_pod_is_lost_while_the_authoritys_key_is_lost(hook: Hook, api: Api, pods: str):
    with Creator(api, pods) as creator:
        until(lambda: creator.made > 0)
        first = hook.kept().authority.certificate
        api.patch(SECRET, {"data": {"ca.key": None}})
        until(lambda: hook.kept().authority.certificate != first)
        api.patch(SECRET, {"data": {"tls.crt": None}})
        until(lambda: bool(hook.kept().serving.certificate))
        until(lambda: is_signed(hook.kept().serving.certificate, hook.kept().authority.certificate))
        time.sleep(2)
    assert creator.lost == []


@pytest.mark.parametrize("step", ["_write", "_publish", "_use"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_server_killed_while_it_makes_the_certificates_is_followed_by_one_that_finishes(
    installed: Hook, api: Api, pods: str, when: str, step: str
):
    path = "/webhooks/0/clientConfig/caBundle"
    forget(api)
    api.patch(f"{WEBHOOKS}/cotenant", [{"op": "add", "path": path, "value": ""}], "json")
    installed.start(wait=False, dies_at=[when, step])
    until(lambda: not installed.process.running)
    assert installed.process.process is not None
    assert installed.process.process.returncode == -9
    try:
        installed.start()
        kept = installed.kept()
        assert installed.bundle() == kept.bundle
        assert len(x509.load_pem_x509_certificates(kept.bundle)) == 1
        until(lambda: _created(api, pods))
    finally:
        installed.process.stop()


def test_the_secret_holds_what_is_promised(hook: Hook, api: Api):
    secret = api.get(SECRET)
    assert secret["type"] == "Opaque"
    assert {"ca.crt", "ca.key", "tls.crt", "tls.key", "scheduler.crt", "scheduler.key"} <= set(secret["data"])
    scheduler = x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["scheduler.crt"]))
    assert scheduler.subject.rfc4514_string() == "CN=system:cotenant-scheduler"

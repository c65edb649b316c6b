"""Cotenant installed from the chart, with all its parts as pods on the testbed's node.

The node has no registry: the images lie there under the names that the chart gives them. It has no kube-proxy
and no DNS: the scheduler is told an address where a small proxy follows the one Service that it asks.
"""

import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from cluster import chart
from cluster.chart import NAMESPACE, helm
from cluster.testbed import images, places, pythonimage
from cluster.testbed.api import Api, Object, Refused
from cluster.testbed.cluster import Cluster
from cluster.testbed.component import Component
from packaging.requirements import Requirement

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
REQUIRED = tuple(
    Requirement(text).name
    for extra in ("cluster", "scaling")
    for text in PROJECT["optional-dependencies"][extra]
    if not text.startswith("cotenant")
)
"""An image has what is named, and what that requires."""

IMAGE = "cotenant.dev/cotenant:0.1.0"
BUILT = "COTENANT_IMAGE"
"""The variable that names a file with this image, as `podman save` writes it."""
SCHEDULER = f"registry.k8s.io/kube-scheduler:v{places.version()}"
EXTENDER_ADDRESS = "10.96.0.45"
EXTENDER = f"https://{EXTENDER_ADDRESS}"
CARDS = "2x80GiB"
STANDIN = Path("/run/cotenant/standin/state")
KEPT_BY_HELM = {
    "customresourcedefinitions.apiextensions.k8s.io /gpuscalers.cotenant.dev",
    "apiservices.apiregistration.k8s.io /v1alpha1.cotenant.dev",
}
"""Deleted with the definition would be every GpuScaler: that is for a person to do."""
OF_EVERY_NAMESPACE = {"default", "kube-root-ca.crt"}
PARTS = (
    ("deployments", "cotenant-server"),
    ("deployments", "cotenant-scheduler"),
    ("daemonsets", "cotenant-agent"),
)


def prepare(cluster: Cluster) -> None:
    """Images, and the label by which the agent knows a GPU node; and no simulated cards of tests before."""
    shutil.rmtree("/run/cotenant", ignore_errors=True)
    chart.make_namespace(cluster.api)
    for name, make in {IMAGE: _own_image, SCHEDULER: _scheduler_image}.items():
        if not cluster.node.has_image(name):
            cluster.node.add_image(make())
    label = {"metadata": {"labels": {"cotenant.dev/gpu": "true"}}}
    cluster.api.patch(f"/api/v1/nodes/{cluster.node.name}", label)


def _own_image() -> Path:
    """What a builder made of the Containerfile, if somebody names it; else one of this machine's files."""
    built = os.environ.get(BUILT)
    if built:
        return Path(built)
    return pythonimage.write(places.STATE / "cotenant.tar", IMAGE, ["cotenant", *REQUIRED])


def _scheduler_image() -> Path:
    files = {"/usr/bin/kube-scheduler": places.binary("kube-scheduler").resolve()}
    return images.write(places.STATE / "scheduler.tar", SCHEDULER, files, environment={"PATH": "/usr/bin"})


@contextmanager
def service_proxy(cluster: Cluster) -> Iterator[None]:
    subprocess.run(["ip", "address", "replace", f"{EXTENDER_ADDRESS}/32", "dev", "cni0"], check=True)
    plane = cluster.control_plane
    pair = plane.credentials("service-proxy", ["system:masters"])
    arguments = [NAMESPACE, "cotenant-extender", EXTENDER_ADDRESS, "443", plane.host]
    files = [plane.authority.pair.certificate, pair.certificate, pair.key]
    command = [sys.executable, "-m", "cluster.cotenant.serviceproxy", *arguments, *files]
    proxy = Component("service-proxy-for-pods", command)
    proxy.ready = lambda: "listening" in proxy.tail()
    proxy.start()
    proxy.wait()
    try:
        yield
    finally:
        proxy.stop()


def access(cluster: Cluster) -> tuple[str, str]:
    return f"--namespace={NAMESPACE}", f"--kubeconfig={cluster.control_plane.kubeconfig()}"


def values(cards: str = CARDS) -> tuple[str, ...]:
    """All that differs from the chart's own."""
    return f"--set=settings.agent.simulate={cards}", f"--set=scheduler.extenderUrl={EXTENDER}"


@contextmanager
def by_helm(cluster: Cluster, *more: str) -> Iterator[None]:
    """`more`: further options of Helm."""
    helm("install", "cotenant", str(chart.CHART), *values(), *more, *access(cluster))
    try:
        until_ready(cluster.api)
        yield
    finally:
        uninstall(cluster)
        clear(cluster)


def uninstall(cluster: Cluster) -> None:
    helm("uninstall", "cotenant", "--ignore-not-found", "--wait", "--timeout=90s", *access(cluster))


@contextmanager
def by_kubectl(cluster: Cluster) -> Iterator[None]:
    """deploy/cotenant.yaml with the same two differences, and a scheduler of the cluster's version, as its head says.

    The namespace stays, since its end takes long.
    """
    text = deploy_text(CARDS)
    cluster.kubectl("apply", "-f", "-", manifest=text)
    try:
        until_ready(cluster.api)
        yield
    finally:
        mine = [each for each in yaml.safe_load_all(text) if each and each["kind"] != "Namespace"]
        cluster.kubectl("delete", "--timeout=90s", "-f", "-", manifest=yaml.safe_dump_all(mine))
        clear(cluster)


def deploy_text(cards: str) -> str:
    """deploy/cotenant.yaml with simulated cards, the extender's address and the cluster's scheduler."""
    text = (chart.CHART.parents[1] / "deploy" / "cotenant.yaml").read_text()
    text = text.replace('    mode = "enforce"\n', f'    mode = "enforce"\n    simulate = "{cards}"\n')
    text = text.replace(f"https://cotenant-extender.{NAMESPACE}.svc", EXTENDER)
    return re.sub(r"registry\.k8s\.io/kube-scheduler:v\S+", SCHEDULER, text)


def clear(cluster: Cluster) -> None:
    """What servers made, what Helm keeps, and what the agent wrote on the node, for the tests that come after."""
    definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpuscalers.cotenant.dev"
    for path in (
        definition,
        f"/api/v1/namespaces/{NAMESPACE}/secrets/cotenant-certificates",
        f"/api/v1/namespaces/{NAMESPACE}/secrets/cotenant-agent-certificate",
        f"/api/v1/namespaces/{NAMESPACE}/configmaps/cotenant-ca",
        f"/api/v1/namespaces/{NAMESPACE}/configmaps/cotenant-statistics",
        f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/cotenant-extender",
        f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/cotenant-scheduler",
    ):
        try:
            cluster.api.delete(path)
        except Refused as refused:
            if refused.code != 404:
                raise
    cluster.api.until_gone(definition)
    path = f"/api/v1/nodes/{cluster.node.name}/status"
    shown = cluster.api.get(path)["status"]["capacity"]
    gone = {
        name: None for name in shown if name.partition("/")[0] in {"cotenant.dev", "aliyun.com", "volcano.sh"}
    }
    condition = {"$patch": "delete", "type": "cotenant.dev/GPUsHealthy"}
    status = {"capacity": gone, "conditions": [condition]}
    body = {"metadata": {"annotations": {"cotenant.dev/gpus": None}}, "status": status}
    cluster.api.patch(path, body, kind="strategic")


def everything(api: Api) -> set[str]:
    """All that the API server knows, by kind and name, and what nodes show; without pods, their events, and what every
    namespace gets a moment after it was created.
    """
    named = [(each["preferredVersion"]["groupVersion"], each["name"]) for each in api.get("/apis")["groups"]]
    groups = [("/api/v1", ""), *((f"/apis/{version}", f".{name}") for version, name in named)]
    found = set()
    for path, suffix in groups:
        for kind in api.get(path)["resources"]:
            name = kind["name"]
            if (
                "list" in kind["verbs"]
                and "/" not in name
                and name not in {"pods", "events", "componentstatuses"}
            ):
                for each in api.items(f"{path}/{name}"):
                    meta = each["metadata"]
                    if meta.get("namespace") != "kube-node-lease" and meta["name"] not in OF_EVERY_NAMESPACE:
                        found.add(f"{name}{suffix} {meta.get('namespace', '')}/{meta['name']}")
    for node in api.items("/api/v1/nodes"):
        conditions = [each["type"] for each in node["status"].get("conditions", ())]
        shown = [*node["status"]["capacity"], *node["metadata"].get("annotations", {}), *conditions]
        found |= {f"{node['metadata']['name']}: {each}" for each in shown}
    return found


def until_ready(api: Api, seconds: float = 120) -> None:
    for kind, name in PARTS:
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/{kind}/{name}"
        try:
            api.until(path, _is_ready, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{what_pods_say(api)}") from None


def _is_ready(seen: Object) -> bool:
    status, generation = seen.get("status", {}), seen["metadata"]["generation"]
    wanted = status.get("desiredNumberScheduled", seen["spec"].get("replicas"))
    ready = status.get("readyReplicas", status.get("numberReady"))
    updated = status.get("updatedReplicas", status.get("updatedNumberScheduled"))
    return bool(wanted) and wanted == ready == updated and status.get("observedGeneration") == generation


def verify_certificates(api: Api, seconds: float = 120) -> None:
    """As the chart's PodMonitors do: each pod by its address, with the authority in the ConfigMap and the name of a Service.

    The kubelet takes a minute or so until it mounts a Secret that was created after the pod.
    """
    authority = api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/cotenant-ca")["data"]["ca.crt"]
    scraper = ssl.create_default_context(cadata=authority)
    for component, port, service in (("server", 8443, "cotenant-webhook"), ("agent", 8889, "cotenant-agent")):
        label = f"{chart.COMPONENT}={component}"
        pods = api.items(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector=label)
        assert pods
        for pod in [each for each in pods if "deletionTimestamp" not in each["metadata"]]:
            _verify((pod["status"]["podIP"], port), scraper, f"{service}.{NAMESPACE}.svc", seconds)


def _verify(address: tuple[str, int], scraper: ssl.SSLContext, name: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            with (
                socket.create_connection(address, timeout=5) as plain,
                scraper.wrap_socket(plain, server_hostname=name) as connection,
            ):
                connection.sendall(
                    f"GET /metrics HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode()
                )
                assert connection.recv(100).startswith(b"HTTP/1.1 200")
        except ssl.SSLCertVerificationError:
            if time.monotonic() > end:
                raise
            time.sleep(1)
        else:
            return


def what_pods_say(api: Api) -> str:
    said = []
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    for each in api.items(pods):
        name = each["metadata"]["name"]
        said.append(f"--- {name}: {each['status'].get('containerStatuses')}")
        try:
            said.append(str(api.get(f"{pods}/{name}/log"))[-3000:])
        except Refused as refused:
            said.append(str(refused))
    events = api.items(f"/api/v1/namespaces/{NAMESPACE}/events")
    return "\n".join([*said, *(f"{each['reason']}: {each['message']}" for each in events[-20:])])

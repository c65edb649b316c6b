"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler, each a process that a test may stop or kill."""

import http.client
import json
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import places
from .api import Api, Refused
from .certificates import Authority, Pair
from .component import Component, answers
from .init import API_ADDRESS

FOLDER = places.STATE / "control-plane"
ETCD = "127.0.0.1:2379"
PORTS = {"kube-controller-manager": 10257, "kube-scheduler": 10259}
GOGC = "400"
"""Go's garbage collector runs at five times the live memory instead of at twice: the processes are small and live for minutes."""
SERVICE_NAMES = (
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)


class ControlPlane:
    """One a testbed, since its addresses are fixed; another one side by side is another testbed."""

    host = API_ADDRESS
    server = f"https://{API_ADDRESS}"

    def __init__(self, extra: Mapping[str, Sequence[str]] | None = None) -> None:
        """`extra`: flags by component, for feature gates and the like."""
        self._extra = dict(extra or {})
        self.times: dict[str, float] = {}
        self.authority = Authority(FOLDER / "certificates", "ca")
        self.service_accounts = Authority(FOLDER / "certificates", "service-accounts").pair
        self.api = self.client("admin", groups=["system:masters"])
        self.etcd = self._component(
            "etcd", self._etcd(), answers(http.client.HTTPConnection(ETCD), "/health")
        )
        self.apiserver = self._component("kube-apiserver", self._apiserver(), self._serves)
        self.controller_manager = self._component("kube-controller-manager", self._controller_manager())
        self.scheduler = self._component("kube-scheduler", self._scheduler({}))

    def start(self) -> None:
        begun = time.monotonic()
        for component in (self.etcd, self.apiserver):
            component.start()
        for component in (self.etcd, self.apiserver):
            component.wait()
            self.times[component.name] = time.monotonic() - begun
        for component in (self.controller_manager, self.scheduler):
            component.start()
        for component in (self.controller_manager, self.scheduler):
            component.wait()
            self.times[component.name] = time.monotonic() - begun

    def stop(self) -> None:
        for component in (self.scheduler, self.controller_manager, self.apiserver, self.etcd):
            component.stop()
        shutil.rmtree(FOLDER / "etcd", ignore_errors=True)

    def schedule_with(self, **configuration: Any) -> None:
        """Starts kube-scheduler anew with these keys of KubeSchedulerConfiguration: `extenders=`, `profiles=` ..."""
        self.scheduler.stop()
        self.scheduler.command = [str(part) for part in self._scheduler(configuration)]
        self.scheduler.start()
        self.scheduler.wait()

    def client(self, user: str, groups: Sequence[str] = ()) -> Api:
        """Any user there is, with a certificate: what RBAC gives them is the test's to say."""
        return Api(API_ADDRESS, self.authority.pair.certificate, self.credentials(user, groups))

    def credentials(self, user: str, groups: Sequence[str] = ()) -> Pair:
        return self.authority.issue(user.replace(":", "-"), user=user, groups=groups)

    def kubeconfig(self, user: str = "admin", groups: Sequence[str] = ("system:masters",)) -> Path:
        """A file with certificates and no secrets elsewhere, as people have it."""
        pair = self.credentials(user, groups)
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "testbed",
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
            "clusters": [
                {
                    "name": "testbed",
                    "cluster": {
                        "server": self.server,
                        "certificate-authority": str(self.authority.pair.certificate),
                    },
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {"client-certificate": str(pair.certificate), "client-key": str(pair.key)},
                }
            ],
        }
        return _write(f"{user.replace(':', '-')}.kubeconfig", content)

    def kubectl(self, *arguments: str, manifest: str | None = None) -> str:
        """As a person would; slower than `api`."""
        done = subprocess.run(
            [places.binary("kubectl"), "--kubeconfig", self.kubeconfig(), *arguments],
            input=manifest,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def _component(
        self, name: str, command: Sequence[object], ready: Callable[[], bool] | None = None
    ) -> Component:
        return Component(
            name,
            command,
            ready=ready or answers(_unverified(PORTS[name]), "/healthz"),
            environment={"GOGC": GOGC},
        )

    def _serves(self) -> bool:
        try:
            return bool(self.api.get("/readyz") == "ok")
        except (OSError, Refused, http.client.HTTPException):
            return False

    def _etcd(self) -> list[object]:
        return [
            places.binary("etcd"),
            f"--data-dir={FOLDER / 'etcd'}",
            f"--listen-client-urls=http://{ETCD}",
            f"--advertise-client-urls=http://{ETCD}",
            "--listen-peer-urls=http://127.0.0.1:2380",
            "--unsafe-no-fsync",
            "--log-level=warn",
            "--quota-backend-bytes=4294967296",
            *self._extra.get("etcd", ()),
        ]

    def _apiserver(self) -> list[object]:
        serving = self.authority.issue(
            "kube-apiserver", user="kube-apiserver", names=SERVICE_NAMES, addresses=[API_ADDRESS, "127.0.0.1"]
        )
        kubelet = self.credentials("kube-apiserver-kubelet-client", ["system:masters"])
        front = Authority(FOLDER / "certificates", "front-proxy-ca")
        proxy = front.issue("front-proxy-client", user="front-proxy-client")
        return [
            places.binary("kube-apiserver"),
            f"--etcd-servers=http://{ETCD}",
            f"--bind-address={API_ADDRESS}",
            f"--advertise-address={API_ADDRESS}",
            "--secure-port=443",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}",
            f"--client-ca-file={self.authority.pair.certificate}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--delete-collection-workers=8",
            # It taints each new node until a controller finds it ready, which costs 10 ms a node: too long for 5,000.
            "--disable-admission-plugins=TaintNodesByCondition",
            "--allow-privileged=true",
            # Webhooks with a `service:` reference go straight to the endpoints: there is no kube-proxy.
            "--enable-aggregator-routing=true",
            f"--kubelet-client-certificate={kubelet.certificate}",
            f"--kubelet-client-key={kubelet.key}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={self.service_accounts.certificate}",
            f"--service-account-signing-key-file={self.service_accounts.key}",
            f"--requestheader-client-ca-file={front.pair.certificate}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={proxy.certificate}",
            f"--proxy-client-key-file={proxy.key}",
            *self._extra.get("kube-apiserver", ()),
        ]

    def _controller_manager(self) -> list[object]:
        kubeconfig = self.kubeconfig("system:kube-controller-manager", ())
        return [
            places.binary("kube-controller-manager"),
            f"--kubeconfig={kubeconfig}",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self.service_accounts.key}",
            f"--root-ca-file={self.authority.pair.certificate}",
            # Hollow nodes send no heartbeats, and a controller that writes to each of 5,000 nodes would be measured too.
            "--node-monitor-grace-period=24h",
            "--controllers=*,-ttl-controller",
            "--kube-api-qps=1000",
            "--kube-api-burst=1000",
            *self._extra.get("kube-controller-manager", ()),
        ]

    def _scheduler(self, configuration: Mapping[str, Any]) -> list[object]:
        connection = {
            "kubeconfig": str(self.kubeconfig("system:kube-scheduler", ())),
            "qps": 5000,
            "burst": 5000,
        }
        content = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": connection,
            **configuration,
        }
        return [
            places.binary("kube-scheduler"),
            f"--config={_write('kube-scheduler.yaml', content)}",
            # Its own count of what it tried is for tests to read.
            "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
            *self._extra.get("kube-scheduler", ()),
        ]


def _write(name: str, content: Mapping[str, Any]) -> Path:
    path = FOLDER / name
    path.write_text(json.dumps(content, indent=1))
    return path


def _unverified(port: int) -> http.client.HTTPSConnection:
    """Health is asked of a certificate that the component made for itself at its start."""
    return http.client.HTTPSConnection("127.0.0.1", port, context=ssl._create_unverified_context(), timeout=2)

"""etcd and kube-apiserver on loopback ports: a control plane in its smallest form, ready in a few seconds, whose parts
a test may kill, stop and restart. No root and no namespaces are needed, so these tests run everywhere.
"""

import base64
import contextlib
import ctypes
import json
import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from pathlib import Path

from cluster.testbed import places
from cluster.testbed.certificates import Authority, Pair

READY = 60.0


def missing() -> str:
    """Why there is no control plane here, in a line for whoever reads the report; empty if there is one."""
    if not places.binary("kube-apiserver").exists():
        return f"no kube-apiserver in {places.kubernetes_folder()}: `make testbed` builds it"
    return ""


def unused_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


_prctl = ctypes.CDLL(None).prctl
_PR_SET_PDEATHSIG = 1


def end_with_the_tests() -> None:
    """However they end: nobody tidies up after a kill -9."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    def __init__(
        self, name: str, command: list, folder: Path, health: str, context: ssl.SSLContext | None
    ) -> None:
        self.name, self.command, self.health, self.context = (
            name,
            [str(part) for part in command],
            health,
            context,
        )
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_the_tests,
            )

    def wait(self) -> None:
        ends = time.monotonic() + READY
        while not self._healthy():
            if self.process.poll() is not None or time.monotonic() > ends:
                raise AssertionError(f"{self.name} did not start:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.05)

    def _healthy(self) -> bool:
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(self.health, timeout=2, context=self.context).status == 200
        return False

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.kill()


class ControlPlane:
    """One etcd, and as many API servers on it as are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "certificates", "ca")
        self.accounts = Authority(folder / "certificates", "service-accounts").pair
        self.serving = self.authority.issue(
            "serving", user="kube-apiserver", names=["kube"], addresses=["127.0.0.1"]
        )
        self.admin = self.authority.issue("admin", user="admin", groups=["system:masters"])
        self.client_port, peer = unused_ports(2)
        self.etcd = Process(
            "etcd", self._etcd(peer), folder, f"http://127.0.0.1:{self.client_port}/health", None
        )
        self.servers: list[Process] = []

    def add_server(self) -> tuple[Process, str]:
        """A started API server, not yet ready, and its address."""
        (port,) = unused_ports(1)
        context = ssl.create_default_context(cafile=str(self.authority.pair.certificate))
        context.load_cert_chain(self.admin.certificate, self.admin.key)
        url = f"https://127.0.0.1:{port}"
        name = f"kube-apiserver-{len(self.servers)}"
        server = Process(name, self._apiserver(port), self.folder, f"{url}/readyz", context)
        self.servers.append(server)
        server.start()
        return server, url

    def stop(self) -> None:
        for process in (*self.servers, self.etcd):
            process.stop()

    def compact(self) -> None:
        """Makes etcd forget all past states, as it does by itself every five minutes."""
        newest = self._ask_etcd("kv/range", {"key": "AA=="})["header"]["revision"]
        self._ask_etcd("kv/compaction", {"revision": newest, "physical": True})

    def _ask_etcd(self, path: str, body: dict) -> dict:
        url = f"http://127.0.0.1:{self.client_port}/v3/{path}"
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=10) as answer:
            return json.load(answer)

    def kubeconfig(
        self, url: str, user: dict | None = None, cluster: dict | None = None, **context: str
    ) -> Path:
        """As the administrator, unless `user` says otherwise."""
        user = user if user is not None else certificate_files(self.admin)
        trusted = {"certificate-authority": str(self.authority.pair.certificate)}
        content = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", **context}}],
            "clusters": [
                {"name": "test", "cluster": {"server": url, **(trusted if cluster is None else cluster)}}
            ],
            "users": [{"name": "test", "user": user}],
        }
        path = self.folder / f"kubeconfig-{time.monotonic_ns()}"
        path.write_text(json.dumps(content))
        return path

    def _etcd(self, peer: int) -> list:
        return [
            places.binary("etcd"),
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{self.client_port}",
            f"--advertise-client-urls=http://127.0.0.1:{self.client_port}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _apiserver(self, port: int) -> list:
        return [
            places.binary("kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{self.client_port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=192.0.2.1",
            "--endpoint-reconciler-type=none",  # nobody reaches it by its service
            f"--secure-port={port}",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--tls-cert-file={self.serving.certificate}",
            f"--tls-private-key-file={self.serving.key}",
            f"--client-ca-file={self.authority.pair.certificate}",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
            "--service-account-issuer=https://kube",
            f"--service-account-key-file={self.accounts.certificate}",
            f"--service-account-signing-key-file={self.accounts.key}",
        ]


def certificate_files(pair: Pair) -> dict:
    return {"client-certificate": str(pair.certificate), "client-key": str(pair.key)}


def certificate_data(pair: Pair) -> dict:
    return {
        "client-certificate-data": base64.b64encode(pair.certificate.read_bytes()).decode(),
        "client-key-data": base64.b64encode(pair.key.read_bytes()).decode(),
    }

"""An agent that supervises the real MPS control daemon on simulated GPUs, as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

import mpsdaemon
from kube.apiserver import unused_ports

from cotenant.hardware.mps.control import MpsError
from cotenant.hardware.mps.place import Place

KUBECONFIG = """
current-context: x
contexts: [{{name: x, context: {{cluster: x}}}}]
clusters: [{{name: x, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
"""


class Process:
    """`cotenant agent` on two simulated GPUs, without an API server."""

    def __init__(self, mps: mpsdaemon.Daemons, *, words: tuple[str, ...] = (), **settings: str) -> None:
        self.port, nobody = unused_ports(2)
        kubeconfig = mps.folder / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG.format(port=nobody))
        (mps.folder / "kubelet" / "device-plugins").mkdir(parents=True, exist_ok=True)
        environ = {
            "PATH": mps.server_path(),
            "NODE_NAME": "n1",
            "COTENANT__KUBECONFIG": str(kubeconfig),
            "COTENANT__AGENT__ADDRESS": "127.0.0.1",
            "COTENANT__AGENT__PORT": str(self.port),
            "COTENANT__AGENT__SLOTS": str(mps.folder / "s"),
            "COTENANT__AGENT__KUBELET": str(mps.folder / "kubelet"),
            "COTENANT__AGENT__SIMULATE": "2x16GiB",
            "COTENANT__MPS__DAEMONS": "node",
            "COTENANT__MPS__PROGRAM": str(mps.program),
            "COTENANT__MPS__SHARED_MEMORY": "/dev/shm",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        } | {f"COTENANT__MPS__{name.upper()}": value for name, value in settings.items()}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cotenant.cli.main", "agent", *words],
            env=environ,
            stderr=subprocess.PIPE,
            text=True,
        )

    def fetch(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError:
            return ""

    def until_ready(self, words: str = "[+]mps") -> None:
        """Until /readyz has these words; a busy machine starts an agent slowly."""
        ends = time.monotonic() + 90
        while words not in (said := self.fetch("/readyz")):
            assert time.monotonic() < ends, said or "it does not serve"
            time.sleep(0.05)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


def shown(mps: mpsdaemon.Daemons, place: Place) -> tuple[object, ...] | None:
    """The daemon's defaults; None while it is not ready to answer."""
    control = mps.control(place)
    try:
        return control.percentage(), control.memory(0), control.memory(1), control.memory(2)
    except MpsError:
        return None

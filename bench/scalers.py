"""Measures one server with a thousand GpuScalers that read their queues from one Redis every 2 s.

    python -m bench.scalers [--scalers 1000] [--seconds 60]

On a real control plane: each GpuScaler has a Deployment of its own, whose pods get their GPUs on hollow nodes
by our extender. First nothing happens; then the server is killed and started again; then a tenth of the
queues has traffic. Which objects the server writes is read from the API server's own audit log.
"""

from __future__ import annotations

import argparse
import http.client
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path.insert(0, str(TESTS))

from cluster.cotenant.gpunodes import GIB, gpu_node  # noqa: E402
from cluster.testbed import hollow, places  # noqa: E402
from cluster.testbed.api import Refused  # noqa: E402
from cluster.testbed.component import Component, answers  # noqa: E402
from cluster.testbed.controlplane import ControlPlane  # noqa: E402
from signals.servers import Redis  # noqa: E402

from bench import scaler_queues  # noqa: E402
from bench.figures import Figure, record  # noqa: E402
from bench.kubernetes import running, schedule_by  # noqa: E402
from bench.scaler_watch import POLL, USER, Phase, Watched, flags, logged, quiet, until, written  # noqa: E402
from cotenant.dialects import names  # noqa: E402
from cotenant.kube.scaler.definition import definition  # noqa: E402
from cotenant.kube.settings import Settings  # noqa: E402
from cotenant.settings.loading import read_settings  # noqa: E402

NAMESPACE, SYSTEM = "bench", "cotenant-system"
EXTENDER = 8444
CARDS, CARD, SIZE = 8, 80, 8
"""GPUs of a node, and the GiB of a GPU and of a replica."""
BUSY_PART = 0.1
PROMISED_ROUND, PROMISED_MIB = 1.0, 300.0
"""Seconds of any round; the memory of the server at any time."""


def deployment(name: str) -> dict[str, Any]:
    amounts = {names.GPU_MEMORY: f"{SIZE}Gi", names.GPU_SLOT: "1"}
    container = {"name": "main", "image": "none", "resources": {"limits": amounts, "requests": amounts}}
    pod = {
        "schedulerName": "cotenant",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "tolerations": [{"operator": "Exists"}],
    }
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {
        "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


def scaler(name: str, url: str, *, released: bool) -> dict[str, Any]:
    """Returns a GpuScaler; `released`: it has a threshold, and goes to zero after it."""
    waiting, working = scaler_queues.waiting(name), scaler_queues.working(name)
    spec: dict[str, Any] = {
        "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "replicas": {"min": 0 if released else 1, "max": 8},
        "backlog": {
            "queue": {"redis": {"url": url, "list": waiting}, "inFlight": {"list": working}},
            "processingTime": {"fixed": f"{scaler_queues.TAKES}s"},
        },
    }
    if released:
        spec["scaleDownThreshold"] = "2h"
    kind = {"apiVersion": "cotenant.dev/v1alpha1", "kind": "GpuScaler"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


class Bench:
    def __init__(self, plane: ControlPlane, url: str, port: int, count: int) -> None:
        self.plane, self.api, self.url, self.port = plane, plane.api, url, port
        self.names = [f"scaler-{at:05d}" for at in range(count)]
        self.settings = read_settings(Settings, {"namespace": SYSTEM}, {})
        self.scalers = f"/apis/cotenant.dev/v1alpha1/namespaces/{NAMESPACE}/gpuscalers"
        self.deployments = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"

    def prepare(self) -> None:
        """Creates what an installation has, and nodes with room for twice the replicas."""
        for name in (NAMESPACE, SYSTEM):
            self.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
            self.api.until(f"/api/v1/namespaces/{name}/serviceaccounts/default", lambda _: True)
        lease = {"metadata": {"name": self.settings.leader.lease}, "spec": {}}
        self.api.create(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases", lease)
        crd = {"metadata": {"name": "gpuscalers.cotenant.dev"}, "spec": definition()}
        self.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        until("GpuScalers are served", self._serves, 60)
        nodes = max(2, 2 * len(self.names) // (CARDS * CARD // SIZE))
        hollow.add(self.api, (gpu_node(f"hollow-{at:03d}", [CARD * GIB] * CARDS) for at in range(nodes)))

    def _serves(self) -> bool:
        try:
            return not self.api.items(self.scalers)
        except Refused:  # not known yet, or its storage is being made
            return False

    def populate(self) -> None:
        def make(at: int) -> None:
            self.api.create(self.deployments, deployment(self.names[at]))
            self.api.create(self.scalers, scaler(self.names[at], self.url, released=at % 2 == 0))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(make, range(len(self.names))))

    def ready(self) -> dict[str, int]:
        """Returns the ready replicas of each workload."""
        items = self.api.items(self.deployments, resourceVersion="0")
        return {each["metadata"]["name"]: each["status"].get("readyReplicas", 0) for each in items}

    def decided(self) -> int:
        """Counts the scalers that are Ready: their queue has been read."""
        conditions = [each.get("status", {}).get("conditions", ()) for each in self.api.items(self.scalers)]
        ready = {"type": "Ready", "status": "True"}
        return sum(any(ready.items() <= each.items() for each in found) for found in conditions)

    def server(self) -> Component:
        file = places.STATE / "bench.toml"
        kubeconfig = self.plane.kubeconfig(USER, ["system:masters"])
        file.write_text(
            f'namespace = "{SYSTEM}"\nkubeconfig = "{kubeconfig}"\n'
            f'[server]\naddress = "127.0.0.1"\n[scaler]\npoll = "{POLL:g}s"\nallow_loopback = true\n'
        )
        connection = http.client.HTTPConnection("127.0.0.1", EXTENDER, timeout=5)
        code = "from cotenant.cli.main import main; main()"
        command = [sys.executable, "-c", code, "server", "--settings", file]
        return Component("cotenant-server", command, ready=answers(connection, "/healthz"))

    def kubelet(self) -> Component:
        pair = self.plane.credentials("hollow-kubelet", ["system:masters"])
        trusted = self.plane.authority.pair.certificate
        module = [sys.executable, "-m", "cluster.testbed.hollowkubelet"]
        component = Component(
            "hollow-kubelet", [*module, self.plane.host, trusted, pair.certificate, pair.key]
        )
        component.ready = lambda: "following" in component.tail()
        return component


def measure(bench: Bench, seconds: float) -> int:
    count, busy = len(bench.names), bench.names[:: round(1 / BUSY_PART)]
    with running(bench.server()) as server, running(bench.kubelet()):
        seen = Watched(server)
        schedule_by(bench.plane, bench.settings, EXTENDER)
        bench.populate()
        took = until("all ready", lambda: sum(bench.ready().values()) == count, 600)
        print(f"-- {count} workloads are ready {took:.0f} s after they were made", flush=True)
        until("all decided", lambda: bench.decided() == count, 120)
        took = until("nothing is written", quiet(30), 900)
        print(f"-- nothing was written for 30 s, {took:.0f} s after that", flush=True)
        still = seen.phase(seconds)
        _print("nothing happens", still)

        server.kill()
        since = logged()
        server.start()
        server.wait(120)
        took = until("a round", lambda: seen.round() is not None, 120)
        print(f"-- killed; the first round ended {took:.0f} s after the start", flush=True)
        time.sleep(seconds / 2)
        again = written(since)
        print(f"   written since: {_count(again)}")

        with scaler_queues.Traffic(bench.port, busy, bench.ready) as traffic:
            moving = seen.phase(2 * seconds)
        _print(f"traffic in {len(busy)} queues, {traffic.done} of {traffic.sent} messages done", moving)
    others = {name for _, name in moving.written if name[: len(busy[0])] not in set(busy)}
    touched = {name for what, name in moving.written if what == "gpuscalers/status"}
    scaled = sum(count for (what, _), count in moving.written.items() if what == "deployments/scale")
    _record(count, len(busy), still, again, moving, others, len(touched), scaled)
    longest = max(*still.rounds, *moving.rounds)
    return int(
        longest > PROMISED_ROUND
        or max(still.memory, moving.memory) > PROMISED_MIB
        or still.written.total() > 0
        or again.total() > 0
        or bool(others)
        or not scaled
    )


def _record(
    count: int,
    busy: int,
    still: Phase,
    again: Counter[tuple[str, str]],
    moving: Phase,
    others: set[str],
    touched: int,
    scaled: int,
) -> None:
    bound, most = f"at most {PROMISED_ROUND:g} s", max(still.memory, moving.memory)
    rows = [
        ("a round, nothing happens, median / longest", _rounds(still), bound),
        (f"a round, traffic in {busy} queues, median / longest", _rounds(moving), bound),
        ("memory of the server, at most", f"{most:.0f} MiB", f"{PROMISED_MIB:g} MiB"),
        ("CPU of the server, nothing happens / traffic", f"{still.cpu:.0%} / {moving.cpu:.0%} of a core", ""),
        ("objects written while nothing happens", f"{still.written.total()}", "0"),
        ("objects written after kill -9 and a restart", f"{again.total()}", "0"),
        (f"scalers written while {busy} queues have traffic", f"{touched}", f"at most {busy}"),
        ("objects of other scalers written meanwhile", f"{len(others)}", "0"),
        ("changes of replicas meanwhile", f"{scaled}", ""),
    ]
    figures = [Figure(what, found, limit, f"{count:,} scalers") for what, found, limit in rows]
    for each in figures:
        print(f"{each.what:58} {each.measured:>22}  {each.promised}")
    record("bench.scalers", figures, f"Kubernetes {places.version()}")


def _rounds(phase: Phase) -> str:
    return f"{statistics.median(phase.rounds):.2f} / {max(phase.rounds):.2f} s"


def _count(found: Mapping[tuple[str, str], int]) -> str:
    kinds = Counter[str]()
    for (what, _), count in found.items():
        kinds[what] += count
    return ", ".join(f"{count} {what}" for what, count in kinds.most_common()) or "nothing"


def _print(what: str, phase: Phase) -> None:
    print(f"-- {what}")
    print(f"   {len(phase.rounds)} rounds {_rounds(phase)}, CPU {phase.cpu:.0%}, {phase.memory:.0f} MiB")
    print(f"   written: {_count(phase.written)}", flush=True)


def main(arguments: Sequence[str]) -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m bench.scalers", description=__doc__, formatter_class=raw)
    parser.add_argument("--scalers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0, help="that nothing happens; traffic: twice")
    asked = parser.parse_args(arguments)
    if not places.inside():
        inside = [sys.executable, "-m", "cluster.testbed", "run", "--", sys.executable, "-m", "bench.scalers"]
        env = {**os.environ, "PYTHONPATH": str(TESTS)}
        return subprocess.run([*inside, *arguments], env=env, check=False).returncode
    plane = ControlPlane({"kube-apiserver": flags()})
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        queues = Redis(Path(folder))
        stack.callback(queues.stop)
        queues.start()
        stack.callback(plane.stop)
        plane.start()
        bench = Bench(plane, queues.url, queues.port, asked.scalers)
        bench.prepare()
        return measure(bench, asked.seconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Measures the extender against one that does nothing, on a real control plane with hollow nodes.

    python -m bench.extender [--nodes 100 1000 5000] [--measured 500] [--turns 11]

For each size: how long choose, filter, prioritize and bind take with the names of all nodes in the body, and
how many pods a second the real kube-scheduler binds with our extender and with the null extender (Go, says
yes to everything, binds by the same one POST), in turns. Both are configured as the chart does it, but the
null extender filters and does not choose. A machine that others use as well is slower at one time than at
another (by a factor of two here, from one minute to the next): so the two of a turn are compared, turns are
short, and the median of them counts. Each node has eight GPUs and four running pods.

What each process spends of the CPU for a pod is printed, too: where all cores are busy, the sum decides how
many pods a second there are, and it depends less on what else the machine does.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path.insert(0, str(TESTS))

from cluster.cotenant.gpunodes import GIB, gpu_node, uuid_of  # noqa: E402
from cluster.cotenant.measuring import attempts  # noqa: E402
from cluster.testbed import binaries, hollow, places  # noqa: E402
from cluster.testbed.component import Component, answers  # noqa: E402
from cluster.testbed.controlplane import ControlPlane  # noqa: E402

from bench.figures import Figure, record  # noqa: E402
from bench.kubernetes import running, schedule_by  # noqa: E402
from cotenant.core.grant import Share  # noqa: E402
from cotenant.dialects import names  # noqa: E402
from cotenant.dialects.pod_grant import PodGrant, SlotGrant, write_grant  # noqa: E402
from cotenant.kube.api.auth.kubeconfig import read  # noqa: E402
from cotenant.kube.api.client import Client, Selection  # noqa: E402
from cotenant.kube.api.patches import Guard  # noqa: E402
from cotenant.kube.api.resources import PODS  # noqa: E402
from cotenant.kube.extender.serving import CHOOSE  # noqa: E402
from cotenant.kube.settings import Settings  # noqa: E402
from cotenant.settings.loading import read_settings  # noqa: E402

CARDS = 8
CARD = 80 * GIB
PODS_A_NODE = 4
CALLS = 300
AT_ONCE = 32
NAMESPACE, SYSTEM = "bench", "cotenant-system"
OURS, NULL = 8444, 8888
PROMISED = {"choose p50": 3.0, "choose p99": 30.0, "filter p50": 3.0, "memory": 350.0, "pods": 0.9}
"""Milliseconds at 5,000 nodes; MB; the share of the null extender's pods per second."""


def pod(name: str, size: int, scheduler: str = "cotenant") -> dict[str, Any]:
    amounts = {names.GPU_MEMORY: f"{size}Gi", names.GPU_SLOT: "1"}
    container = {"name": "main", "image": "none", "resources": {"limits": amounts, "requests": amounts}}
    return {
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "tolerations": [{"operator": "Exists"}],
        },
    }


@dataclass(frozen=True)
class Spent:
    """CPU milliseconds by process, and TCP connections that were made."""

    cpu: Mapping[str, float]
    connections: int

    def for_each(self, before: Spent, pods: int) -> Spent:
        cpu = {name: (now - before.cpu[name]) / pods for name, now in self.cpu.items()}
        return Spent(cpu, self.connections - before.connections)


class Bench:
    def __init__(self, plane: ControlPlane, *, pods_without_gpu: bool = False) -> None:
        """`pods_without_gpu`: the extender ranks nodes for these, too."""
        self.plane = plane
        self.access = read([plane.kubeconfig()]).access({})
        extender = {"pods_without_gpu": pods_without_gpu}
        self.settings = read_settings(Settings, {"namespace": SYSTEM, "extender": extender}, {})
        self.random = random.Random(1)
        self.repeated = 0
        """Attempts of kube-scheduler beyond one for each pod: filter promised what bind did not find."""

    def prepare(self) -> None:
        """Creates the namespaces, and the Lease that an installation has."""
        api = self.plane.api
        for name in (NAMESPACE, SYSTEM):
            api.create("/api/v1/namespaces", {"metadata": {"name": name}})
            api.until(f"/api/v1/namespaces/{name}/serviceaccounts/default", lambda _: True)
        lease = {"metadata": {"name": self.settings.leader.lease}, "spec": {}}
        api.create(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases", lease)

    async def populate(self, count: int) -> list[str]:
        """Creates the nodes, and running pods with a grant each."""
        all_names = [f"hollow-{number:05d}" for number in range(count)]
        hollow.add(self.plane.api, (gpu_node(name, [CARD] * CARDS) for name in all_names))
        async with Client(self.access) as client:
            await _all(self._run_one(client, name, at) for name in all_names for at in range(PODS_A_NODE))
        return all_names

    async def _run_one(self, client: Client, node: str, at: int) -> None:
        size = self.random.choice([2, 4, 8, 16, 24, 40])
        made = await client.create(PODS, pod(f"{node}-{at}", size, "nobody"), NAMESPACE)
        meta = made.metadata
        share = Share(uuid_of(node, self.random.randrange(CARDS) if at > 1 else at), size * GIB)
        grant = PodGrant(meta.uid, (SlotGrant("main", (share,)),))
        guard = Guard(meta.uid, meta.resource_version)
        await client.bind(
            meta.name, NAMESPACE, node, guard=guard, annotations={names.GRANT: write_grant(grant)}, within=60
        )
        running = {"status": {"phase": "Running"}}
        await client.merge_patch(PODS, meta.name, running, NAMESPACE, subresource="status")

    def server(self) -> Component:
        file = places.STATE / "bench.toml"
        file.write_text(
            f'namespace = "{SYSTEM}"\nkubeconfig = "{self.plane.kubeconfig()}"\n'
            '[server]\naddress = "127.0.0.1"\n'
            f"[extender]\npods_without_gpu = {str(self.settings.extender.pods_without_gpu).lower()}\n"
        )
        connection = http.client.HTTPConnection("127.0.0.1", OURS, timeout=5)
        code = "from cotenant.cli.main import main; main()"
        return Component(
            "cotenant-server",
            [sys.executable, "-c", code, "server", "--settings", file],
            ready=answers(connection, "/healthz"),
        )

    def null(self) -> Component:
        pair = self.plane.credentials("null-extender", ["system:masters"])
        trusted = self.plane.authority.pair.certificate
        flags = [f"--ca={trusted}", f"--certificate={pair.certificate}", f"--key={pair.key}"]
        connection = http.client.HTTPConnection("127.0.0.1", NULL, timeout=5)
        return Component(
            "null-extender", [binaries.null_extender(), *flags], ready=answers(connection, "/healthz")
        )

    def spent(self, extender: Component) -> Spent:
        """Returns what was spent so far."""
        plane = self.plane
        all_ = {"API server": plane.apiserver, "kube-scheduler": plane.scheduler, "etcd": plane.etcd}
        cpu = {name: 1000 * _cpu(each) for name, each in {**all_, "extender": extender}.items()}
        return Spent(cpu, _connections())

    async def pods_a_second(self, port: int, count: int, extender: Component) -> tuple[float, Spent]:
        """Measures from the moment that kube-scheduler sees the pods to the last binding: the pods a second,
        and what was spent for each.
        """
        schedule_by(self.plane, self.settings, port, CHOOSE if port == OURS else "filter")
        async with Client(self.access) as client:
            listed = await client.list(PODS, Selection(NAMESPACE), newest=True)
            await asyncio.sleep(3)  # its caches are warm then, as they are in a running cluster
            self.plane.scheduler.pause()
            sizes = [self.random.choice([1, 2, 4, 8]) for _ in range(count)]
            await _all(
                client.create(PODS, pod(f"measured-{n}", size), NAMESPACE) for n, size in enumerate(sizes)
            )
            before = self.spent(extender)
            self.plane.scheduler.resume()
            took = await self._until_bound(client, listed.resource_version, count)
            spent = self.spent(extender).for_each(before, count)
        if port == OURS:
            self.repeated += int(attempts(self.plane)) - count
        self._clear()
        return count / took, spent

    async def _until_bound(self, client: Client, since: str, count: int) -> float:
        began, bound = time.perf_counter(), set[str]()
        watch = client.watch(PODS, Selection(NAMESPACE), resource_version=since, seconds=600)
        async for event in watch:
            if event.object is not None and event.object.spec.node_name:
                name = event.object.metadata.name
                if name.startswith("measured-"):
                    bound.add(name)
            if len(bound) == count:
                break
        await watch.aclose()
        return time.perf_counter() - began

    def _clear(self) -> None:
        api = self.plane.api
        for each in api.items(f"/api/v1/namespaces/{NAMESPACE}/pods"):
            if each["metadata"]["name"].startswith("measured-"):
                api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{each['metadata']['name']}")

    async def verbs(self, all_names: Sequence[str]) -> dict[str, list[float]]:
        """Measures the milliseconds of each call, one after another, as kube-scheduler calls: after choose
        comes the bind of that pod.
        """
        took: dict[str, list[float]] = {CHOOSE: [], "filter": [], "prioritize": [], "bind": []}
        connection = http.client.HTTPConnection("127.0.0.1", OURS, timeout=30)
        for verb in ("filter", "prioritize"):
            for number in range(CALLS):
                asked = pod(f"asked-{number}", self.random.choice([1, 2, 4, 8, 16, 40]))
                asked["metadata"]["uid"] = f"asked-{number}"
                took[verb].append(_timed(connection, verb, self._about(asked, all_names))[0])
        async with Client(self.access) as client:
            for number in range(CALLS):
                asked = pod(f"measured-b{number}", self.random.choice([1, 2, 4, 8]), "nobody")
                made = await client.create(PODS, asked, NAMESPACE)
                asked["metadata"]["uid"] = made.metadata.uid
                spent, answer = _timed(connection, CHOOSE, self._about(asked, all_names))
                took[CHOOSE].append(spent)
                body = json.dumps(
                    {
                        "PodName": made.metadata.name,
                        "PodNamespace": NAMESPACE,
                        "PodUID": made.metadata.uid,
                        "Node": answer["NodeNames"][0],
                    }
                ).encode()
                took["bind"].append(_timed(connection, "bind", body)[0])
        self._clear()
        return took

    def _about(self, asked: dict[str, Any], all_names: Sequence[str]) -> bytes:
        """Encodes a question about a pod, with all nodes in random order."""
        mixed = list(all_names)
        self.random.shuffle(mixed)
        return json.dumps({"Pod": asked, "Nodes": None, "NodeNames": mixed}).encode()


def _timed(connection: http.client.HTTPConnection, verb: str, body: bytes) -> tuple[float, Any]:
    """Returns the milliseconds and the answer."""
    began = time.perf_counter()
    connection.request("POST", f"/{verb}", body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    said = response.read()
    took = (time.perf_counter() - began) * 1000
    answer = json.loads(said)
    if response.status != 200 or (isinstance(answer, dict) and answer.get("Error")):
        raise SystemExit(f"{verb}: {response.status} {str(answer)[:300]}")
    return took, answer


async def _all(work: Iterable[Awaitable[Any]]) -> None:
    """Awaits all, a few at a time."""
    waiting: Iterator[Awaitable[Any]] = iter(work)

    async def worker() -> None:
        for each in waiting:
            await each

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


def _memory(component: Component) -> tuple[float, float]:
    """Returns the MB now and at most."""
    status = Path(f"/proc/{component.pid}/status").read_text()
    figures = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return int(figures["VmRSS"].split()[0]) / 1000, int(figures["VmHWM"].split()[0]) / 1000


def _cpu(component: Component) -> float:
    """Returns the CPU seconds used."""
    fields = Path(f"/proc/{component.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _connections() -> int:
    """Returns how many TCP connections were made so far in this network namespace."""
    names, figures = (
        line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Tcp:")
    )
    return int(figures[names.index("ActiveOpens")])


async def measure(count: int, measured: int, turns: int) -> dict[str, float]:
    plane = ControlPlane()
    took: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {"ours": [], "null": []}
    spent: dict[str, list[Spent]] = {"ours": [], "null": []}
    now, most = 0.0, 0.0
    try:
        plane.start()
        bench = Bench(plane)
        bench.prepare()
        print(f"-- {count} nodes, {count * PODS_A_NODE} pods: filling the cluster", flush=True)
        all_names = await bench.populate(count)
        for turn in range(turns):
            for whose in ("ours", "null") if turn % 2 == 0 else ("null", "ours"):
                with running(bench.null() if whose == "null" else bench.server()) as extender:
                    if whose == "ours":
                        took = took or await bench.verbs(all_names)
                    port = NULL if whose == "null" else OURS
                    rate, each_spent = await bench.pods_a_second(port, measured, extender)
                    rates[whose].append(rate)
                    spent[whose].append(each_spent)
                    if whose == "ours":
                        now, most = max(now, _memory(extender)[0]), max(most, _memory(extender)[1])
            last = "   ".join(f"{whose} {rate[-1]:.1f}" for whose, rate in rates.items())
            print(f"   turn {turn + 1} of {turns}: pods/s {last}", flush=True)
    finally:
        plane.stop()
    for verb, each in took.items():
        ranked = sorted(each)
        p50, p99 = statistics.median(ranked), ranked[int(len(ranked) * 0.99)]
        print(f"   {verb:<11} p50 {p50:7.2f} ms   p99 {p99:7.2f} ms   ({len(each)} calls)")
    _record(count, took, rates, most)
    ours, null = statistics.median(rates["ours"]), statistics.median(rates["null"])
    each = {name: "  ".join(f"{rate:.1f}" for rate in found) for name, found in rates.items()}
    print(f"   pods/s      ours {ours:.1f} ({each['ours']})   null {null:.1f} ({each['null']})")
    print(f"               {_beside(rates):.0%} of the null extender, {measured} pods each time")
    print(f"               {bench.repeated} attempts were repeated, of {measured * turns}")
    _print_spent(spent)
    print(f"   memory      {now:.0f} MB, {most:.0f} MB at most", flush=True)
    ranked = sorted(took[CHOOSE])
    return {
        "choose p50": statistics.median(ranked),
        "choose p99": ranked[int(len(ranked) * 0.99)],
        "filter p50": statistics.median(took["filter"]),
        "memory": most,
        "pods": _beside(rates),
    }


def _print_spent(spent: dict[str, list[Spent]]) -> None:
    for whose, turns in spent.items():
        cpu = {name: statistics.median(turn.cpu[name] for turn in turns) for name in turns[0].cpu}
        made = statistics.median(turn.connections for turn in turns)
        each = "   ".join(f"{name} {figure:.2f}" for name, figure in cpu.items())
        print(f"   CPU a pod   {whose}: {each}   sum {sum(cpu.values()):.2f} ms; {made:.0f} connections made")


def _beside(rates: dict[str, list[float]]) -> float:
    """Returns which part our pods a second are of the null extender's in the same turn."""
    return statistics.median(ours / null for ours, null in zip(rates["ours"], rates["null"], strict=True))


def _record(count: int, took: dict[str, list[float]], rates: dict[str, list[float]], most: float) -> None:
    promised = {
        CHOOSE: f"{PROMISED['choose p50']:g} / {PROMISED['choose p99']:g} ms",
        "filter": f"{PROMISED['filter p50']:g} ms",
    }
    rows: list[tuple[str, str, str]] = []
    for verb, each in took.items():
        ranked = sorted(each)
        p50, p99 = statistics.median(ranked), ranked[int(len(ranked) * 0.99)]
        rows.append((f"{verb}, p50 / p99", f"{p50:.1f} / {p99:.1f} ms", promised.get(verb, "")))
    beside, promise = f"{_beside(rates):.0%}", f"{PROMISED['pods']:.0%}"
    rows += [
        ("pods a second through kube-scheduler", f"{statistics.median(rates['ours']):.0f}", ""),
        ("the same, beside the extender that does nothing", beside, promise),
        ("memory of the server, at most", f"{most:.0f} MB", f"{PROMISED['memory']:g} MB"),
    ]
    figures = [Figure(what, found, limit, f"{count:,} nodes") for what, found, limit in rows]
    record("bench.extender", figures, f"Kubernetes {places.version()}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.extender", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000, 5000])
    parser.add_argument("--measured", type=int, help="pods each time; 500, and 400 from 1000 nodes on")
    parser.add_argument("--turns", type=int, help="how often each is measured; 11, and 5 from 1000 nodes on")
    asked = parser.parse_args()
    if not places.inside():
        binaries.null_extender()
        inside = [sys.executable, "-m", "cluster.testbed", "run", "--"]
        command = [*inside, sys.executable, "-m", "bench.extender", *sys.argv[1:]]
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode
    kept = True
    for count in asked.nodes:
        measured = asked.measured or (500 if count < 1000 else 400)
        turns = asked.turns or (11 if count < 1000 else 5)
        found = asyncio.run(measure(count, measured, turns))
        kept &= found["pods"] >= PROMISED["pods"]
        kept &= all(found[name] <= most for name, most in PROMISED.items() if name != "pods")
    print("promised: " + ", ".join(f"{name} {figure:g}" for name, figure in PROMISED.items()))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

"""Measures the agent of a node with 8 GPUs and 48 containers on each: scrapes, memory, CPU time at rest.

    python -m bench.agent [--cards 8] [--containers 48] [--seconds 60]

The agent is a process of its own, on a real API server with a pod for each container. Each container is a
process that holds memory of a simulated GPU through the real shim, in a cgroup as the kubelet makes it. The
kubelet is played by the one of the agent's tests. cgroups need root.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path.insert(0, str(TESTS))

from kube.agent.kubelet import Kubelet  # noqa: E402
from kube.apiserver import ControlPlane, missing, unused_ports  # noqa: E402

from bench.figures import Figure, record  # noqa: E402
from cotenant.core.grant import Share  # noqa: E402
from cotenant.dialects import names  # noqa: E402
from cotenant.dialects.pod_grant import PodGrant, SlotGrant, write_grant  # noqa: E402
from cotenant.hardware import libraries, slots  # noqa: E402
from cotenant.hardware.enforcers.shim import Shim  # noqa: E402
from cotenant.hardware.standin import driver as standin  # noqa: E402
from cotenant.kube.agent.cards.driver import cards_of  # noqa: E402
from cotenant.kube.agent.settings import AgentSettings  # noqa: E402
from cotenant.kube.agent.slots.node_slots import NodeSlots  # noqa: E402
from cotenant.kube.agent.slots.owner import SlotOwner  # noqa: E402
from cotenant.kube.api.auth import kubeconfig  # noqa: E402
from cotenant.kube.api.client import Client  # noqa: E402
from cotenant.kube.api.resources import NAMESPACES, NODES, PODS  # noqa: E402
from cotenant.kube.settings import Settings  # noqa: E402

NODE, NAMESPACE, CONTAINER = "n1", "bench", "main"
GRANTED, HELD = 3 << 29, 1 << 30
"""Bytes that each container may have, and that it allocates; its context comes on top."""
SCRAPES = 50
EVERY = 30.0
"""Seconds between two scrapes at rest, as the chart's monitors have it."""
PROMISED_MS, PROMISED_MIB, PROMISED_PERCENT = 50.0, 100.0, 1.0
CGROUPS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))


class Tenant(NamedTuple):
    """A container."""

    name: str
    uid: str
    id: str
    """Of the container."""
    key: str
    device: int
    share: Share


@contextmanager
def cgroups(tenants: Sequence[Tenant]) -> Iterator[dict[str, Path]]:
    """Makes the cgroup of each container, by its UID; they must be empty at the end."""
    base = (
        next(each for each in CGROUPS if (each / "cgroup.procs").exists()) / f"cotenant-bench-{os.getpid()}"
    )
    made = {each.uid: base / "kubepods" / "burstable" / f"pod{each.uid}" / each.id for each in tenants}
    try:
        for path in made.values():
            path.mkdir(parents=True)
        yield made
    finally:
        for folder, _, _ in os.walk(base, topdown=False):
            for _ in range(50):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
                    break
                time.sleep(0.1)


def pod(name: str) -> dict[str, Any]:
    amounts = {names.GPU_MEMORY: str(GRANTED), names.GPU_SLOT: "1"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d9", "uid": "u", "controller": True}
    container = {"name": CONTAINER, "image": "none", "resources": {"limits": amounts, "requests": amounts}}
    meta = {"name": name, "labels": {"pod-template-hash": "7d9"}, "ownerReferences": [owner]}
    return {"metadata": meta, "spec": {"nodeName": NODE, "containers": [container]}}


async def start_pods(client: Client, gpus: Sequence[str], each: int) -> list[Tenant]:
    """Creates a pod for each container, with its grant, running."""
    for namespace in (NAMESPACE, Settings().namespace):
        await client.create(NAMESPACES, {"metadata": {"name": namespace}})
    await client.create(NODES, {"metadata": {"name": NODE}})
    at_once = asyncio.Semaphore(16)

    async def start(number: int) -> Tenant:
        async with at_once:
            made = await client.create(PODS, pod(f"web-7d9-{number:04d}"), NAMESPACE)
            device = number // each
            tenant = Tenant(
                made.metadata.name,
                made.metadata.uid,
                uuid.uuid4().hex * 2,
                f"slot-{number:04d}",
                device,
                Share(gpus[device], GRANTED),
            )
            grant = write_grant(PodGrant(tenant.uid, (SlotGrant(CONTAINER, (tenant.share,)),)))
            await client.merge_patch(
                PODS, tenant.name, {"metadata": {"annotations": {names.GRANT: grant}}}, NAMESPACE
            )
            state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
            container = {
                "name": CONTAINER,
                "image": "none",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": state,
                "containerID": f"containerd://{tenant.id}",
            }
            status = {"phase": "Running", "containerStatuses": [container]}
            await client.merge_patch(PODS, tenant.name, {"status": status}, NAMESPACE, subresource="status")
            return tenant

    return list(await asyncio.gather(*map(start, range(len(gpus) * each))))


async def until_reported(client: Client, count: int) -> None:
    """Waits until the agent has written all that it has to say of these pods: then nothing is left to do."""
    end = time.monotonic() + 400
    while time.monotonic() < end:
        pods = (await client.list(PODS)).items or ()
        done = [
            pod
            for pod in pods
            if {names.GPU_IDLE, names.GPU_LIMIT_HELD} <= {each.type for each in pod.status.conditions}
        ]
        if len(done) == count:
            return
        await asyncio.sleep(3)
    sys.exit(f"the agent has not reported on all of {count} pods within 400 s: on {len(done)} of them")


@contextmanager
def holding(root: Path, state: Path, tenants: Sequence[Tenant], places: dict[str, Path]) -> Iterator[None]:
    """Makes the slots, and the processes that hold memory in them."""
    kept = NodeSlots(root, Shim(libraries.shim(), root))
    context = standin.context_bytes(state)
    for each in tenants:
        limits = slots.limits_of(each.uid, "enforce", (each.share,), lambda _: context)
        kept.make(each.key, SlotOwner(each.uid, NAMESPACE, each.name, CONTAINER), (each.share,), limits)
    program = compile_tenant(root)
    shared = {**standin.environment(state, os.environ), "LD_PRELOAD": str(libraries.shim())}
    with ExitStack() as stack:
        processes = []
        for each in tenants:
            process = subprocess.Popen(
                [program, str(places[each.uid]), str(each.device), str(HELD)],
                env={**shared, "COTENANT_SLOT": str(kept.folder(each.key))},
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            if (said := process.stdout.readline()) != "holds\n":
                sys.exit(f"a container could not take its memory: {said or process.wait()}")
        yield


def compile_tenant(folder: Path) -> Path:
    """Compiles the program that plays a container."""
    program = folder / "tenant"
    source = Path(__file__).with_name("agent_tenant.c")
    options = ["-O2", "-Wno-deprecated-non-prototype", "-o", str(program), str(source), "-ldl"]
    subprocess.run([sys.executable, "-m", "ziglang", "cc", *options], check=True)
    return program


class Agent:
    """The agent as a process."""

    def __init__(self, root: Path, kubelet: Path, config: Path, simulate: str) -> None:
        self.port = unused_ports(1)[0]
        own = {
            "NODE_NAME": NODE,
            "COTENANT__KUBECONFIG": str(config),
            "COTENANT__AGENT__ADDRESS": "127.0.0.1",
            "COTENANT__AGENT__PORT": str(self.port),
            "COTENANT__AGENT__SLOTS": str(root),
            "COTENANT__AGENT__KUBELET": str(kubelet),
            "COTENANT__AGENT__SIMULATE": simulate,
            "COTENANT__LOG_LEVEL": "warning",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cotenant.cli.main", "agent"], env={**os.environ, **own}
        )

    def scrape(self) -> tuple[float, str]:
        """Returns the seconds that it took, and the text."""
        began = time.perf_counter()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        return time.perf_counter() - began, text

    def settle(self, containers: int) -> None:
        """Waits until all is measured."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if self.scrape()[1].count("\ncotenant_container_info{") == containers:
                    self._calm_down()
                    return
            time.sleep(2)
        sys.exit(f"the agent did not measure {containers} containers within 60 s")

    def _calm_down(self) -> None:
        """Waits until it does less no longer: events of so many pods are written for minutes."""
        least, since, end = float("inf"), 0, time.monotonic() + 400
        while since < 3 and time.monotonic() < end:
            before = self.cpu()
            time.sleep(10)
            spent = self.cpu() - before
            since = 0 if spent < 0.9 * least else since + 1
            least = min(least, spent)

    def cpu(self) -> float:
        """Seconds of CPU time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss(self) -> float:
        """MiB now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def check_sums(text: str, gpus: Sequence[str], state: Path) -> None:
    """What containers use and what is outside is what the stand-in's own account says."""
    there = standin.StandIn(state)
    for gpu in gpus:
        lines = [line for line in text.splitlines() if f'uuid="{gpu}"' in line]
        total = sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith(("cotenant_container_memory_used_bytes", "cotenant_gpu_memory_outside_bytes"))
        )
        if total != there.used(gpu):
            sys.exit(f"{gpu}: {total:.0f} bytes are exported, the driver counts {there.used(gpu)}")


async def measured(options: argparse.Namespace, folder: Path, root: Path) -> list[tuple[Figure, bool]]:
    simulate, count = f"{options.cards}xA100-80GB", options.cards * options.containers
    found = cards_of(AgentSettings(slots=str(root), simulate=simulate)).simulation
    assert found is not None
    gpus = [card.uuid for card in standin.StandIn(found.state).cards()]
    with ExitStack() as stack:
        plane = ControlPlane(folder)
        stack.callback(plane.stop)
        plane.etcd.start()
        plane.etcd.wait()
        server, url = plane.add_server()
        server.wait()
        config = plane.kubeconfig(url)
        async with Client(kubeconfig.find({}, path=config)) as client:
            tenants = await start_pods(client, gpus, options.containers)
        async with playing_kubelet(tenants) as sockets:
            places = stack.enter_context(cgroups(tenants))
            stack.enter_context(holding(root, found.state, tenants, places))
            agent = Agent(root, sockets, config, simulate)
            stack.callback(agent.stop)
            async with Client(kubeconfig.find({}, path=config)) as client:
                await until_reported(client, count)
            return await asyncio.to_thread(figures, agent, count, options.seconds, gpus, found.state)


@asynccontextmanager
async def playing_kubelet(tenants: Sequence[Tenant]) -> AsyncIterator[Path]:
    """Serves registration and pod-resources; yields the kubelet's folder."""
    folder = Path(tempfile.mkdtemp(prefix="cot-"))
    kubelet = Kubelet(folder)
    kubelet.watches = True
    kubelet.holders = [(NAMESPACE, each.name, CONTAINER, [each.key]) for each in tenants]
    await kubelet.start()
    try:
        yield folder
    finally:
        await kubelet.stop()
        shutil.rmtree(folder)


def figures(
    agent: Agent, containers: int, seconds: float, gpus: Sequence[str], state: Path
) -> list[tuple[Figure, bool]]:
    agent.settle(containers)
    began = agent.cpu()
    scrapes = [agent.scrape() for _ in range(SCRAPES)]
    each = 1000 * (agent.cpu() - began) / SCRAPES
    text = scrapes[-1][1]
    check_sums(text, gpus, state)
    times = sorted(1000 * took for took, _ in scrapes)
    median, worst = statistics.median(times), times[-2]
    start, before = time.monotonic(), agent.cpu()
    while time.monotonic() - start < seconds:
        time.sleep(min(EVERY, seconds))
        agent.scrape()
    percent = 100 * (agent.cpu() - before) / (time.monotonic() - start)
    memory = agent.rss()
    series = sum(not line.startswith("#") for line in text.splitlines())
    return [
        (Figure("series of a scrape", f"{series:,}"), True),
        (Figure("a scrape, median", f"{median:.0f} ms", f"{PROMISED_MS:.0f} ms"), median < PROMISED_MS),
        (Figure("a scrape, 49th of 50", f"{worst:.0f} ms"), True),
        (Figure("CPU time of a scrape", f"{each:.0f} ms"), True),
        (Figure("memory (RSS)", f"{memory:.0f} MiB", f"{PROMISED_MIB:.0f} MiB"), memory < PROMISED_MIB),
        (
            Figure("CPU at rest, a scrape every 30 s", f"{percent:.2f} %", f"{PROMISED_PERCENT:.0f} %"),
            percent < PROMISED_PERCENT,
        ),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--containers", type=int, default=48, help="on each card")
    parser.add_argument("--seconds", type=float, default=60, help="of rest")
    options = parser.parse_args()
    if reason := missing():
        sys.exit(reason)
    if os.geteuid() != 0:
        sys.exit("cgroups need root")
    root = Path(tempfile.mkdtemp(prefix="cotenant-bench-", dir="/dev/shm"))
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(measured(options, Path(folder), root))
    finally:
        shutil.rmtree(root)
    print(f"{options.cards} GPUs x {options.containers} containers")
    for figure, _ in found:
        promised = f"promised: {figure.promised}" if figure.promised else ""
        print(f"  {figure.what:36} {figure.measured:>12}   {promised}")
    record("bench.agent", [figure for figure, _ in found])
    return 0 if all(kept for _, kept in found) else 1


if __name__ == "__main__":
    sys.exit(main())

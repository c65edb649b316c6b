"""A real Prometheus with four days of history, written by its own promtool: a cluster that nobody had to run.

Namespace `team` has, in Cotenant's series: a Deployment `web` whose second version runs since two days in three pods,
a StatefulSet `llm` of one pod on two GPUs, a DaemonSet `embed` whose kind no name tells, and a bare pod. In the DCGM
exporter's: a pod with a GPU of its own, two that share one by time-slicing, one that shares with another namespace, two that share one on a node whose
exporter counts by process, one with a MIG instance, and a GPU that nobody holds.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from signals.servers import Server

GIB, MIB = 1 << 30, 1 << 20
DAY, SCRAPE = 86400.0, 120.0
WEB, OLD = "7d9f8c6b5d", "68bd4c94d"

Level = Callable[[float], float]


def steady(size: float) -> Level:
    return lambda _age: size


class World:
    """The series of the cluster, by when each begins and ends."""

    def __init__(self, now: float) -> None:
        self.begin, self.end = now - 4 * DAY, now - SCRAPE
        self.lines: dict[str, list[str]] = {}

    def series(
        self, metric: str, labels: dict[str, str], level: Level, begin: float = 0.0, end: float = 4.0
    ) -> None:
        """Writes samples from one day of the history to another."""
        text = ",".join(f'{name}="{value}"' for name, value in labels.items())
        first, last = self.begin + begin * DAY, min(self.end, self.begin + end * DAY)
        lines = self.lines.setdefault(metric, [])
        at = first
        while at <= last:
            lines.append(f"{metric}{{{text}}} {level((at - first) / DAY):.0f} {at:.0f}")
            at += SCRAPE

    def container(
        self,
        pod: str,
        container: str,
        level: Level,
        limit: float,
        begin: float = 0.0,
        end: float = 4.0,
        uuid: str = "GPU-1",
    ) -> None:
        """Writes what an agent reports of a container: the peak since its start never falls."""
        highest = 0.0

        def peak(age: float) -> float:
            nonlocal highest
            highest = max(highest, level(age))
            return highest

        labels = {"namespace": "team", "pod": pod, "container": container, "uuid": uuid}
        self.series("cotenant_container_memory_peak_bytes", labels, peak, begin, end)
        self.series("cotenant_container_memory_limit_bytes", labels, steady(limit), begin, end)

    def info(self, pod: str, workload: str, kind: str, version: str, begin: float, end: float) -> None:
        labels = {"namespace": "team", "pod": pod, "container": "server", "workload": workload}
        labels |= {"workload_kind": kind, "version": version}
        self.series("cotenant_container_info", labels, steady(1), begin, end)

    def text(self) -> str:
        parts = [f"# TYPE {metric} gauge\n" + "\n".join(lines) for metric, lines in self.lines.items()]
        return "\n".join([*parts, "# EOF", ""])


def cluster(now: float) -> World:
    world = World(now)
    for number in range(2):  # a version that is gone, with a higher peak
        pod = f"web-{OLD}-aaaa{number}".replace("0", "b").replace("1", "c")
        world.container(pod, "server", steady(14 * GIB), 24 * GIB, 0, 2)
        world.info(pod, "web", "Deployment", OLD, 0, 2)
    for number, size in enumerate((10.0, 10.4, 9.8)):
        pod = f"web-{WEB}-x7k2{'pqr'[number]}"

        def level(age: float, size: float = size) -> float:
            return (size + (0.5 if 0.4 < age < 0.45 else 0.0)) * GIB

        world.container(pod, "server", level, 24 * GIB, 2 + 0.02 * number)
        world.info(pod, "web", "Deployment", WEB, 2, 4)
    for gpu, size in (("GPU-2", 30 * GIB), ("GPU-3", 20 * GIB)):
        world.container("llm-0", "server", steady(size), 20 * GIB, 0, 4, gpu)
    world.container("notebook", "main", steady(3 * GIB), 8 * GIB, 3.9)
    world.container("embed-x7k2p", "server", steady(2 * GIB), 8 * GIB)
    world.info("embed-x7k2p", "embed", "DaemonSet", "5f4", 0, 4)
    dcgm = "DCGM_FI_DEV_FB_USED"

    def gpu(uuid: str, used: float, begin: float = 0.0, **labels: str) -> None:
        own = {"Hostname": "node-1", "UUID": uuid, "gpu": uuid[-1], "modelName": "A100", **labels}
        world.series(dcgm, own, steady(used), begin)
        world.series("DCGM_FI_DEV_FB_FREE", own, steady(81920 - used), begin)

    def holder(pod: str) -> dict[str, str]:
        return {"exported_namespace": "team", "exported_pod": pod, "exported_container": "server"}

    exporter = {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-9xk2p", "container": "exporter"}
    for number, begin in enumerate((0.1, 0.2)):
        gpu(f"GPU-a{number}", 20000, begin, **exporter, **holder(f"web-{WEB}-x7k2{'pq'[number]}"))
    gpu("GPU-a2", 60000, 0.5, **exporter, **holder("sliced-0"))
    gpu("GPU-a2", 60000, 0.6, **exporter, **holder("sliced-1"))
    gpu("GPU-a6", 50000, 0.5, **exporter, **holder("host-0"))
    gpu("GPU-a6", 50000, 0.6, **exporter, **{**holder("guest-0"), "exported_namespace": "other"})
    both = {"Hostname": "node-2", "UUID": "GPU-a5", "gpu": "5", **exporter}
    world.series(dcgm, both, steady(33000), 0.3)
    for number, used in enumerate((12000, 20000)):
        own = {**both, **holder(f"turns-{number}"), "vgpu": str(number)}
        world.series(dcgm, own, steady(used), 0.4 + 0.1 * number)
        world.series("DCGM_FI_DEV_FB_FREE", own, steady(81920 - 33000), 0.4 + 0.1 * number)
    gpu("GPU-a3", 7000, 0.3, GPU_I_ID="3", GPU_I_PROFILE="1g.10gb", **exporter, **holder("mig-0"))
    gpu("GPU-a3", 9000, 0.3, GPU_I_ID="4", GPU_I_PROFILE="1g.10gb", **exporter, **holder("mig-1"))
    gpu("GPU-a0", 20000, **exporter)  # the same GPU once more, without a pod
    gpu("GPU-a4", 0, **exporter)
    return world


class Backfilled(Server):
    """Prometheus on blocks that promtool made; it scrapes nothing."""

    name = "prometheus"

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        super().__init__(folder)
        self.address = address
        self.now = time.time()
        text = folder / "history"
        text.write_text(cluster(self.now).text())
        promtool = self.program.path.with_name("promtool")
        subprocess.run(
            [promtool, "tsdb", "create-blocks-from", "openmetrics", text, folder / "data"],
            check=True,
            capture_output=True,
            env=self.program.environment or None,
        )

    def command(self) -> list[str]:
        (self.folder / "prometheus.yml").write_text("{}\n")
        return [
            str(self.program.path),
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address={self.address}:{self.port}",
            "--query.max-samples=20000",
        ]

    def answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((self.address, self.port)) == 0

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"

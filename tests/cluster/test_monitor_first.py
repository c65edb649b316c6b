"""docs/monitor-first.sh on a real kubelet, step by step, and what is seen after each.

Two model servers take turns on a simulated card; NVIDIA's plugin and DCGM exporter are played. Prometheus is real, and
the day before is written into it by its own promtool.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pages
import pytest
import yaml
from cluster import chart, installed
from cluster.cotenant import monitoring, timeslicing
from cluster.cotenant.dcgmexporter import FREE, USED, DcgmExporter, gpu_labels, pod_labels
from cluster.cotenant.manifests import MEMORY, container, pods_of
from cluster.testbed import places
from cluster.testbed.api import Object
from cluster.testbed.cluster import Cluster
from cluster.testbed.component import Component

from cotenant.core.quantity import parse_quantity
from cotenant.core.units import format_bytes
from cotenant.hardware import libraries
from cotenant.hardware.standin import driver as standin

SCRIPT = pages.ROOT / "docs" / "monitor-first.sh"
FOLDER = Path("/run/time-slicing")
CARD, TURNS = "1x8GiB", 4
WORKLOADS = {"batch": (2048, 128), "chat": (2048, 256)}
"""MiB of weights and of a request, by Deployment."""
CONTEXT = standin.CONTEXT_BYTES >> 20
ALL, MORE = 100_000, 1536
"""MiB of a job: all that there is, and more than was ever seen."""
MIB = 1 << 20
HOURS, SCRAPE = 30, 150.0
EXPORTER = {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-9xk2p", "container": "exporter"}
OFF = "nvidia.com/gpu.deploy.device-plugin"
AGENT = f"/api/v1/namespaces/{chart.NAMESPACE}/pods"


class Reader:
    """Somebody who takes the steps, in an empty folder, and looks at pods and logs."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        self.cluster, self.namespace, self.folder = cluster, namespace, folder
        tools = folder / "bin"
        tools.mkdir()
        own = f"#!{sys.executable}\nfrom cotenant.cli.main import main\n\nmain()\n"
        (tools / "cotenant").write_text(own)
        (tools / "cotenant").chmod(0o755)
        (tools / "kubectl").symlink_to(places.binary("kubectl"))
        (tools / "helm").symlink_to(places.helm())
        self._environ = {
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "KUBECONFIG": str(cluster.control_plane.kubeconfig()),
        }

    def takes(self, *words: str) -> str:
        """What a step printed."""
        done = subprocess.run(
            ["sh", str(SCRIPT), *words],
            cwd=self.folder,
            env=self._environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{words}: {done.returncode}\n{said}"
        return said

    def pod(self, workload: str) -> Object:
        """The one that runs, or is to run."""
        found = self.cluster.api.items(pods_of(self.namespace), labelSelector=f"app={workload}")
        (pod,) = [each for each in found if "deletionTimestamp" not in each["metadata"]]
        return pod

    def log(self, workload: str) -> list[str]:
        name = self.pod(workload)["metadata"]["name"]
        said = str(self.cluster.api.get(f"{pods_of(self.namespace)}/{name}/log"))
        return said.splitlines()

    def gives_job(self, workload: str, size: int) -> None:
        text = f"echo {size} > /tmp/job"
        self.cluster.kubectl("exec", "-n", self.namespace, f"deployment/{workload}", "--", "sh", "-c", text)

    def ends_job(self, workload: str) -> None:
        text = "import os; os.unlink('/tmp/job')"
        self.cluster.kubectl(
            "exec", "-n", self.namespace, f"deployment/{workload}", "--", "python", "-c", text
        )

    def until_said(self, workload: str, pattern: str, after: int = 0) -> str:
        """The first line so, of those after the first `after`."""

        def found() -> str:
            return next((each for each in self.log(workload)[after:] if re.search(pattern, each)), "")

        return until(found, lambda: f"{workload}: no {pattern!r} in {self.log(workload)[-5:]}")

    def goes_on(self, workload: str) -> None:
        """Serves three more requests, and fails none."""
        before = len(self.log(workload))
        until(lambda: len(self.log(workload)) >= before + 3, lambda: f"{workload} serves nothing")
        later = self.log(workload)[before:]
        assert all(re.fullmatch(r"request \d+: ok", each) for each in later), later

    def row(self, said: str, workload: str) -> list[str]:
        """The words of a pod's line in the last table."""
        name = self.pod(workload)["metadata"]["name"]
        return [each.split() for each in said.splitlines() if each.startswith(name)][-1]


def until(found: Callable[[], object], what: Callable[[], str], seconds: float = 60) -> str:
    end = time.monotonic() + seconds
    while True:
        if seen := found():
            return str(seen)
        assert time.monotonic() < end, what()
        time.sleep(0.3)


@pytest.fixture
def prometheus() -> Iterator[monitoring.Scraper]:
    try:
        made = monitoring.Scraper([], folder=places.STATE / "monitor-first")
    except monitoring.programs.CannotGet as missing:
        pytest.skip(str(missing))
    yield made
    if made.component.running:
        made.component.stop()


@pytest.fixture
def time_slicing(cluster: Cluster) -> Iterator[standin.StandIn]:
    """A node as GPU operator and GPU Feature Discovery leave it; the plugin goes when the node's label says so."""
    installed.prepare(cluster)
    FOLDER.mkdir(exist_ok=True)
    state = FOLDER / "state"
    standin.create(state, standin.parse_spec(CARD))
    words = [state, libraries.standin_folder(), TURNS]
    plugin = Component("time-slicing", [sys.executable, "-m", timeslicing.__name__, *words])
    plugin.ready = lambda: "registered" in plugin.tail()
    plugin.start()
    plugin.wait()
    node = f"/api/v1/nodes/{cluster.node.name}"
    labels = {"nvidia.com/gpu.count": "1", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
    cluster.api.patch(node, {"metadata": {"labels": {**labels, "cotenant.dev/gpu": None}}})
    cluster.api.until(node, lambda seen: seen["status"]["allocatable"].get("nvidia.com/gpu") == str(TURNS))
    ended = Event()

    def operate() -> None:
        while not ended.wait(0.3) and cluster.api.get(node)["metadata"]["labels"].get(OFF) != "false":
            pass
        plugin.stop()
        cluster.api.close()

    operator = Thread(target=operate)
    operator.start()
    yield standin.StandIn(state)
    ended.set()
    operator.join()
    gone = dict.fromkeys((*labels, OFF))
    cluster.api.patch(node, {"metadata": {"labels": {**gone, "cotenant.dev/gpu": "true"}}})
    cluster.api.patch(node, {"spec": {"unschedulable": None}})


@pytest.fixture
def reader(
    cluster: Cluster, namespace: str, time_slicing: standin.StandIn, tmp_path: Path
) -> Iterator[Reader]:
    for name, sizes in WORKLOADS.items():
        cluster.api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment(name, sizes))
    found = Reader(cluster, namespace, tmp_path)
    for name in WORKLOADS:
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
        cluster.api.until(path, lambda seen: seen.get("status", {}).get("readyReplicas") == 1)
        found.until_said(name, "request 1: ok")
    with installed.service_proxy(cluster):
        yield found
        for name in WORKLOADS:
            cluster.api.delete(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
        until(lambda: not cluster.api.items(pods_of(namespace)), lambda: "pods stay")
        installed.uninstall(cluster)
        installed.clear(cluster)


def deployment(name: str, sizes: tuple[int, int]) -> Object:
    body = container("server", installed.IMAGE, "model_server.py", **{timeslicing.RESOURCE: 1})
    body["command"] += [str(each) for each in sizes]
    labels = {"app": name}
    spec = {"containers": [body], "terminationGracePeriodSeconds": 0}
    return {
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def scraped(labels: dict[str, str], target: dict[str, str]) -> dict[str, str]:
    """As Prometheus stores them: what the target has too is renamed."""
    renamed = {f"exported_{key}" if key in target else key: value for key, value in labels.items()}
    return {**renamed, **target}


def the_day_before(reader: Reader, card: standin.StandInCard, target: dict[str, str]) -> str:
    """The pods that run now since half of the time, and one of each Deployment before them; both as they are today."""
    gpu = scraped(gpu_labels(card.uuid, 0, card.name, reader.cluster.node.name), target)
    end = time.time() - 60
    first = end - HOURS * 3600
    half = first + HOURS * 1800
    lines: dict[str, list[str]] = {USED: [], FREE: []}

    def write(metric: str, labels: dict[str, str], value: int, at: float) -> None:
        text = ",".join(f'{key}="{each}"' for key, each in labels.items())
        lines[metric].append(f"{metric}{{{text}}} {value} {at:.0f}")

    moments = [first + SCRAPE * number for number in range(int((end - first) / SCRAPE))]
    for turn, (name, (weights, request)) in enumerate(WORKLOADS.items()):
        pod = reader.pod(name)
        now = pod["metadata"]["name"]
        before = {**pod, "metadata": {**pod["metadata"], "name": f"{now[:-5]}bcdfg"}}
        for each, begin, stop in ((before, first + 3600, half), (pod, half, end)):
            own = gpu | scraped({**pod_labels(each), "vgpu": str(turn)}, target)
            for number, at in enumerate(moments):
                if begin <= at < stop:
                    used = weights + CONTEXT + (request if number % 7 == 0 else 0)
                    write(USED, own, used, at)
                    write(FREE, own, card.capacity // MIB - 2 * (weights + CONTEXT), at)
    for at in moments:
        write(USED, gpu, sum(weights + CONTEXT for weights, _ in WORKLOADS.values()), at)
    parts = [f"# TYPE {metric} gauge\n" + "\n".join(each) for metric, each in lines.items()]
    return "\n".join([*parts, "# EOF", ""])


def advised(reader: Reader) -> dict[str, int]:
    """MiB by Deployment, in the patches that `advise` wrote."""
    text = (reader.folder / f"gpu-memory-{reader.namespace}.yaml").read_text()
    found = {}
    for each in yaml.safe_load_all(text):
        (body,) = each["spec"]["template"]["spec"]["containers"]
        assert body["resources"]["limits"][timeslicing.RESOURCE] is None, "it asks for no turn any more"
        amount = parse_quantity(body["resources"]["limits"][MEMORY])
        assert amount is not None
        found[each["metadata"]["name"]] = int(amount) // MIB
    return found


def take_turns(reader: Reader) -> None:
    """Who shares is shown. A job that takes all breaks its neighbour."""
    said = reader.takes("watch", reader.namespace)
    assert re.search(rf"^{reader.cluster.node.name} +1 +time-slicing +{TURNS} ", said, re.MULTILINE), said
    for name in WORKLOADS:
        assert reader.row(said, name)[2:] == ["1", "<none>", "<none>"], "a turn, and no limit"
    reader.gives_job("batch", ALL)
    reader.until_said("batch", "job failed after .* out of memory")
    reader.until_said("chat", "request .* out of memory")
    reader.ends_job("batch")
    reader.until_said("batch", "job is done")
    reader.goes_on("chat")


def take_advice(reader: Reader, prometheus: monitoring.Scraper, driver: standin.StandIn) -> None:
    exporter = DcgmExporter(FOLDER / "state", reader.cluster.api, reader.cluster.node.name)
    target = {**EXPORTER, "instance": exporter.address, "job": "dcgm-exporter"}
    jobs = [
        {
            "job_name": "dcgm-exporter",
            "static_configs": [{"targets": [exporter.address], "labels": EXPORTER}],
        }
    ]
    exporter.start()
    try:
        (card,) = driver.cards()
        prometheus.backfill(the_day_before(reader, card, target))
        prometheus.component.start()
        prometheus.component.wait()
        prometheus.scrape(jobs)
        (weights, request), name = WORKLOADS["chat"], reader.pod("chat")["metadata"]["name"]
        own = f'{USED}{{exported_pod="{name}",instance="{exporter.address}"}}'
        fresh = f"{own} and timestamp({own}) > {time.time():.0f}"
        until(lambda: prometheus.query(fresh), lambda: str(prometheus.targets()))
        live = [value for _, value in prometheus.query(own)]
        assert live in ([weights + CONTEXT], [weights + CONTEXT + request]), "of its processes alone"
        said = reader.takes(
            "advise", reader.namespace, "--prometheus", prometheus.url, "--context", "testbed"
        )
    finally:
        exporter.stop()
    ran = 2 * len(WORKLOADS)
    assert f"{ran} pods share a GPU by time-slicing; the exporter counts each by its processes" in said
    found = advised(reader)
    for name, (weights, request) in WORKLOADS.items():
        peak = weights + CONTEXT + request
        assert 1.15 * peak <= found[name] <= 1.4 * peak, said
        (row,) = [
            line for line in said.splitlines() if line.startswith(f"{reader.namespace}/deployment/{name} ")
        ]
        assert " 2 " in row, "cold starts"


def install(reader: Reader) -> None:
    before = [reader.pod(name)["metadata"]["uid"] for name in WORKLOADS]
    reader.takes("install", *installed.values(CARD))
    agents = reader.cluster.api.items(AGENT, labelSelector=f"{chart.COMPONENT}=agent")
    assert not agents, "no node is Cotenant's yet"
    assert [reader.pod(name)["metadata"]["uid"] for name in WORKLOADS] == before
    said = reader.takes("move", reader.cluster.node.name)
    assert re.search(rf"^{reader.cluster.node.name} +\S+ +0/8 ", said, re.MULTILINE), said
    node = reader.cluster.api.get(f"/api/v1/nodes/{reader.cluster.node.name}")
    assert node["status"]["allocatable"][timeslicing.RESOURCE] == "0"
    assert "unschedulable" not in node["spec"]


def observe(reader: Reader) -> None:
    reader.takes("observe", reader.namespace)
    sizes = advised(reader)
    for name in WORKLOADS:
        limits = reader.pod(name)["spec"]["containers"][0]["resources"]["limits"]
        assert parse_quantity(limits[MEMORY]) == sizes[name] * MIB
        assert timeslicing.RESOURCE not in limits
        reader.goes_on(name)
    reader.gives_job("batch", MORE)
    reader.until_said("batch", f"job took {MORE} MiB")
    over = f"more than its limit of {format_bytes(sizes['batch'] * MIB)} "
    name = reader.pod("batch")["metadata"]["name"]
    reader.cluster.api.until(f"{pods_of(reader.namespace)}/{name}", lambda seen: over in held(seen), 90)
    said = reader.takes("see", reader.namespace)
    assert over in said
    _, _, mode, limit, used, _, passed, refused = reader.row(said, "batch")
    assert (mode, limit, refused) == ("observe", f"{sizes['batch']}Mi", "0")
    assert int(passed) > 0
    assert int(used.removesuffix("Mi")) > sizes["batch"]
    assert reader.row(said, "chat")[2:4] == ["observe", f"{sizes['chat']}Mi"]
    assert reader.row(said, "chat")[6:] == ["0", "0"]
    assert not [each for each in reader.log("batch") if each.startswith("cotenant")], "it is not told"
    reader.goes_on("chat")


def held(pod: Object) -> str:
    found = [each for each in pod["status"]["conditions"] if each["type"] == "cotenant.dev/GPULimitHeld"]
    return found[0]["message"] if found else ""


def warn(reader: Reader) -> None:
    reader.takes("warn", reader.namespace)
    reader.gives_job("batch", MORE)
    reader.until_said("batch", f"job took {MORE} MiB")
    said = [each for each in reader.log("batch") if each.startswith("cotenant")]
    assert len(said) == 1, said
    assert re.search(
        "asks for 128Mi more on GPU-.* beyond the limit of .* allowed, since the mode is warn", said[0]
    )
    assert reader.row(reader.takes("see", reader.namespace), "batch")[2] == "warn"
    reader.goes_on("chat")


def enforce(reader: Reader) -> None:
    reader.takes("enforce", reader.namespace)
    size = advised(reader)["batch"]
    reader.gives_job("batch", ALL)
    failed = reader.until_said("batch", "job failed after .* out of memory")
    took = int(failed.split()[3])
    assert took < MORE, "less than was let through before"
    counted = [sum(each.used.values()) // MIB for each in standin.StandIn(installed.STANDIN).processes()]
    assert len(counted) == len(WORKLOADS)
    assert max(counted) <= size, "by the driver's own count"
    reader.goes_on("chat")
    said = reader.takes("see", reader.namespace)
    _, _, mode, limit, used, _, passed, refused = reader.row(said, "batch")
    assert (mode, limit, passed) == ("enforce", f"{size}Mi", "0")
    assert int(used.removesuffix("Mi")) <= size
    assert int(refused) > 0
    assert reader.row(said, "chat")[7] == "0"
    status = reader.pod("batch")["status"]["containerStatuses"][0]
    assert (status["restartCount"], status["ready"]) == (0, True), "refused, not ended"


def look_again(reader: Reader, prometheus: monitoring.Scraper) -> None:
    """The same Prometheus has Cotenant's own series, by verified TLS, and finds who was refused and nobody else."""
    api, name = reader.cluster.api, reader.pod("batch")["metadata"]["name"]
    (agent,) = api.items(AGENT, labelSelector=f"{chart.COMPONENT}=agent")
    prometheus.scrape([monitoring.job(api, "cotenant-agent", [f"{agent['status']['podIP']}:8889"])])

    def refused() -> list[str]:
        found = prometheus.query("cotenant_container_denied_allocations_total > 0")
        return [labels["pod"] for labels, _ in found]

    until(refused, lambda: str(prometheus.targets()), 120)
    assert refused() == [name]


@pytest.mark.timeout(600)
def test_the_way_from_time_slicing_to_limits(
    reader: Reader,
    prometheus: monitoring.Scraper,
    time_slicing: standin.StandIn,
    capsys: pytest.CaptureFixture[str],
):
    took = {}
    for name, step in (
        ("time-slicing", lambda: take_turns(reader)),
        ("advice", lambda: take_advice(reader, prometheus, time_slicing)),
        ("install", lambda: install(reader)),
        ("observe", lambda: observe(reader)),
        ("warn", lambda: warn(reader)),
        ("enforce", lambda: enforce(reader)),
        ("Prometheus", lambda: look_again(reader, prometheus)),
    ):
        began = time.monotonic()
        step()
        took[name] = time.monotonic() - began
    with capsys.disabled():
        print(
            "\nfrom time-slicing to limits:", ", ".join(f"{name} {each:.1f} s" for name, each in took.items())
        )

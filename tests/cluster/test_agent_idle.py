"""Pods on a real kubelet say whether they use their GPU: written at changes, read by kubectl, true after kill -9."""

import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from cluster import chart
from cluster.cotenant.granted import GIB, ROOT, Tenants, uid
from cluster.testbed.api import Object
from cluster.testbed.cluster import Cluster

from cotenant.core.grant import Share
from cotenant.dialects import names
from cotenant.dialects.pod_grant import SlotGrant

WORKER = (Path(__file__).parent / "programs" / "worker.py").read_text()
IDLE = "cotenant.dev/GPUIdle"
AFTER = 3
"""Seconds: `agent.idle` here."""


class Workers(Tenants):
    def worker(self, name: str, *, env: str = "", mode: str = "", **more: object) -> Object:
        container = self.container(command=["python", "-c", WORKER], **more)
        container["env"].append({"name": "WORKER", "value": env})
        annotations = {"cotenant.dev/enforce": mode} if mode else {}
        pod = self.run(name, 0, GIB, container, annotations=annotations)
        self.until_running(name)
        return pod

    def shared(self, pod: Object, file: str) -> Path:
        """A file that the pod's program reads."""
        return Path(f"/var/lib/kubelet/pods/{uid(pod)}/volumes/kubernetes.io~empty-dir/shared/{file}")

    def until(self, name: str, status: str, seconds: float = 60, *, reason: str | None = None) -> Object:
        """The condition, once it has this status."""

        def has(pod: Object) -> bool:
            found = condition(pod)
            return found is not None and found["status"] == status and reason in (None, found["reason"])

        return condition(self.api.until(self.path(name), has, seconds)) or {}

    def writes(self) -> int:
        """By all agents so far."""
        return self.agent.tail(1 << 20).count(f"{names.GPU_IDLE}=")


def condition(pod: Object) -> Object | None:
    return next((each for each in pod["status"].get("conditions", ()) if each["type"] == IDLE), None)


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.fixture(scope="module")
def started(cluster: Cluster) -> Iterator[Workers]:
    workers = Workers(cluster, f'idle = "{AFTER}s"\n')
    cluster.python_image()
    chart.make_namespace(cluster.api)
    yield workers
    workers.agent.stop()


@pytest.fixture
def workers(started: Workers, namespace: str) -> Iterator[Workers]:
    with started.within(namespace):
        yield started


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_pod_is_idle_some_seconds_after_its_last_work_and_not_when_it_works(workers: Workers, mode: str):
    before = workers.writes()
    pod = workers.worker("cycle", mode=mode, env="busy")
    time.sleep(2 * AFTER)
    assert condition(workers.api.get(workers.path("cycle"))) is None, "it has not been idle"
    stopped = time.time()
    workers.shared(pod, "rest").touch()
    idle = workers.until("cycle", "True")
    assert abs(seconds(idle["lastTransitionTime"]) - stopped) < 3, "the time of the last activity"
    assert idle["reason"] == "NoActivity"
    assert idle["message"].endswith(f"since {idle['lastTransitionTime']}")
    quiet = workers.api.get(workers.path("cycle"))["metadata"]["resourceVersion"]
    time.sleep(3 * AFTER)
    assert workers.api.get(workers.path("cycle"))["metadata"]["resourceVersion"] == quiet
    again = time.time()
    workers.shared(pod, "work").write_text("burst")
    works = workers.until("cycle", "False")
    assert abs(seconds(works["lastTransitionTime"]) - again) < 5
    time.sleep(2 * AFTER)
    assert workers.until("cycle", "False") == works
    assert workers.writes() - before == 2


def test_kubectl_and_others_read_it(workers: Workers):
    workers.worker("read")
    workers.until("read", "True")
    path = f'{{.status.conditions[?(@.type=="{IDLE}")].status}}'
    kubectl = workers.cluster.control_plane.kubectl
    assert kubectl("get", "pod", "read", "-n", workers.namespace, "-o", f"jsonpath={path}").strip() == "True"
    kubectl("wait", "pod/read", "-n", workers.namespace, f"--for=condition={IDLE}", "--timeout=10s")
    described = kubectl("describe", "pod", "read", "-n", workers.namespace)
    assert re.search(rf"{IDLE}\s+True", described)
    others = {each["type"] for each in workers.api.get(workers.path("read"))["status"]["conditions"]}
    assert {"Ready", "PodScheduled", "Initialized", IDLE} <= others


def test_a_pod_that_never_uses_its_card_is_idle_since_it_got_it(workers: Workers):
    began = time.time()
    workers.worker("unused", env="unused")
    idle = workers.until("unused", "True")
    assert idle["reason"] == "NeverUsed"
    assert began - 2 <= seconds(idle["lastTransitionTime"]) <= began + 20


def test_a_pod_that_is_loading_is_not_idle(workers: Workers):
    """It has allocated, launched nothing, and is not ready."""
    probe = {"exec": {"command": ["python", "-c", "open('/shared/ready')"]}, "timeoutSeconds": 10}
    pod = workers.worker("loading", readinessProbe=probe)
    workers.told("loading")
    time.sleep(3 * AFTER)
    assert condition(workers.api.get(workers.path("loading"))) is None
    workers.shared(pod, "ready").touch()
    workers.until("loading", "True")


def test_an_agent_that_is_killed_changes_nothing_and_the_next_one_sees_what_happened(workers: Workers):
    workers.worker("stays")
    pod = workers.worker("wakes")
    for name in ("stays", "wakes"):
        workers.until(name, "True")
    workers.agent.kill()
    version = workers.api.get(workers.path("stays"))["metadata"]["resourceVersion"]
    workers.shared(pod, "work").touch()
    time.sleep(AFTER)
    assert (condition(workers.api.get(workers.path("wakes"))) or {})["status"] == "True", (
        "nobody is there to say"
    )
    workers.start_agent()
    workers.until("wakes", "False")
    time.sleep(2 * AFTER)
    assert workers.api.get(workers.path("stays"))["metadata"]["resourceVersion"] == version


def test_every_container_of_a_pod_must_be_idle(workers: Workers):
    both = [workers.container(name, command=["python", "-c", WORKER]) for name in ("one", "two")]
    both[0]["volumeMounts"] = [{"name": "shared", "mountPath": "/elsewhere"}]
    pod = workers.create("both", *both)
    shares = [SlotGrant(name, (Share(workers.cards[0], GIB),)) for name in ("one", "two")]
    workers.bind(pod, workers.grant(pod, *shares))
    workers.until_running("both")
    workers.shared(pod, "work").touch()
    time.sleep(3 * AFTER)
    assert (condition(workers.api.get(workers.path("both"))) or {"status": "False"})["status"] == "False"
    workers.shared(pod, "work").unlink()
    assert "containers one, two have" in workers.until("both", "True")["message"]


def test_a_slot_that_is_gone_is_unknown(workers: Workers):
    pod = workers.worker("lost", env="unused")
    workers.until("lost", "True")
    [key] = workers.slots_of(uid(pod))
    (ROOT / "slots" / key / "folder" / "limits").unlink()
    found = workers.until("lost", "Unknown")
    assert (found["reason"], found["message"]) == (
        "NotMeasured",
        "container main: its slot on the node is gone",
    )


def test_a_container_that_forges_its_times_affects_itself_alone(workers: Workers):
    forger, honest = workers.worker("forger"), workers.worker("honest")
    for name in ("forger", "honest"):
        workers.until(name, "True")
    [key] = workers.slots_of(uid(forger))
    usage = ROOT / "slots" / key / "folder" / "usage"
    for damage in (
        lambda file: (file.seek(112), file.write(b"\xff" * 16)),
        lambda file: (file.seek(4096), file.write(b"\xff" * 512 * 4)),
        lambda file: (file.seek(80), file.write(b"\xff" * 128)),
    ):
        with usage.open("r+b") as file:
            damage(file)
        time.sleep(2.5)
        assert workers.agent.running
    workers.until("forger", "False")
    usage.write_bytes(b"")
    workers.until("forger", "Unknown")
    workers.shared(honest, "work").touch()
    workers.until("honest", "False")
    workers.shared(honest, "work").unlink()
    workers.until("honest", "True")


def test_the_agents_lease_is_renewed_while_it_reports_and_ends_with_it(workers: Workers):
    workers.worker("any")
    node = workers.cluster.node.name
    path = f"/apis/coordination.k8s.io/v1/namespaces/cotenant-system/leases/cotenant-agent-{node}"
    first = workers.api.until(path, lambda lease: "renewTime" in lease["spec"])["spec"]["renewTime"]
    workers.api.until(path, lambda lease: lease["spec"]["renewTime"] != first, 30)
    workers.agent.kill()
    last = workers.api.get(path)["spec"]["renewTime"]
    time.sleep(12)
    assert workers.api.get(path)["spec"]["renewTime"] == last

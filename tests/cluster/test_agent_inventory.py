"""The agent tells of its node's cards, and keeps what it told true through all that happens to node and cards."""

import http.client
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.testbed import places
from cluster.testbed.api import Object
from cluster.testbed.cluster import Cluster
from cluster.testbed.component import Component, answers
from cluster.testbed.controlplane import ControlPlane

from cotenant.hardware.standin import driver as standin

GIB = 2**30
MIB = 2**20
CARD = 81152 * MIB
ROOT = Path("/run/cotenant-inventory")
STATE = ROOT / "standin" / "state"
GPUS = "cotenant.dev/gpus"
SETTINGS = """
kubeconfig = "{kubeconfig}"
[agent]
node = "{node}"
address = "127.0.0.1"
slots = "{root}"
simulate = "2xA100-80GB"
survey = "1s"
recovery = "{recovery}"
[dialects.nvidia]
enabled = true
[dialects.aliyun]
enabled = {aliyun}
"""
RIGHTS = [
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
]
HOLD = """
import ctypes, sys, time
cuda = ctypes.CDLL("libcuda.so.1"); made = ctypes.c_void_p(); held = ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(made), int(sys.argv[1])) == 0
assert cuda.cuCtxSetCurrent(made) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(held), ctypes.c_size_t(int(sys.argv[2]))) == 0
print("holding", flush=True)
time.sleep(600)
"""


class Agent:
    """The agent as a process of the node."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.file = places.STATE / "agent.toml"
        self.component = Component(
            "agent-inventory",
            [sys.executable, "-m", "cotenant.cli.main", "agent", "--settings", self.file],
            ready=answers(http.client.HTTPConnection("127.0.0.1", 8889, timeout=2), "/readyz"),
        )

    def start(self, recovery: str = "3s", *, aliyun: bool = True) -> None:
        self.file.write_text(
            SETTINGS.format(
                kubeconfig=self.cluster.control_plane.kubeconfig("agent", ()),
                node=self.cluster.node.name,
                root=ROOT,
                recovery=recovery,
                aliyun=str(aliyun).lower(),
            )
        )
        self.component.start()
        self.component.wait(30)

    def cards(self) -> standin.StandIn:
        return standin.StandIn(STATE)

    def uuids(self) -> list[str]:
        return [card.uuid for card in self.cards().cards()]

    def node(self) -> Object:
        found: Object = self.cluster.api.get(self.cluster.node.path)
        return found

    def until(self, done: Callable[[Object, list[Object]], bool], seconds: float = 20) -> list[Object]:
        """The cards as the node tells them, once `done` says so of status and cards."""
        end = time.monotonic() + seconds
        while True:
            node = self.node()
            cards = told(node)
            if done(node["status"], cards):
                return cards
            assert time.monotonic() < end, f"{json.dumps(cards)}\n{self.component.tail()}"
            time.sleep(0.1)

    def metrics(self) -> dict[str, float]:
        connection = http.client.HTTPConnection("127.0.0.1", 8889, timeout=5)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        return {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
            for line in lines
            if not line.startswith("#")
        }


def told(node: Object) -> list[Object]:
    text = node["metadata"].get("annotations", {}).get(GPUS)
    return json.loads(text)["cards"] if text else []


def problems(cards: list[Object]) -> list[str | None]:
    return [card.get("problem") for card in cards]


def outside(cards: list[Object]) -> list[int]:
    return [card.get("outside", 0) for card in cards]


def amounts(status: Object, what: str = "capacity") -> dict[str, int]:
    found = {}
    for name, text in status[what].items():
        if "gpu" in name:
            number = text.rstrip("KMGTi")
            scale = {"": 1, "k": 1000, "Ki": 2**10, "Mi": MIB, "Gi": GIB}[text.removeprefix(number)]
            found[name] = int(number) * scale
    return found


@pytest.fixture(scope="module")
def started(cluster: Cluster, control_plane: ControlPlane) -> Iterator[Agent]:
    """It may do what it needs and nothing else; after the tests the node is as it was."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    meta = {"metadata": {"name": "agent-inventory"}}
    control_plane.api.create(f"{rbac}/clusterroles", {**meta, "rules": RIGHTS})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "agent-inventory"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "agent"}
    control_plane.api.create(f"{rbac}/clusterrolebindings", {**meta, "roleRef": role, "subjects": [subject]})
    agent = Agent(cluster)
    yield agent
    agent.component.stop()
    shutil.rmtree(ROOT)
    nothing = dict.fromkeys(ALL)
    cluster.api.patch(
        f"{cluster.node.path}/status",
        {
            "metadata": {"annotations": {GPUS: None}},
            "status": {"capacity": nothing, "allocatable": nothing},
        },
    )
    control_plane.api.delete(f"{rbac}/clusterroles/agent-inventory")
    control_plane.api.delete(f"{rbac}/clusterrolebindings/agent-inventory")


@pytest.fixture
def agent(started: Agent) -> Agent:
    """Running, with all cards well."""
    if not started.component.running:
        started.start()
    started.until(lambda _, cards: problems(cards) == [None, None])
    return started


@pytest.fixture
def holder(agent: Agent) -> Iterator[Callable[[int, int], subprocess.Popen[str]]]:
    """Starts programs of no pod that hold so many bytes on a card."""
    programs: list[subprocess.Popen[str]] = []

    def hold(card: int, size: int) -> subprocess.Popen[str]:
        program = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(card), str(size)],
            env=standin.environment(STATE, {"PATH": "/usr/bin:/bin"}),
            stdout=subprocess.PIPE,
            text=True,
        )
        programs.append(program)
        assert program.stdout is not None
        assert program.stdout.readline() == "holding\n"
        return program

    yield hold
    for program in programs:
        program.kill()
        program.wait()


ALL = {
    "cotenant.dev/gpu-memory": 2 * CARD,
    "cotenant.dev/gpu-compute": 200,
    "cotenant.dev/gpu": 2,
    "aliyun.com/gpu-mem": 158,
    "aliyun.com/gpu-count": 2,
    "volcano.sh/gpu-memory": 2 * 81152,
    "volcano.sh/gpu-number": 2,
    "nvidia.com/gpu": 2,
}


def shown(agent: Agent) -> bool:
    return ALL.items() <= amounts(agent.node()["status"]).items()


def test_a_node_shows_its_cards_one_by_one_and_their_sum_in_every_dialect(agent: Agent):
    cards = agent.until(lambda status, _: ALL.items() <= amounts(status, "allocatable").items(), 30)
    assert shown(agent)
    assert [(card["uuid"], card["index"], card["memory"]) for card in cards] == [
        (uuid, index, CARD) for index, uuid in enumerate(agent.uuids())
    ]
    assert all("A100" in card["model"] for card in cards)
    agent.until(lambda status, _: amounts(status).get("cotenant.dev/gpu-slot") == 256)


def test_a_kubelet_that_is_killed_and_a_status_that_is_reset_change_nothing_for_long(agent: Agent):
    agent.cluster.node.kubelet.kill()
    zero = dict.fromkeys(ALL, "0")
    agent.cluster.api.patch(
        f"{agent.cluster.node.path}/status", {"status": {"capacity": zero, "allocatable": zero}}
    )
    agent.until(lambda status, _: ALL.items() <= amounts(status).items(), 10)
    agent.cluster.node.kubelet.start()
    agent.cluster.node.kubelet.wait()
    agent.until(lambda status, _: ALL.items() <= amounts(status, "allocatable").items(), 30)
    agent.until(lambda status, _: amounts(status, "allocatable").get("cotenant.dev/gpu-slot") == 256, 30)


def test_what_somebody_removes_is_there_again(agent: Agent):
    nothing: dict[str, Any] = dict.fromkeys(ALL)
    agent.cluster.api.patch(
        f"{agent.cluster.node.path}/status",
        {"metadata": {"annotations": {GPUS: None}}, "status": {"capacity": nothing}},
    )
    agent.until(lambda status, cards: len(cards) == 2 and ALL.items() <= amounts(status).items(), 10)


def test_a_node_that_is_made_anew_is_told_anew(agent: Agent):
    before = agent.node()["metadata"]["uid"]
    agent.cluster.node.kubelet.stop()
    agent.cluster.api.delete(agent.cluster.node.path)
    agent.cluster.node.kubelet.start()
    agent.cluster.node.kubelet.wait()
    agent.until(lambda status, cards: len(cards) == 2 and ALL.items() <= amounts(status).items(), 30)
    assert agent.node()["metadata"]["uid"] != before


def test_a_card_that_falls_off_the_bus_is_sick_until_it_is_back(agent: Agent):
    first, _ = agent.uuids()
    agent.cards().fail(first)
    cards = agent.until(lambda _, cards: problems(cards)[0] is not None and problems(cards)[1] is None)
    assert "does not answer" in str(cards[0]["problem"])
    assert cards[0]["memory"] == CARD
    assert shown(agent), "capacity stays: pods on the GPU would be turned away at the kubelet's restart"
    assert agent.metrics()[_card("cotenant_gpu_healthy", agent, 0)] == 0
    agent.cards().recover(first)
    agent.until(lambda _, cards: problems(cards) == [None, None])


def test_a_fault_makes_a_card_sick_for_a_time(agent: Agent):
    _, second = agent.uuids()
    agent.cards().post_xid(second, 31)
    agent.cards().post_xid(second, 48)
    agent.until(lambda _, cards: problems(cards) == [None, "reported a fault (XID 48)"])
    agent.until(lambda _, cards: problems(cards) == [None, None])


def test_memory_errors_make_a_card_sick_until_they_are_reset(agent: Agent):
    first, _ = agent.uuids()
    agent.cards().add_ecc_errors(first, uncorrected=2)
    agent.until(lambda _, cards: problems(cards) == ["2 uncorrected memory errors since it was reset", None])
    agent.cards().add_ecc_errors(first, uncorrected=-2)
    agent.until(lambda _, cards: problems(cards) == [None, None])


def test_what_a_program_of_no_pod_holds_is_outside(agent: Agent, holder):
    program = holder(1, 3 * GIB)
    agent.until(lambda _, cards: outside(cards) == [0, 3 * GIB + 256 * MIB])
    program.kill()
    program.wait()
    agent.until(lambda _, cards: outside(cards) == [0, 0])


def test_what_a_pod_holds_within_its_grant_is_not_outside(agent: Agent, namespace: str, holder):
    path = f"/api/v1/namespaces/{namespace}/pods"
    uuid = agent.uuids()[0]
    container = {
        "name": "main",
        "image": agent.cluster.python_image(),
        "imagePullPolicy": "Never",
        "command": ["python", "-c", HOLD, "0", str(2 * GIB)],
        "resources": {"limits": {"cotenant.dev/gpu-memory": "4Gi", "cotenant.dev/gpu-slot": "1"}},
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": uuid}],
    }
    made = agent.cluster.api.create(
        path,
        {
            "metadata": {"name": "granted"},
            "spec": {
                "containers": [container],
                "schedulerName": "nobody",
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
            },
        },
    )
    grant = {
        "version": 1,
        "uid": made["metadata"]["uid"],
        "slots": [{"container": "main", "shares": [{"uuid": uuid, "memory": 4 * GIB}]}],
    }
    agent.until(lambda status, _: amounts(status, "allocatable").get("cotenant.dev/gpu-slot") == 256, 30)
    agent.cluster.api.create(
        f"{path}/granted/binding",
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "granted", "annotations": {"cotenant.dev/grant": json.dumps(grant)}},
            "target": {"kind": "Node", "name": agent.cluster.node.name},
        },
    )
    agent.cluster.api.until(f"{path}/granted", lambda pod: pod["status"]["phase"] != "Pending")
    held = 2 * GIB + 256 * MIB
    end = time.monotonic() + 20
    while agent.metrics()[_card("cotenant_gpu_memory_used_bytes", agent, 0)] != held:
        assert time.monotonic() < end, agent.cluster.kubectl("logs", "-n", namespace, "granted")
        time.sleep(0.2)
    holder(0, GIB)
    agent.until(lambda _, cards: outside(cards) == [GIB + 256 * MIB, 0])
    metrics = agent.metrics()
    labels = f'container="main",namespace="{namespace}",pod="granted"'
    assert metrics[_card("cotenant_gpu_memory_granted_bytes", agent, 0)] == 4 * GIB
    assert metrics[f'cotenant_container_memory_limit_bytes{{{labels},uuid="{uuid}"}}'] == 4 * GIB
    assert metrics[f'cotenant_container_memory_used_bytes{{{labels},uuid="{uuid}"}}'] == held
    assert metrics[f'cotenant_container_memory_peak_bytes{{{labels},uuid="{uuid}"}}'] == held
    assert 0 <= metrics[f'cotenant_container_utilization_ratio{{{labels},uuid="{uuid}"}}'] <= 1
    assert metrics[f"cotenant_container_denied_allocations_total{{{labels}}}"] == 0
    assert abs(metrics[f"cotenant_container_last_activity_timestamp_seconds{{{labels}}}"] - time.time()) < 60
    agent.cluster.api.delete(f"{path}/granted")
    agent.cluster.api.until_gone(f"{path}/granted")


def _card(name: str, agent: Agent, index: int) -> str:
    card = told(agent.node())[index]
    return f'{name}{{index="{index}",model="{card["model"]}",node="{agent.cluster.node.name}",uuid="{card["uuid"]}"}}'


def test_the_agent_tells_of_its_own_health(agent: Agent):
    metrics = agent.metrics()
    assert metrics["cotenant_agent_registered"] == 1
    assert metrics["cotenant_agent_api_reachable"] == 1
    assert metrics["cotenant_agent_pod_resources_reachable"] == 1
    assert metrics["cotenant_agent_survey_age_seconds"] < 30
    assert metrics["cotenant_agent_publishes_total"] >= 0


def test_an_agent_that_is_killed_takes_nothing_away_and_the_next_one_knows_what_it_knew(agent: Agent):
    agent.component.stop()
    agent.start(recovery="10m")
    _, second = agent.uuids()
    agent.cards().post_xid(second, 79)
    agent.until(lambda _, cards: problems(cards) == [None, "reported a fault (XID 79)"])
    agent.component.kill()
    assert shown(agent)
    agent.start(recovery="3s")
    assert problems(told(agent.node())) == [None, "reported a fault (XID 79)"]
    agent.until(lambda _, cards: problems(cards) == [None, None])
    assert shown(agent)


def test_an_agent_that_is_asked_to_stop_ends_well_and_withdraws_nothing(agent: Agent):
    agent.component.stop()
    assert agent.component.process is not None
    assert agent.component.process.returncode == 0, agent.component.tail()
    assert shown(agent)
    assert len(told(agent.node())) == 2


def test_a_dialect_that_is_switched_off_is_no_longer_shown(agent: Agent):
    agent.component.stop()
    agent.start(aliyun=False)
    agent.until(lambda status, _: not any("aliyun" in name for name in status["capacity"]))
    agent.component.stop()
    agent.start()
    agent.until(lambda status, _: ALL.items() <= amounts(status).items())


def test_an_api_server_that_is_away_is_waited_for(agent: Agent):
    control_plane = agent.cluster.control_plane
    control_plane.apiserver.kill()
    agent.cards().fail(agent.uuids()[0])
    end = time.monotonic() + 20
    while agent.metrics()["cotenant_agent_api_reachable"]:
        assert time.monotonic() < end
        time.sleep(0.2)
    assert agent.component.running
    control_plane.apiserver.start()
    control_plane.apiserver.wait()
    agent.until(lambda _, cards: problems(cards)[0] is not None)
    agent.cards().recover(agent.uuids()[0])
    agent.until(lambda _, cards: problems(cards) == [None, None])
    assert agent.component.running


def test_other_simulated_cards_than_those_that_are_there_stop_the_start(agent: Agent):
    agent.component.stop()
    done = _agent(agent, "--simulate", "1xT4")
    assert done.returncode == 1
    assert "agent.simulate: " in done.stderr
    assert "remove it once nothing uses it" in done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("COTENANT__AGENT__SURVEY", "often", "COTENANT__AGENT__SURVEY: 'often' is not a duration"),
        ("COTENANT__AGENT__SIMULATE", "2xTitan", "agent.simulate: simulated GPUs: no model 'Titan'"),
        ("COTENANT__AGENT__SURVEI", "1s", "COTENANT__AGENT__SURVEI: there is no such setting"),
        ("COTENANT__AGENT__ADDRESS", "10.255.255.1", "agent.address, agent.port: cannot listen"),
        ("COTENANT__AGENT__SLOTS", "/proc/x", "agent.slots: /proc/x/agent.lock cannot be written"),
        ("COTENANT__KUBECONFIG", "/nowhere", "/nowhere: no such file"),
    ],
)
def test_bad_settings_stop_the_start_with_their_name(agent: Agent, variable: str, value: str, words: str):
    agent.component.stop()
    done = _agent(agent, **{variable: value})
    assert done.returncode in (1, 2), done.stderr
    assert words in done.stderr


def _agent(agent: Agent, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cotenant.cli.main", "agent", "--settings", str(agent.file), *arguments]
    return subprocess.run(
        command,
        env={"PATH": "/usr/bin:/bin", **environ},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

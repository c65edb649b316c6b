"""The agent as a process: it waits for what is away, ends when it is asked, and falls with any of its parts."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from kube.apiserver import unused_ports

from cotenant.core.errors import BadInput, CotenantError
from cotenant.hardware.nvml import Nvml
from cotenant.kube.agent import agent
from cotenant.kube.agent.cards.driver import NodeCards, cards_of
from cotenant.kube.agent.settings import AgentSettings
from cotenant.kube.agent.single_instance import alone
from cotenant.kube.agent.slots.cleaning import Cleaning
from cotenant.kube.api.auth.access import Access
from cotenant.kube.parts.running import PartFailed
from cotenant.kube.settings import Settings

KUBECONFIG = """
current-context: x
contexts: [{{name: x, context: {{cluster: x}}}}]
clusters: [{{name: x, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
"""


class Process:
    def __init__(self, folder: Path) -> None:
        self.port, nobody = unused_ports(2)
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG.format(port=nobody))
        (folder / "kubelet" / "device-plugins").mkdir(parents=True, exist_ok=True)
        environ = {
            "PATH": "/usr/bin:/bin",
            "NODE_NAME": "n1",
            "COTENANT__KUBECONFIG": str(kubeconfig),
            "COTENANT__AGENT__ADDRESS": "127.0.0.1",
            "COTENANT__AGENT__PORT": str(self.port),
            "COTENANT__AGENT__SLOTS": str(folder / "slots"),
            "COTENANT__AGENT__KUBELET": str(folder / "kubelet"),
            "COTENANT__AGENT__SIMULATE": "1x16GiB",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cotenant.cli.main", "agent"],
            env=environ,
            stderr=subprocess.PIPE,
            text=True,
        )

    def said(self, words: str) -> str:
        """The line with these words, once it is there."""
        for line in self.process.stderr:
            if words in line:
                return line
        raise AssertionError(f"it ended and never said {words!r}")

    def fetch(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


@pytest.fixture
def start(tmp_path):
    """Starts agents, all on the same folder."""
    started = []

    def another() -> Process:
        started.append(Process(tmp_path))
        return started[-1]

    yield another
    for each in started:
        each.close()


def test_an_agent_without_an_api_server_waits_measures_and_stops_when_it_is_asked(start):
    running = start()
    running.said("agent serves")
    assert running.fetch("/healthz") == (200, "ok\n")
    code, missing = running.fetch("/readyz")
    assert code == 503
    assert "[-]node: the node's GPUs are not published yet" in missing
    assert "[-]kubelet: this device plugin is not registered with the kubelet yet" in missing
    ends = time.monotonic() + 20
    while "cotenant_gpu_healthy{" not in (metrics := running.fetch("/metrics")[1]):
        assert time.monotonic() < ends, metrics
        time.sleep(0.1)
    assert "cotenant_agent_api_reachable 0.0" in metrics
    assert "cotenant_agent_registered 0.0" in metrics
    assert running.end() == 0
    assert "Traceback" not in running.process.stderr.read()


def test_a_second_agent_waits_until_the_first_is_gone(start):
    first = start()
    first.said("agent serves")
    second = start()
    second.said("another agent runs on this node: waiting until it ends")
    first.process.kill()
    first.process.wait()
    second.said("agent serves")
    assert second.end() == 0


@pytest.mark.asyncio
async def test_the_lock_is_free_when_its_holder_is_done(tmp_path):
    async with alone(tmp_path / "slots"):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), alone(tmp_path / "slots"):
                pass
    async with alone(tmp_path / "slots"):
        pass


@pytest.mark.asyncio
@pytest.mark.parametrize("ends", ["raises", "returns"])
async def test_a_part_that_ends_takes_the_agent_down_with_its_name(tmp_path, monkeypatch, ends):
    async def run(_: Cleaning) -> None:
        if ends == "raises":
            raise RuntimeError("out of disk")

    monkeypatch.setattr(Cleaning, "run", run)
    monkeypatch.setattr(
        agent, "cards_of", lambda _: NodeCards(lambda: Nvml(Path("/nowhere/libnvidia-ml.so.1")), 1)
    )
    own = AgentSettings(
        address="127.0.0.1",
        port=unused_ports(1)[0],
        slots=str(tmp_path / "slots"),
        kubelet=str(tmp_path),
    )
    access = Access(f"http://127.0.0.1:{unused_ports(1)[0]}")
    monkeypatch.setattr(agent, "LINGER", 0.0)
    with pytest.raises(PartFailed) as fallen:
        await agent.serve(Settings(agent=own), access, {"NODE_NAME": "n1"})
    said = "part slots failed: RuntimeError('out of disk')" if ends == "raises" else "part slots ended"
    assert str(fallen.value) == said


def test_the_node_is_found_by_setting_environment_or_host(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "GPU-Host.example")
    named = Settings(agent=AgentSettings(node="a"))
    assert agent.node_name(named, {"NODE_NAME": "b"}) == "a"
    assert agent.node_name(Settings(), {"NODE_NAME": "b"}) == "b"
    assert agent.node_name(Settings(), {}) == "gpu-host.example"
    with pytest.raises(BadInput, match=r"NODE_NAME: 'no, node' is not the name of a node"):
        agent.node_name(Settings(), {"NODE_NAME": "no, node"})


def test_the_same_simulated_cards_are_there_again_and_others_are_refused(tmp_path):
    settings = AgentSettings(slots=str(tmp_path), simulate="2xA100-80GB")
    first = cards_of(settings)
    assert first.simulation is not None
    before = first.simulation.state.stat().st_ino
    again = cards_of(settings)
    assert again.simulation == first.simulation
    assert again.simulation.state.stat().st_ino == before
    names = {path.name for path in again.simulation.libraries.iterdir()}
    assert names == {"libcuda.so", "libcuda.so.1", "libnvidia-ml.so", "libnvidia-ml.so.1"}
    assert again.context_bytes == 256 << 20
    with pytest.raises(CotenantError, match=r"^agent.simulate: .*remove it once nothing uses it"):
        cards_of(AgentSettings(slots=str(tmp_path), simulate="1xT4"))


def test_real_cards_cost_the_context_that_the_settings_say():
    found = cards_of(AgentSettings(context_memory=300 << 20))
    assert (found.context_bytes, found.simulation) == (300 << 20, None)

"""Testbeds do not meet each other or the machine, and nothing outlives one, however it ends."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.testbed import cgroups, places

PROGRAM = Path(__file__).with_name("program.py")
pytestmark = pytest.mark.usefixtures("can_run_control_plane")


class Testbed:
    """A whole one, started within this one as another run on the same machine would be."""

    __test__ = False

    def __init__(self, what: str) -> None:
        self.mark = "mark-" + secrets.token_hex(4)
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("COTENANT_TESTBED_")
        }
        command = [
            sys.executable,
            "-m",
            "cluster.testbed",
            "run",
            "--",
            sys.executable,
            str(PROGRAM),
            what,
            self.mark,
        ]
        self.launcher = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ready(self) -> list[str]:
        assert self.launcher.stdout is not None
        line = self.launcher.stdout.readline()
        assert line, "it ended before it stood"
        told = json.loads(line)
        self.name: str = told["name"]
        self.pids = _descendants(self.launcher.pid)
        namespaces: list[str] = told["namespaces"]
        return namespaces

    def living(self) -> dict[int, str]:
        """Those of its processes that still run: also such as left their parents, like containers."""
        return {pid: command for pid, command in self.pids.items() if _command(pid) == command}

    def end(self) -> None:
        self.launcher.kill()
        self.launcher.wait()


def _descendants(parent: int) -> dict[int, str]:
    """All processes in its PID namespace and below, found by the namespace, and the two that lead to it."""
    own = os.readlink("/proc/self/ns/pid")
    within: set[str] = set()
    children = {parent}
    found: dict[int, str] = {}
    for pid in sorted(int(each) for each in os.listdir("/proc") if each.isdigit()):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            namespace = os.readlink(f"/proc/{pid}/ns/pid")
        except OSError:
            continue
        if int(stat[1]) in children or pid in children or namespace in within:
            children.add(pid)
            found[pid] = _command(pid)
            if namespace != own:
                within.add(namespace)
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def _until(true, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.02)
    return bool(true())


@pytest.fixture
def testbeds() -> Iterator[list[Testbed]]:
    started: list[Testbed] = []
    yield started
    for each in started:
        each.end()


@pytest.fixture
def what() -> str:
    """All that a testbed may have on this machine."""
    return "control-plane" if places.KUBELET in places.reasons() else "cluster"


def test_two_testbeds_run_side_by_side_at_the_same_addresses(testbeds: list[Testbed]):
    testbeds += [Testbed("control-plane"), Testbed("control-plane")]
    first, second = testbeds
    seen = {each.mark: each.ready() for each in testbeds}
    assert first.mark in seen[first.mark]
    assert second.mark not in seen[first.mark]
    assert second.mark in seen[second.mark]
    assert first.mark not in seen[second.mark]


def test_the_end_of_a_testbed_leaves_no_process_no_mount_and_no_cgroup(testbeds: list[Testbed], what: str):
    mounts = Path("/proc/self/mountinfo").read_text()
    testbeds.append(Testbed(what))
    testbeds[0].ready()
    assert testbeds[0].name in cgroups.left()
    commands = " ".join(testbeds[0].living().values())
    assert "kube-apiserver" in commands
    assert ("containerd-shim" in commands) == (what == "cluster")
    assert testbeds[0].launcher.stdin is not None
    testbeds[0].launcher.stdin.close()
    assert testbeds[0].launcher.wait(30) == 0
    assert testbeds[0].living() == {}
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert testbeds[0].name not in cgroups.left()


def test_a_testbed_that_is_killed_leaves_no_process(testbeds: list[Testbed], what: str):
    testbeds.append(Testbed(what))
    testbeds[0].ready()
    os.kill(testbeds[0].launcher.pid, signal.SIGKILL)
    assert _until(lambda: testbeds[0].living() == {}), testbeds[0].living()


def test_cgroups_that_a_killed_testbed_left_are_removed_by_the_next(
    testbeds: list[Testbed], can_run_kubelet: None
):
    testbeds.append(Testbed("etcd"))
    testbeds[0].ready()
    testbeds[0].end()
    assert _until(lambda: testbeds[0].living() == {})
    testbeds.append(Testbed("etcd"))
    testbeds[1].ready()
    assert testbeds[0].name not in cgroups.left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_end_everything(testbeds: list[Testbed], number: signal.Signals):
    testbeds.append(Testbed("etcd"))
    testbeds[0].ready()
    os.killpg(testbeds[0].launcher.pid, number)
    assert testbeds[0].launcher.wait(30) != 0
    assert testbeds[0].living() == {}
    assert testbeds[0].name not in cgroups.left()

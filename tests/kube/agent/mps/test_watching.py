"""What becomes of servers and their clients.

Clients need a GPU, so a front end of our own answers here with the lists that a test sets, and the log has the
lines that NVIDIA's daemon writes. How NVIDIA's daemon itself lists servers and ends is in test_part.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from cotenant.hardware.mps.control import NoReply
from cotenant.hardware.mps.control_log import Client, ControlLog, News, news_of
from cotenant.kube.agent.cards.cgroups import Owner
from cotenant.kube.agent.mps.watching import DaemonWatch

A, B, C = Owner("u-a", "ida"), Owner("u-b", "idb"), Owner("u-c", "idc")
STAMP = "[2026-11-17 11:05:34.504 Control 21830] "


@dataclass
class World:
    path: object
    pid: int | None = 100
    lists: dict[int, tuple[int, ...]] = field(default_factory=dict)
    owners: dict[int, Owner] = field(default_factory=lambda: {1: A, 2: B, 3: C})
    hangs: bool = False
    asked: int = 0
    time: float = 0.0

    def __post_init__(self):
        self.path.touch()
        self.watch = DaemonWatch(
            lambda: self,
            ControlLog(self.path),
            lambda: self.pid,
            owners=lambda pids: {pid: self.owners.get(pid) for pid in pids},
            clock=lambda: self.time,
        )

    def servers(self):
        self.asked += 1
        if self.hangs:
            raise NoReply("it hangs")
        return tuple(self.lists)

    def clients(self, server):
        return self.lists[server]

    def says(self, *lines):
        with open(self.path, "a") as log:
            log.writelines(f"{STAMP}{line}\n" for line in lines)

    def look(self):
        self.time += 1
        return [(each.kind, set(each.owners)) for each in self.watch.look()]


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path / "control.log")
    made.look()
    return made


def comes(world, server, uid, *clients):
    """A server of a user with these clients, as the log tells of them."""
    world.lists[server] = clients
    world.says(f"Starting new server {server} for user {uid}")
    world.says(*(f"NEW CLIENT {pid} from user {uid}: Server already exists" for pid in clients))
    assert world.look() == []


def test_a_fault_is_told_to_every_client_of_the_server_once(world):
    comes(world, 7, 0, 1, 2)
    world.says("Server encountered a fatal exception. Shutting down")
    assert world.look() == [("fault", {A, B})]
    del world.lists[7]
    world.says("Server 7 exited with status 1")
    assert world.look() == [], "its end is no news"
    comes(world, 8, 0, 3)
    del world.lists[8]
    world.says("Server 8 exited with status 1")
    assert world.look() == [("server ended", {C})]


def test_a_server_that_is_killed_is_told_to_its_clients(world):
    comes(world, 7, 0, 1)
    del world.lists[7]
    world.says("Server 7 exited with status 9")
    assert world.look() == [("server ended", {A})]
    assert world.look() == []


def test_a_server_that_ends_without_clients_is_none_of_their_business(world):
    comes(world, 7, 0, 1)
    world.lists[7] = ()
    world.time += 10
    assert world.look() == []
    del world.lists[7]
    world.says("Server 7 exited with status 0")
    assert world.look() == []


def test_clients_of_a_daemon_that_is_killed_are_told_also_if_the_next_one_is_there_already(world):
    comes(world, 7, 0, 1, 2)
    world.pid, world.lists = 101, {}
    assert world.look() == [("daemon ended", {A, B})]
    assert world.watch.restarts == 1
    world.pid = None
    assert world.look() == []
    world.pid = 102
    assert world.look() == []
    assert world.watch.restarts == 2


def test_an_agent_that_starts_on_a_node_without_a_daemon_counts_no_restart(tmp_path):
    world = World(tmp_path / "control.log", pid=None)
    world.look()
    world.pid = 100
    world.look()
    assert world.watch.restarts == 0


def test_a_client_of_another_user_waits_and_is_told_so(world):
    comes(world, 7, 1000, 1)
    world.says("NEW CLIENT 2 from user 2000: Server is not ready, push client to pending list")
    (incident,) = world.watch.look()
    assert (incident.kind, incident.owners) == ("waits for another user", {B})
    assert incident.words == "a process of user 2000 waits: the MPS server serves user 1000"


def test_the_first_client_waits_for_its_own_server_only(world):
    world.lists[7] = (1,)
    world.says(
        "NEW CLIENT 1 from user 1000: Server is not ready, push client to pending list",
        "Starting new server 7 for user 1000",
    )
    assert world.look() == []
    world.says("NEW CLIENT 2 from user 1000: Server is not ready, push client to pending list")
    assert world.look() == []


def test_servers_of_a_daemon_that_is_gone_keep_nobody_waiting(world):
    comes(world, 7, 1000, 1)
    world.pid, world.lists = 101, {}
    world.look()
    world.says("NEW CLIENT 2 from user 2000: Server is not ready, push client to pending list")
    assert world.look() == []


def test_processes_of_no_pod_and_of_other_pid_namespaces_are_nobodys(world):
    comes(world, 7, 0, 99)
    world.says("NEW CLIENT 0 from user 5: Server is not ready, push client to pending list")
    assert world.look() == []
    world.says("Server encountered a fatal exception. Shutting down")
    assert world.look() == []


def test_a_daemon_that_hangs_forgets_nothing(world):
    comes(world, 7, 0, 1)
    world.hangs = True
    world.says("NEW CLIENT 2 from user 0: Server already exists")
    assert world.look() == []
    world.hangs = False
    del world.lists[7]
    world.says("Server 7 exited with status 9")
    assert world.look() == [("server ended", {A})]


def test_it_asks_only_when_a_client_has_come_or_after_a_while(world):
    comes(world, 7, 0, 1)
    for _ in range(5):
        world.look()
    before = world.asked
    for _ in range(5):
        world.look()
    assert world.asked == before
    world.time += 10
    world.look()
    assert world.asked == before + 1


def test_a_client_that_is_listed_a_moment_after_the_log_has_it_is_found(world):
    world.lists[7] = ()
    world.says("Starting new server 7 for user 0", "NEW CLIENT 1 from user 0: Server already exists")
    world.look()
    world.lists[7] = (1,)
    world.look()
    assert world.watch.servers == {7: {A}}


def test_lines_of_the_log_that_mean_nothing_are_passed_over():
    lines = ["", "x", "Starting new server 1 for user 0", f"{STAMP}Starting new server x for user 0"]
    lines += [f"{STAMP}Cmd:Server encountered a fatal exception", f"{STAMP}Removed Shm file at ", "[" * 10**5]
    assert news_of(lines) == News()
    found = news_of([f"{STAMP}NEW CLIENT 4 from user 6: Server already exists"])
    assert found.clients == (Client(4, 6, waits=False),)


def test_the_log_is_read_on_after_it_was_cut_and_half_lines_are_waited_for(tmp_path):
    path = tmp_path / "control.log"
    log = ControlLog(path)
    assert log.read() == News(), "not there yet"
    path.write_text(f"{STAMP}Starting new server 7 for user 5\n{STAMP}Server 7 ex")
    assert log.read().started == {7: 5}
    with open(path, "a") as file:
        file.write("ited with status 3\n")
    assert log.read().ended == {7: 3}
    assert log.users == {}
    path.write_text(f"{STAMP}Starting new server 8 for user 5\n")
    assert log.read().started == {8: 5}
    with open(path, "ab") as file:
        file.write(b"x" * 2**20 + b"\n" + f"{STAMP}Starting new server 9 for user 5\n".encode())
    assert log.read().started == {9: 5}

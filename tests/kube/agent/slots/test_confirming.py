"""Which processes use a card without their limit: real programs, with the shim and without it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack

import pytest
from kube.agent.nodes import GIB, make, pod, shimmed

from cotenant.core.grant import Share
from cotenant.hardware import libraries
from cotenant.hardware.standin import driver as standin
from cotenant.kube.agent.cards.cgroups import Owner, own_pid
from cotenant.kube.agent.cards.survey import PodProcess, Sight
from cotenant.kube.agent.node_pods import PodsNow
from cotenant.kube.agent.slots.confirming import Confirming
from cotenant.kube.api.objects import ContainerStatus, PodStatus

MAIN, SIDE, INIT = "9f" * 32, "7e" * 32, "5d" * 32

USE_THE_CARD = """
import ctypes, sys
cuda = ctypes.CDLL('libcuda.so.1'); made = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(made), 0) == 0
print('ready', flush=True); sys.stdin.read()
"""


class Node:
    """A node with one simulated card, on which programs of pods run."""

    def __init__(self, folder, stack):
        self.stack = stack
        self.state = folder / "cards"
        standin.create(self.state, standin.parse_spec("1xT4"))
        (card,) = standin.StandIn(self.state).cards()
        self.uuid = card.uuid
        self.slots = shimmed(folder / "cotenant")
        self.slots.enforcer.install()
        self.confirming = Confirming(self.slots)
        self.seen: list[PodProcess] = []

    def slot(self, key="slot-0000", **owner):
        return make(self.slots, key, Share(self.uuid, GIB), **owner)

    def runs(self, slot, id=MAIN, *, preloads: bool):
        """Starts a program in a container of the slot's pod; a `preloads` of False is an unreadable library."""
        environ = standin.environment(self.state, os.environ)
        if preloads:
            environ |= {"COTENANT_SLOT": str(slot.folder), "LD_PRELOAD": str(libraries.shim())}
        process = subprocess.Popen(
            [sys.executable, "-c", USE_THE_CARD], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.stack.callback(process.communicate)
        assert process.stdout.readline() == b"ready\n"
        self.seen.append(PodProcess(process.pid, own_pid(process.pid), Owner(slot.owner.uid, id)))
        return process.pid

    def look(self, *pods):
        sight = Sight((), {}, 0.0, granted=True, processes={self.uuid: tuple(self.seen)})
        return self.confirming.look(sight, PodsNow(tuple(pods)))


@pytest.fixture
def node(tmp_path):
    with ExitStack() as stack:
        yield Node(tmp_path, stack)


def granted(node, *containers, init=(), **ids):
    slots = [(name, Share(node.uuid, GIB), *([tuple(init)] if init else [])) for name in containers]
    made = pod("web", *slots)
    status = PodStatus(
        "Running", container_statuses=tuple(ContainerStatus(n, container_id=i) for n, i in ids.items())
    )
    return type(made)(made.metadata, made.spec, status)


def test_a_process_without_the_shim_is_found_by_the_second_look(node):
    slot = node.slot()
    node.runs(slot, preloads=True)
    without = node.runs(slot, preloads=False)
    of_pod = granted(node, "main", main=MAIN)
    assert node.look(of_pod) == [], "it may have begun this moment"
    ((found, why),) = node.look(of_pod)
    assert (found.key, why.state) == ("slot-0000", "fails")
    assert node.confirming.unlimited == {"slot-0000": {without}}
    node.seen.clear()
    assert node.look(of_pod) == []
    assert node.confirming.unlimited == {}


def test_processes_with_the_shim_are_held(node):
    slot = node.slot()
    for _ in range(2):
        node.runs(slot, preloads=True)
    of_pod = granted(node, "main", main=MAIN)
    assert [node.look(of_pod) for _ in range(3)] == [[], [], []]


def test_slots_are_not_read_again_while_nothing_changes(node):
    slot = node.slot()
    node.runs(slot, preloads=True)
    pods, now = PodsNow((granted(node, "main", main=MAIN),)), [100.0]
    node.confirming.clock = lambda: now[0]
    sight = Sight((), {}, 0.0, granted=True, processes={node.uuid: tuple(node.seen)})

    def findings(sight=sight, pods=pods):
        node.confirming.look(sight, pods)
        return node.confirming.findings

    first = findings()
    assert first["slot-0000"].by == "shim"
    assert findings() is first
    other = PodsNow(pods.pods)
    second = findings(pods=other)
    assert second is not first, "a pod has changed"
    node.slot("slot-0001", uid="u-2")
    third = findings(pods=other)
    assert "slot-0001" in third
    now[0] += 301
    assert findings(pods=other) is not third, "after minutes nothing is believed"
    without = node.runs(slot, preloads=False)
    more = sight._replace(processes={node.uuid: tuple(node.seen)})
    for _ in range(2):
        findings(more, other)
    assert node.confirming.unlimited == {"slot-0000": {without}}


def test_a_container_is_not_taken_for_another_of_its_pod(node):
    main, side = node.slot(), node.slot("slot-0001", container="side")
    node.runs(main, MAIN, preloads=True)
    without = node.runs(side, SIDE, preloads=False)
    of_pod = granted(node, "main", "side", main=MAIN, side=SIDE)
    node.look(of_pod)
    node.look(of_pod)
    assert node.confirming.unlimited == {"slot-0001": {without}}


@pytest.mark.parametrize("ids", [{"fetch": INIT}, {}], ids=["by its ID", "before its ID is known"])
def test_an_init_container_counts_in_the_slot_that_it_uses(node, ids):
    without = node.runs(node.slot(), INIT, preloads=False)
    of_pod = granted(node, "main", init=["fetch"], **ids)
    node.look(of_pod)
    node.look(of_pod)
    assert node.confirming.unlimited == {"slot-0000": {without}}


def test_processes_of_other_pods_are_nothing_to_a_slot(node):
    node.slot()
    node.runs(node.slot("slot-0001", uid="u-2", name="other"), preloads=True)
    assert [node.look(granted(node, "main", main=MAIN)) for _ in range(2)] == [[], []]


def test_a_slot_whose_usage_was_destroyed_holds_nobody(node):
    slot = node.slot()
    without = node.runs(slot, preloads=False)
    (slot.folder / "usage").write_bytes(b"")
    node.look()
    node.look()
    assert node.confirming.unlimited == {"slot-0000": {without}}

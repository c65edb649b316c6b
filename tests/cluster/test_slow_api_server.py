"""An API server that is slow, during binds above all: what is uncertain is settled, and then all that fits is bound."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from cluster.cotenant.asking import agreed, ask_until_it_leads, charged, placed, until
from cluster.cotenant.auditor import Auditor, until_quiet
from cluster.cotenant.delaying import Delay, Delays
from cluster.cotenant.gpunodes import GIB, gpu_node
from cluster.cotenant.installation import FOLDER, Installation
from cluster.cotenant.manifests import container, pod, pods_of
from cluster.cotenant.stuttering import stuttering
from cluster.testbed.api import Api
from cluster.testbed.controlplane import ControlPlane

from cotenant.kube.binding.binder import WITHIN

pytestmark = pytest.mark.timeout(180)
LATE = WITHIN + 2.0
SOON = 15.0
"""Seconds in which all is settled once nothing is slow any more."""


@pytest.fixture(scope="module")
def delays(control_plane: ControlPlane) -> Iterator[Delays]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    started = Delays(control_plane, FOLDER)
    started.process.start()
    started.process.wait()
    yield started
    started.process.stop()


@pytest.fixture(scope="module")
def cotenant(start_cotenant, delays: Delays) -> Installation:
    settings = {"kubeconfig": str(delays.kubeconfig), "leader": {"duration": "9s"}}
    started: Installation = start_cotenant(servers=2, settings=settings)
    return started


@pytest.fixture
def no_scheduler(cotenant: Installation) -> Iterator[None]:
    """The test itself asks the extender, at the moment and in the order that it wants."""
    cotenant.control_plane.scheduler.pause()
    yield
    cotenant.control_plane.scheduler.resume()


@dataclass(frozen=True)
class Case:
    """What is slow when a pod is bound, and what becomes of it."""

    name: str
    binding: tuple[float, float]
    """Seconds by which the Binding, and its answer, are late."""
    change: tuple[float, float]
    """The same for the change that makes a late Binding fail."""
    bound: bool
    certain: bool
    """Before anything is quick again: somebody else may have the room, or never."""

    def delays(self) -> tuple[Delay, Delay]:
        return (
            Delay("POST", f"/pods/{self.name}/binding$", *self.binding),
            Delay("PATCH", f"/pods/{self.name}$", *self.change),
        )


CASES = [
    Case("comes-late", (LATE, 0), (0, 0), bound=False, certain=True),
    Case("answered-late", (0, LATE), (0, 0), bound=True, certain=True),
    Case("comes-late-before-the-change", (LATE, 0), (WITHIN + 0.5, 0), bound=True, certain=False),
    Case("comes-late-after-the-change", (LATE, 0), (0, WITHIN + 0.5), bound=False, certain=False),
    Case("answered-late-as-is-the-change", (0, LATE), (0, WITHIN + 0.5), bound=True, certain=True),
]


def test_a_binding_that_comes_or_is_answered_too_late_is_settled_and_its_room_given_to_one_pod(
    cotenant: Installation, api: Api, namespace: str, hollow_nodes, delays: Delays, no_scheduler: None
):
    """Each case has a node with room for one, and a rival who asks while it is open who has it."""
    nodes = {case.name: f"hollow-{namespace}-{case.name}" for case in CASES}
    hollow_nodes([gpu_node(name, [16 * GIB]) for name in nodes.values()])
    whole = container(memory="16Gi")
    firsts = {case.name: api.create(pods_of(namespace), pod(case.name, whole)) for case in CASES}
    rivals = {case.name: api.create(pods_of(namespace), pod(f"rival-{case.name}", whole)) for case in CASES}
    leader = cotenant.leader()
    assert leader is not None
    time.sleep(0.5)  # both servers have seen them

    def bind(case: Case) -> str:
        return ask_until_it_leads(cotenant, leader, firsts[case.name], nodes[case.name])

    with Auditor(api) as auditor, ThreadPoolExecutor(len(CASES)) as asking:
        with delays.of(*(delay for case in CASES for delay in case.delays())):
            began = time.monotonic()
            for case, error in zip(CASES, asking.map(bind, CASES), strict=True):
                assert "not in time" in error, case
            assert time.monotonic() - began < LATE
            time.sleep(0.3)
            for case in CASES:
                error = ask_until_it_leads(cotenant, leader, rivals[case.name], nodes[case.name])
                assert bool(error) == (case.bound or not case.certain), (case, error)
            time.sleep(max(0.0, began + LATE + 0.5 - time.monotonic()))
        expected = {
            case.name if case.bound else f"rival-{case.name}" for case in CASES if case.bound or case.certain
        }
        until(lambda: charged(cotenant, namespace) == expected, "what is uncertain is settled", SOON)
        assert placed(api, namespace) == expected
        cotenant.control_plane.scheduler.resume()
        until(lambda: len(placed(api, namespace)) == len(CASES), "each node has one pod", SOON)
        until(lambda: agreed(cotenant, api, namespace), "what is charged is what is bound", SOON)
        assert auditor.violations == []


@pytest.mark.parametrize(
    ("stopped", "running", "seconds"), [(0.3, 0.06, 6), (WITHIN + 0.5, 0.4, 9)], ids=["slow", "hardly there"]
)
def test_pods_that_come_and_go_while_it_is_slow_are_bound_soon_after(
    stopped: float,
    running: float,
    seconds: float,
    cotenant: Installation,
    api: Api,
    namespace: str,
    hollow_nodes,
):
    """14 pods of 8Gi, where 12 find room; two that run are deleted meanwhile."""
    hollow_nodes([gpu_node(f"hollow-{namespace}-{number}", [16 * GIB, 16 * GIB]) for number in range(3)])
    half = container(memory="8Gi")
    for name in ("early-0", "early-1"):
        api.create(pods_of(namespace), pod(name, half))
    until(lambda: len(placed(api, namespace)) == 2, "those that came before are bound")
    with Auditor(api) as auditor, ThreadPoolExecutor(8) as people:
        with stuttering(cotenant.control_plane.apiserver, stopped=stopped, running=running):
            began = time.monotonic()
            made = [
                people.submit(api.create, pods_of(namespace), pod(f"pod-{number}", half))
                for number in range(14)
            ]
            gone = [people.submit(api.delete, f"{pods_of(namespace)}/early-{number}") for number in range(2)]
            for each in (*made, *gone):
                each.result()
            time.sleep(max(0.0, began + seconds - time.monotonic()))
        early = {"early-0", "early-1"}
        until(lambda: len(placed(api, namespace) - early) == 12, "all that fit are bound", SOON)
        until(lambda: not placed(api, namespace) & early, "those who were deleted are gone", SOON)
        cotenant.wait()
        until(lambda: agreed(cotenant, api, namespace), "what is charged is what is bound", SOON)
        assert len(charged(cotenant, namespace)) == 12
        assert auditor.violations == []
        api.request("DELETE", pods_of(namespace))
        until_quiet(auditor)
        until(lambda: not charged(cotenant, namespace), "what has ended is not charged", SOON)
        assert auditor.violations == []

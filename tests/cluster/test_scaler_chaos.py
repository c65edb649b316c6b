"""Fifty GpuScalers and fifty annotated workloads, while the leader and the API server are killed at random.

An auditor that reads only the API, and what the queues have had, finds no workload outside its bounds, none released that was
not idle, and none woken without work. COTENANT_CHAOS_SECONDS makes it longer, COTENANT_CHAOS_SEED repeats the load and the faults
of a run.
"""

import os
import random
import time
from collections import Counter

import pytest
from cluster.cotenant.gpunodes import GIB, gpu_node
from cluster.cotenant.hollowworld import HollowWorld
from cluster.cotenant.installation import Installation
from cluster.cotenant.kills import Kills
from cluster.cotenant.redisqueues import URL, redis_server
from cluster.cotenant.scaledworkloads import create_all, define_scalers, some_of_each
from cluster.cotenant.scalerauditor import ScalerAuditor, Verdict
from cluster.cotenant.scalerrules import POLL
from cluster.testbed.api import Api
from cluster.testbed.component import Component
from cluster.testbed.controlplane import ControlPlane

SECONDS = float(os.environ.get("COTENANT_CHAOS_SECONDS", "30"))
SEED = int(os.environ.get("COTENANT_CHAOS_SEED", random.randrange(10**6)))
ENOUGH = 5
"""Releases and wakes of each kind that must have been seen."""
NODES = [f"hollow-{number}" for number in range(12)]


@pytest.fixture(scope="module")
def queue_server():
    server: Component = redis_server()
    server.start()
    server.wait()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def cotenant(start_cotenant, control_plane: ControlPlane) -> Installation:
    define_scalers(control_plane.api)
    started: Installation = start_cotenant(servers=3, settings={"scaler": {"poll": f"{POLL:g}s"}})
    return started


@pytest.mark.timeout(SECONDS + 300)
def test_none_leaves_its_bounds_is_released_at_work_or_wakes_for_nothing(
    cotenant: Installation,
    control_plane: ControlPlane,
    api: Api,
    namespace: str,
    hollow_nodes,
    queue_server: Component,
    capsys,
):
    hollow_nodes([gpu_node(name, [16 * GIB] * 4) for name in NODES])
    workloads = some_of_each(50, 50, random.Random(SEED))
    with (
        Kills(cotenant, SEED) as kills,
        ScalerAuditor(api, namespace, workloads) as auditor,
        HollowWorld(control_plane.kubeconfig(), namespace, NODES, workloads, SEED) as world,
    ):
        create_all(api, namespace, workloads, URL)
        world.traffic.begin()
        kills.go_on(SECONDS)
        world.check()
        kills.start_ended()
        cotenant.wait(120)
        _until_each_has_happened(auditor, world)
        world.until_worked_off(60)
        verdict = _judged(auditor, world)
        told = Counter(each["reason"] for each in api.items(f"/api/v1/namespaces/{namespace}/events"))
        with capsys.disabled():
            _report(kills, auditor, world, verdict, told)
        assert verdict.violations == []
        assert world.traffic.forgotten == []
        assert told["ScaledByHand"] == 0, "nobody has scaled a target of a GpuScaler"
        assert set(auditor.known()) == {each.name for each in workloads}
        assert kills.leaders
        assert kills.api_servers


def _judged(auditor: ScalerAuditor, world: HollowWorld) -> Verdict:
    messages = {each.name: list(each.messages) for each in world.queues}
    return auditor.judge(messages, list(world.traffic.attempts), list(world.traffic.works))


def _until_each_has_happened(auditor: ScalerAuditor, world: HollowWorld, seconds: float = 90) -> None:
    """Scalers and annotations release, and what they released wakes: else there would be nothing to judge."""
    end = time.monotonic() + seconds
    while min(*(verdict := _judged(auditor, world)).released.values(), *verdict.woken.values()) < ENOUGH:
        assert time.monotonic() < end, f"released {verdict.released}, woken {verdict.woken}"
        time.sleep(0.5)


def _report(
    kills: Kills, auditor: ScalerAuditor, world: HollowWorld, verdict: Verdict, told: Counter[str]
) -> None:
    print(
        f"\nchaos of scalers, seed {SEED}, {SECONDS:.0f} s: leader killed {kills.leaders} times, API server {kills.api_servers}; "
        f"{sum(len(each.messages) for each in world.queues)} messages, {world.traffic.done} done, "
        f"{world.traffic.orphaned} taken over; {len(world.traffic.works)} programs on GPUs; "
        f"{world.agents.conditions} conditions written; {auditor.versions} versions seen, {auditor.relists} lists"
    )
    steps = sum(map(len, auditor.steps.values()))
    print(
        f"{steps} steps; released {verdict.released}, woken {verdict.woken}; idle beyond the threshold at a release: "
        f"{min(verdict.margins, default=0):.1f} s at least; {len(verdict.violations)} violations"
    )
    print(
        f"released although a program had begun to use the GPU, which its agent had not written: {len(verdict.unseen)}, "
        f"{max(verdict.unseen, default=0):.1f} s at most"
    )
    print(f"{len(world.traffic.attempts)} times somebody woke one; {world.traffic.forgotten[:3]}")
    print("; ".join([*kills.faults, *(f"ended by itself: {each}" for each in kills.ended)]))
    print(dict(told))
    for each in verdict.violations:
        print(each)

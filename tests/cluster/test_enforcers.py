"""What the driver holds on a real kubelet: limits on the cgroups of containers, for programs that no preload reaches."""

import os
import signal
import time
from collections.abc import Iterator

import pytest
from cluster.cotenant.granted import CONTEXT, GIB
from cluster.cotenant.held import PIECE, STATE, Held, started
from cluster.testbed.cluster import Cluster

from cotenant.core.grant import Share
from cotenant.dialects.pod_grant import SlotGrant
from cotenant.hardware.standin import driver as standin


@pytest.fixture(scope="module")
def with_driver(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    yield from started(cluster, tmp_path_factory.mktemp("static"), simulate="2xA100-80GB@615.20")


@pytest.fixture
def driver(with_driver: Held, namespace: str) -> Iterator[Held]:
    with with_driver.within(namespace):
        yield with_driver


def test_the_driver_stops_a_static_program_at_its_containers_limit_and_not_its_sibling(driver: Held):
    """Two containers of one pod on one card, with different limits: both want 4Gi."""
    pod = driver.create(
        "two",
        driver.static("small", 64, 20),
        driver.static("large", 64, 20),
    )
    card = driver.cards[0]
    small, large = SlotGrant("small", (Share(card, 2 * GIB),)), SlotGrant("large", (Share(card, 6 * GIB),))
    driver.bind(pod, driver.grant(pod, small, large))
    ended = driver.until_ended("two", "small")
    assert ended["exitCode"] == 137
    held = driver.until_held("two", "Driver", says="container large: limit of 6Gi on GPU 0 held by driver")
    assert held["status"] == "True"
    assert held["message"].startswith("asked driver, holds driver: ")
    end = time.monotonic() + 20
    while driver.got("two", "large") < 4 * GIB:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert driver.limits()[driver.ids("two")["large"], card] == 6 * GIB
    assert any(
        "container large: limit of 6Gi on GPU 0 held by driver" in each
        for each in driver.events("two", "GPULimitHeld")
    )
    driver.api.delete(driver.path("two"))
    driver.api.until_gone(driver.path("two"))
    end = time.monotonic() + 20
    while driver.limits():
        assert time.monotonic() < end, driver.limits()
        time.sleep(0.1)


def test_a_program_with_the_shim_is_refused_cleanly_and_stays(driver: Held):
    """The shim is in front: at the same limit it says no before the driver would end the program."""
    driver.run("polite", 1, 3 * GIB)
    driver.until_running("polite")
    assert driver.told("polite")["got"] == 3 * GIB - CONTEXT
    driver.until_held("polite", "Driver", says="container main: limit of 3Gi on GPU 1 held by driver")
    assert (
        "terminated"
        not in driver.api.get(driver.path("polite"))["status"]["containerStatuses"][0]["lastState"]
    )


def test_each_card_of_a_container_has_its_limit_and_a_restart_gets_it_anew(driver: Held):
    pod = driver.create(
        "both", driver.static("main", 16, 20), init=(driver.static("prepare", 1, 0, restartPolicy="Always"),)
    )
    first, second = driver.cards
    slots = (
        SlotGrant("prepare", (Share(first, GIB),)),
        SlotGrant("main", (Share(first, 2 * GIB), Share(second, 3 * GIB))),
    )
    driver.bind(pod, driver.grant(pod, *slots))
    driver.until_held("both", "Driver", says="container main: limit of 2Gi on GPU 0 and 3Gi on GPU 1")
    before = driver.ids("both")["main"]
    assert {driver.limits()[before, card] for card in driver.cards} == {2 * GIB, 3 * GIB}
    [process] = [each for each in standin.StandIn(STATE).processes() if sum(each.used.values()) > PIECE]
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    end = time.monotonic() + 40
    while (now := driver.ids("both")["main"]) in (before, "") or (now, second) not in driver.limits():
        assert time.monotonic() < end, driver.limits()
        time.sleep(0.1)
    assert (before, second) not in driver.limits()


@pytest.mark.parametrize("mode", ["observe", "warn"])
def test_where_nothing_may_be_stopped_the_driver_has_no_limit(driver: Held, mode: str):
    driver.run("free", 0, GIB, driver.static("main", 24, 0), annotations={"cotenant.dev/enforce": mode})
    held = driver.until_held("free", "Watch", says="asked driver, holds watch: container main")
    assert held["status"] == "False"
    assert driver.limits() == {}
    assert driver.got("free") == 24 * PIECE


@pytest.mark.parametrize("step", ["before", "after"])
def test_an_agent_killed_at_the_limit_leaves_nothing_undone(driver: Held, step: str):
    driver.agent.stop()
    killed = driver.killed_agent(step, "killed_at_limit")
    driver.run("through", 0, GIB, driver.static("main", 1000, 100))
    assert killed.process is not None
    killed.process.wait(60)
    assert f"killed {step} the limit" in killed.tail(400)
    if step == "before":
        assert driver.limits() == {}
        driver.start_agent()
    assert driver.until_ended("through", seconds=60)["exitCode"] == 137
    if step == "after":
        assert driver.got("through") <= GIB
        driver.start_agent()

"""Who passes its grant without the shim is named, on a real kubelet with a driver that limits nothing."""

import http.client
import re
import time
from collections.abc import Iterator

import pytest
from cluster.cotenant.granted import CONTEXT, GIB
from cluster.cotenant.held import STATE, Held, started
from cluster.testbed.cluster import Cluster

from cotenant.core.grant import Share
from cotenant.dialects.pod_grant import SlotGrant
from cotenant.hardware.standin import driver as standin


@pytest.fixture(scope="module")
def without_driver(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """A driver without such limits, and surveys as seldom as they are by default."""
    yield from started(cluster, tmp_path_factory.mktemp("static"), survey="10s")


@pytest.fixture
def watched(without_driver: Held, namespace: str) -> Iterator[Held]:
    with without_driver.within(namespace):
        yield without_driver


def test_who_passes_its_grant_without_the_shim_is_named_within_ten_seconds(watched: Held):
    driver = standin.StandIn(STATE)
    pod = watched.create("greedy", watched.static("main", 48, 50), watched.container("side"))
    card = watched.cards[0]
    slots = (SlotGrant("main", (Share(card, 2 * GIB),)), SlotGrant("side", (Share(card, GIB),)))
    watched.bind(pod, watched.grant(pod, *slots))
    end = time.monotonic() + 60
    while max([sum(each.used.values()) for each in driver.processes()], default=0) <= 2 * GIB + (16 << 20):
        assert time.monotonic() < end
        time.sleep(0.02)
    passed = time.monotonic()
    held = watched.until_held("greedy", "OverLimit")
    took = time.monotonic() - passed
    assert took < 10, took
    assert held["status"] == "False"
    found = re.fullmatch(
        r"asked shim, holds watch: container main holds ([0-9.]+)Gi on GPU 0, ([0-9.]+)(Mi|Gi) more than its limit of "
        r"2Gi \(process [0-9]+ \(holder\) with [0-9.]+Gi\)",
        held["message"],
    )
    assert found, held["message"]
    [told] = watched.events("greedy", "GPUOverLimit")
    assert "container main holds" in told
    time.sleep(3)
    assert watched.condition("greedy") == held, "figures alone are not written again"
    assert watched.api.get(watched.path("greedy"))["status"]["phase"] == "Running", "agents evict nobody"


def test_a_program_without_the_shim_is_named_although_it_is_within_its_grant(watched: Held):
    watched.run("modest", 1, 4 * GIB, watched.static("main", 8, 0))
    held = watched.until_held("modest", "NotHeld")
    assert re.search(
        r"container main uses a GPU without its limit: process [0-9]+ \(holder\) with 512Mi on GPU 1",
        held["message"],
    )
    assert watched.events("modest", "GPULimitNotLive")


def test_a_driver_that_is_set_and_not_there_keeps_the_agent_unready_and_says_why(watched: Held):
    watched.agent.stop()
    settings, watched._settings = watched._settings, 'enforcer = "driver"\n'
    try:
        watched.settle()
        watched.agent.start()
        end = time.monotonic() + 30
        while "enforcer of memory not usable" not in watched.agent.tail(200):
            assert time.monotonic() < end
            time.sleep(0.1)
        said = ready()
        assert (
            "agent.enforcer: driver is asked for and cannot be used: the driver (580.95.05) has no limits"
            in said
        )
        watched.until_offered()
        watched.run("still", 0, GIB)
        watched.until_running("still")
        assert watched.told("still")["got"] == GIB - CONTEXT
        watched.until_held(
            "still", "Shim", says="asked driver, holds shim: container main: limit of 1Gi on GPU 0"
        )
    finally:
        watched.agent.stop()
        watched._settings = settings


def ready() -> str:
    end = time.monotonic() + 20
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", 8889, timeout=5)
        try:
            connection.request("GET", "/readyz")
            said = connection.getresponse().read().decode()
            if ("agent.enforcer" in said and "not registered" not in said) or time.monotonic() > end:
                return said
        except OSError:
            assert time.monotonic() < end
        finally:
            connection.close()
        time.sleep(0.2)

"""What Prometheus reads, by name and label; served plainly on loopback and by TLS elsewhere."""

from __future__ import annotations

import asyncio
import json
import ssl
import time

import aiohttp
import pytest
from aiohttp import web
from kube.apiserver import unused_ports
from prometheus_client.parser import text_string_to_metric_families

from cotenant.core.errors import CotenantError
from cotenant.core.gpu import GPU
from cotenant.dialects.pod_grant import read_grant
from cotenant.hardware.nvml import CardReading
from cotenant.hardware.slots import CardLimit, Limits, ProcessUsage, Usage
from cotenant.kube.agent.cards.cgroups import Owner
from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.agent.metrics import AgentHealth, ContainerSlot, Figures, container_ids, expose, moment
from cotenant.kube.agent.serving import serving
from cotenant.kube.api.objects import ContainerStatus, Meta, Pod, PodStatus

GIB = 2**30


def figures(**changes) -> Figures:
    cards = (
        CardReading(GPU("GPU-0", 0, "T4", 16 * GIB), 5 * GIB, utilization=40),
        CardReading(GPU("GPU-1", 1, "T4", 16 * GIB, healthy=False), 0, problem="lost"),
    )
    share = [{"uuid": "GPU-0", "memory": 4 * GIB}, {"uuid": "GPU-1", "memory": GIB}]
    grant = {"version": 1, "uid": "u", "slots": [{"container": "main", "shares": share}]}
    slot = ContainerSlot(
        "u",
        "web",
        'odd"name',
        "main",
        Limits("u", "enforce", (CardLimit("GPU-0", 4 * GIB, 1), CardLimit("GPU-1", GIB, 1))),
        Usage(
            (ProcessUsage(1, (GIB, 0, *[0] * 14)), ProcessUsage(2, (GIB, 7, *[0] * 14))),
            (3 * GIB, 7, *[0] * 14),
            denied=4,
            over=0,
            last_active=time.monotonic_ns() - 30 * 10**9,
        ),
    )
    whole = Figures(
        "n1",
        Sight(cards, {"GPU-0": GIB}, time.monotonic() - 3, granted=True),
        {"u": read_grant(json.dumps(grant), "u")},
        [slot],
        AgentHealth(registered=True, pod_resources=False, api=True, published=7, version="1.0"),
        *moment(),
    )
    return whole._replace(**changes)


def read(shown: Figures) -> dict[str, dict[tuple[str, ...], float]]:
    """Value by name and by the label values, sorted by label."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(expose(shown).decode()):
        assert family.documentation
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in sorted(sample.labels))
            assert labels not in found.setdefault(sample.name, {}), "one figure, one line"
            found[sample.name][labels] = sample.value
    return found


def test_cards_are_told_with_what_is_granted_and_used():
    told = read(figures())
    first, second = ("0", "T4", "n1", "GPU-0"), ("1", "T4", "n1", "GPU-1")
    assert told["cotenant_gpu_memory_bytes"] == {first: 16 * GIB, second: 16 * GIB}
    assert told["cotenant_gpu_memory_granted_bytes"] == {first: 4 * GIB, second: GIB}
    assert told["cotenant_gpu_memory_used_bytes"] == {first: 5 * GIB, second: 0}
    assert told["cotenant_gpu_memory_outside_bytes"] == {first: GIB, second: 0}
    assert told["cotenant_gpu_utilization_ratio"] == {first: 0.4}
    assert told["cotenant_gpu_healthy"] == {first: 1, second: 0}


def test_containers_are_told_card_by_card_and_sums_count_nothing_twice():
    told = read(figures())
    whose = ("main", "web", 'odd"name')
    assert told["cotenant_container_memory_limit_bytes"] == {
        (*whose, "GPU-0"): 4 * GIB,
        (*whose, "GPU-1"): GIB,
    }
    assert told["cotenant_container_memory_used_bytes"] == {(*whose, "GPU-0"): 2 * GIB, (*whose, "GPU-1"): 7}
    assert told["cotenant_container_memory_peak_bytes"] == {(*whose, "GPU-0"): 3 * GIB, (*whose, "GPU-1"): 7}
    assert told["cotenant_container_denied_allocations_total"] == {whose: 4}
    active = told["cotenant_container_last_activity_timestamp_seconds"][whose]
    assert active == pytest.approx(time.time() - 30, abs=5)


def test_the_agent_tells_of_itself():
    told = read(figures())
    assert told["cotenant_agent_info"] == {("n1", "1.0"): 1}
    assert told["cotenant_agent_registered"] == {(): 1}
    assert told["cotenant_agent_pod_resources_reachable"] == {(): 0}
    assert told["cotenant_agent_api_reachable"] == {(): 1}
    assert told["cotenant_agent_publishes_total"] == {(): 7}
    assert 3 <= told["cotenant_agent_survey_age_seconds"][()] < 60


def test_before_the_first_look_there_is_only_the_agent():
    told = read(figures(sight=None, slots=[]))
    assert "cotenant_agent_survey_age_seconds" not in told
    assert not any("gpu" in name or "container" in name for name in told)


def test_a_container_that_did_nothing_yet_has_no_last_activity():
    (slot,) = figures().slots
    told = read(figures(slots=[slot._replace(usage=slot.usage._replace(last_active=0))]))
    assert "cotenant_container_last_activity_timestamp_seconds" not in told


ID, OTHER_ID = "9f" * 32, "7e" * 32


def utilization(by_gpu: dict[str, dict[Owner, int]], **changes) -> dict[tuple[str, ...], float]:
    sight = figures().sight._replace(busy=by_gpu)
    shown = read(figures(**{"sight": sight, "containers": {("u", "main"): ID}, **changes}))
    return shown.get("cotenant_container_utilization_ratio", {})


def test_a_container_s_share_of_a_gpu_s_time_is_that_of_its_processes():
    whose = ("main", "web", 'odd"name')
    of_two = {Owner("u", f"cri-{ID}.scope"): 30, Owner("u", f"cri-{OTHER_ID}.scope"): 50, Owner("v", ID): 9}
    assert utilization({"GPU-0": of_two, "GPU-1": {}}) == {(*whose, "GPU-0"): 0.3, (*whose, "GPU-1"): 0}
    assert utilization({"GPU-0": {Owner("u", ID): 130}}) == {(*whose, "GPU-0"): 1}


def test_utilization_is_absent_where_it_is_not_known():
    assert utilization({}) == {}, "the driver does not report it"
    assert utilization({"GPU-0": {Owner("u", ID): 30}}, containers={}) == {}
    assert utilization({"GPU-0": {Owner("u", ID): 30}}, containers={("u", "main"): ""}) == {}


def test_container_ids_are_read_from_the_status():
    status = PodStatus(
        container_statuses=(ContainerStatus("main", container_id=f"containerd://{ID}"), ContainerStatus("b")),
        init_container_statuses=(ContainerStatus("side", container_id=f"cri-o://{OTHER_ID}"),),
    )
    found = container_ids([Pod(metadata=Meta(name="a", uid="u"), status=status)])
    assert found == {("u", "main"): ID, ("u", "b"): "", ("u", "side"): OTHER_ID}


async def show(_: web.Request) -> web.Response:
    return web.Response(text="cotenant_agent_registered 1.0\n")


ROUTES = [web.get("/metrics", show)]


async def fetched(url: str, tls: ssl.SSLContext | bool = True) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url, ssl=tls) as answer:
        return answer.status, await answer.text()


@pytest.mark.asyncio
async def test_a_loopback_address_is_served_plainly():
    async with serving("127.0.0.1", unused_ports(1)[0], "n1", ROUTES) as url:
        assert url.startswith("http://")
        assert await fetched(f"{url}/metrics") == (200, "cotenant_agent_registered 1.0\n")
        assert (await fetched(f"{url}/"))[0] == 404


@pytest.mark.asyncio
async def test_other_addresses_are_served_by_tls():
    port = unused_ports(1)[0]
    async with serving("", port, "n1", ROUTES) as url:
        assert url == f"https://n1:{port}"
        trusting = ssl.create_default_context()
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        local = f"https://127.0.0.1:{port}/metrics"
        assert (await fetched(local, trusting))[0] == 200
        with pytest.raises(aiohttp.ClientError):
            await fetched(f"http://127.0.0.1:{port}/metrics")


@pytest.mark.asyncio
async def test_a_port_that_is_taken_is_told_by_the_setting():
    port = unused_ports(1)[0]
    async with serving("127.0.0.1", port, "n1", ROUTES):
        with pytest.raises(CotenantError, match=r"agent.address, agent.port: cannot listen on 127.0.0.1"):
            async with serving("127.0.0.1", port, "n1", ROUTES):
                await asyncio.sleep(0)

"""What Prometheus reads, by name and label; served plainly on loopback and by TLS elsewhere."""

from __future__ import annotations

import asyncio
import ssl
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from aiohttp import web
from kube.apiserver import unused_ports
from prometheus_client.parser import text_string_to_metric_families

from cotenant.core.errors import CotenantError
from cotenant.core.gpu import GPU
from cotenant.kube.agent.metrics import AgentHealth, Figures, expose
from cotenant.kube.agent.serving import serving
from cotenant.kube.certificates.certificates import issue_self_signed
from cotenant.kube.certificates.live_context import server_context
from cotenant.observe.view import GpuView, GrantView, NodeView, ShareView, View

GIB = 2**30


def figures(view: View | None = None, **changes) -> Figures:
    gpus = (
        GpuView(
            GPU("GPU-0", 0, "T4", 16 * GIB),
            "n1",
            outside=GIB,
            shares=(ShareView("u", "a", "GPU-0", 4 * GIB),),
            used=5 * GIB,
            utilization=40,
        ),
        GpuView(
            GPU("GPU-1", 1, "T4", 16 * GIB, healthy=False),
            "n1",
            problem="lost",
            shares=(ShareView("u", "a", "GPU-1", GIB),),
            used=0,
        ),
    )
    grant = GrantView(
        "u",
        'odd"name',
        (
            ShareView("u", 'odd"name', "GPU-0", 4 * GIB, used=2 * GIB, peak=3 * GIB, utilization=30),
            ShareView("u", 'odd"name', "GPU-1", GIB, used=7, peak=7),
        ),
        "web",
        container="main",
        denied=4,
        idle_seconds=30.0,
    )
    whole = Figures(
        view or View((NodeView("n1", gpus),), (grant,)),
        AgentHealth(registered=True, pod_resources=False, api=True, published=7, version="1.0"),
        time.time(),
        3.0,
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
    assert told["cotenant_gpu_memory_outside_bytes"] == {first: 3 * GIB, second: 0}, "2 GiB are a container's"
    assert told["cotenant_gpu_memory_free_bytes"] == {first: 11 * GIB, second: 0}
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


def test_before_the_first_survey_there_is_only_the_agent():
    told = read(figures(View((NodeView("n1"),)), survey_age=None))
    assert "cotenant_agent_survey_age_seconds" not in told
    assert not any("gpu" in name or "container" in name for name in told)


def test_a_container_that_did_nothing_yet_has_no_last_activity():
    shown = figures()
    (grant,) = shown.view.grants
    told = read(figures(replace(shown.view, grants=(replace(grant, idle_seconds=None),))))
    assert "cotenant_container_last_activity_timestamp_seconds" not in told


def test_a_container_s_utilization_is_absent_where_it_is_not_known():
    told = read(figures())
    assert told["cotenant_container_utilization_ratio"] == {("main", "web", 'odd"name', "GPU-0"): 0.3}


async def show(_: web.Request) -> web.Response:
    return web.Response(text="cotenant_agent_registered 1.0\n")


ROUTES = [web.get("/metrics", show)]
TLS = server_context(issue_self_signed("test", ["n1"], datetime.now(UTC), timedelta(days=1)))


async def fetched(url: str, tls: ssl.SSLContext | bool = True) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url, ssl=tls) as answer:
        return answer.status, await answer.text()


@pytest.mark.asyncio
async def test_a_loopback_address_is_served_plainly():
    async with serving("127.0.0.1", unused_ports(1)[0], "n1", ROUTES, lambda: TLS) as url:
        assert url.startswith("http://")
        assert await fetched(f"{url}/metrics") == (200, "cotenant_agent_registered 1.0\n")
        assert (await fetched(f"{url}/"))[0] == 404


@pytest.mark.asyncio
async def test_other_addresses_are_served_by_tls():
    port = unused_ports(1)[0]
    async with serving("", port, "n1", ROUTES, lambda: TLS) as url:
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
    async with serving("127.0.0.1", port, "n1", ROUTES, lambda: TLS):
        with pytest.raises(CotenantError, match=r"agent.address, agent.port: cannot listen on 127.0.0.1"):
            async with serving("127.0.0.1", port, "n1", ROUTES, lambda: TLS):
                await asyncio.sleep(0)

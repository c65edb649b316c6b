"""A server is a list of parts: one more is a class and its place in the list. On a real API server."""

import asyncio
import contextlib
import ssl
import tomllib

import aiohttp
import pytest
import pytest_asyncio
from kube.apiserver import unused_ports
from kube.server.example import Example, ExampleSettings

from cotenant.core.errors import CotenantError
from cotenant.kube.api.errors import Forbidden, Unreachable
from cotenant.kube.api.resources import LEASES, PODS
from cotenant.kube.api.watcher import Watcher
from cotenant.kube.binding.binder import Binder, NotBound
from cotenant.kube.parts.part import Part
from cotenant.kube.parts.running import PartFailed
from cotenant.kube.parts.settings import settings_type
from cotenant.kube.server import server as module
from cotenant.kube.server.parts import PARTS
from cotenant.kube.server.server import Server
from cotenant.settings.loading import read_settings

pytestmark = pytest.mark.asyncio

TEXT = """
[example]
greeting = "good morning"
[server]
address = "127.0.0.1"
[leader]
duration = "9s"
"""


class Asked:
    """A server that runs, and who asks it."""

    def __init__(self, server, url, session, running):
        self.server, self.url, self.session, self.running = server, url, session, running

    async def get(self, path):
        async with self.session.get(f"{self.url}{path}") as answer:
            return answer.status, await answer.text()

    async def until(self, path, words, within=40.0):
        async with asyncio.timeout(within):
            while True:
                with contextlib.suppress(aiohttp.ClientConnectorError):
                    status, text = await self.get(path)
                    if words in text:
                        return status, text
                await asyncio.sleep(0.05)


@pytest_asyncio.fixture
async def start(client, namespace):
    """Starts a server with these parts after its own."""
    async with contextlib.AsyncExitStack() as stop:

        async def started(*more):
            kinds = (*PARTS, *more)
            webhook, extender = unused_ports(2)
            ports = {"webhook": {"port": webhook}, "extender": {"port": extender}}
            text = TEXT if Example in more else TEXT.replace('[example]\ngreeting = "good morning"\n', "")
            data = {**tomllib.loads(text), **ports, "namespace": namespace}
            server = Server(read_settings(settings_type(kinds), data, {}), client, {}, kinds)
            running = asyncio.create_task(server.run())
            stop.push_async_callback(ended, running)
            unverified = ssl.create_default_context()
            unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
            session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=unverified))
            await stop.enter_async_context(session)
            return Asked(server, f"https://127.0.0.1:{webhook}", session, running)

        async def ended(running):
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, PartFailed):
                await running

        yield started


async def test_one_more_part_brings_its_settings_metric_route_and_fields(start, client, namespace):
    container = {"name": "main", "image": "x"}
    meta = {
        "name": "web-1",
        "labels": {"pod-template-hash": "5d7f"},
        "annotations": {"noise": "x" * 60},
    }
    await client.create(PODS, {"metadata": meta, "spec": {"containers": [container]}}, namespace)
    asked = await start(Example)
    await asked.until("/metrics", "cotenant_leader 1.0")
    _, metrics = await asked.get("/metrics")
    assert "example_terms 1.0" in metrics
    assert 'cotenant_part_ready{part="example"} 1.0' in metrics
    status, greetings = await asked.get("/example")
    assert (status, '"good morning, 5d7f"' in greetings) == (200, True), "beside those of other tests' pods"
    (kept,) = [pod for pod in asked.server.context.informers[PODS].store if pod.metadata.name == "web-1"]
    assert kept.metadata.labels == {"pod-template-hash": "5d7f"}
    assert kept.metadata.annotations == {}, "what no part needs is not kept"
    status, ready = await asked.get("/readyz")
    assert status == 200, ready
    assert {"[+]certificates ok", "[+]ledger ok", "[+]line ok", "[+]example ok"} <= set(ready.splitlines())
    assert asked.server.context.section(ExampleSettings).pause == 5.0


async def test_a_leaders_part_that_fails_is_named_and_ends_the_term_not_the_server(start, caplog):
    class Failing(Part):
        name, leader_only = "failing", True

        async def run(self):
            raise RuntimeError("out of ideas")

    asked = await start(Failing)
    status, _ = await asked.until("/readyz", "[-]failing: failed: RuntimeError('out of ideas')")
    assert status == 200, "the webhook needs no leader"
    _, metrics = await asked.until("/metrics", "cotenant_leader 0.0")
    assert 'cotenant_part_failures_total{part="failing"} 1.0' in metrics
    assert not asked.running.done()
    assert "part failed" in caplog.text
    assert "part=failing" in caplog.text


async def test_a_part_that_every_server_needs_takes_it_down_and_readiness_says_which(start, monkeypatch):
    monkeypatch.setattr(module, "LINGER", 2.0)
    fall = asyncio.Event()

    class Falling(Part):
        name = "falling"

        async def run(self):
            await fall.wait()

    asked = await start(Falling)
    await asked.until("/readyz", "[+]falling ok")
    fall.set()
    status, _ = await asked.until("/readyz", "[-]falling: ended")
    assert status == 503
    with pytest.raises(PartFailed, match="part falling ended"):
        await asyncio.wait_for(asked.running, 20)


async def test_a_term_that_cannot_begin_is_visible_with_its_reason(start):
    class Stuck(Part):
        name, leader_only = "stuck", True

        async def begin(self, term):
            raise CotenantError("the queue does not answer")

    asked = await start(Stuck)
    status, ready = await asked.until("/readyz", "stuck: the queue does not answer")
    assert status == 200
    assert any(line.startswith("[-]term ") for line in ready.splitlines()), ready
    _, state = await asked.get("/state")
    assert '"leads":false' in state
    assert '"waits_for":"stuck: the queue does not answer"' in state
    _, metrics = await asked.get("/metrics")
    pending = [
        line for line in metrics.splitlines() if line.startswith("cotenant_leader_term_pending_seconds ")
    ]
    assert float(pending[0].split()[1]) > 0
    assert "cotenant_leader 0.0" in metrics


async def test_a_server_that_cannot_list_pods_still_serves_the_webhook(start, monkeypatch):

    listed = Watcher._list

    async def refused(self):
        if self.resource.plural == "pods":
            raise Forbidden("list pods: not allowed")
        await listed(self)

    monkeypatch.setattr(Watcher, "_list", refused)
    asked = await start()
    status, ready = await asked.until("/readyz", "[-]ledger: pods: list pods: not allowed")
    assert status == 200, ready
    _, ready = await asked.until("/readyz", "[-]term ")
    assert "ledger: pods: list pods: not allowed" in ready


async def test_a_server_that_cannot_list_gpu_scalers_leads_and_its_state_says_so(start, monkeypatch):
    listed = Watcher._list

    async def refused(self):
        if self.resource.plural == "gpuscalers":
            raise Forbidden("list gpuscalers: not allowed")
        await listed(self)

    monkeypatch.setattr(Watcher, "_list", refused)
    asked = await start()
    await asked.until("/metrics", "cotenant_leader 1.0")
    _, state = await asked.until("/state", '"waits":{"scaler":"gpuscalers: list gpuscalers: not allowed"}')
    assert '"leads":true' in state


LONGEST = 262_144
"""Bytes of annotations that an API server lets a pod have: one more is refused, in whatever change."""


async def inherited(client, namespace):
    """A leader has died, and a pod waits that nobody can annotate."""
    slot = {"cotenant.dev/gpu-memory": "4Gi", "cotenant.dev/gpu-slot": "1"}
    container = {"name": "main", "image": "x", "resources": {"limits": slot, "requests": slot}}
    full = {"full": "x" * (LONGEST - len("full"))}
    await client.create(
        PODS,
        {"metadata": {"name": "waits", "annotations": full}, "spec": {"containers": [container]}},
        namespace,
    )
    dead = {"holderIdentity": "dead", "leaseDurationSeconds": 1, "leaseTransitions": 1}
    await client.create(LEASES, {"metadata": {"name": "cotenant-server"}, "spec": dead}, namespace)


async def test_a_waiting_pod_that_cannot_be_changed_does_not_stop_a_new_leader(start, client, namespace):
    await inherited(client, namespace)
    asked = await start()
    _, ready = await asked.until("/readyz", "1 pods that wait are not fenced yet: patch pods")
    assert "[-]term 2: ledger: 1 pods that wait are not fenced yet" in ready
    await asked.until("/metrics", "cotenant_leader 1.0")
    pod = await client.get(PODS, "waits", namespace)
    with pytest.raises(NotBound, match=r"cannot be changed.*Too long"):
        await asked.server.context.use(Binder).bind(namespace, "waits", pod.metadata.uid, "n1")


async def test_a_leader_stopped_in_the_middle_of_its_fence_lets_the_lease_expire(start, client, namespace):
    await inherited(client, namespace)
    asked = await start()
    await asked.until("/readyz", "not fenced yet")
    asked.running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asked.running
    lease = await client.get(LEASES, "cotenant-server", namespace)
    assert lease.spec.holder_identity == asked.server.election.identity


async def test_a_leader_with_a_binding_in_doubt_when_it_is_stopped_lets_the_lease_expire(
    start, client, namespace, monkeypatch
):
    async def lost(*_, **__):
        raise Unreachable("not in time", uncertain=True)

    await client.create(LEASES, {"metadata": {"name": "cotenant-server"}}, namespace)
    asked = await start()
    await asked.until("/metrics", "cotenant_leader 1.0")
    body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    pod = await client.create(PODS, body, namespace)
    for verb in ("bind", "merge_patch"):
        monkeypatch.setattr(client, verb, lost)
    with pytest.raises(Unreachable):
        await asked.server.context.use(Binder).bind(namespace, "a", pod.metadata.uid, "n1")
    asked.running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asked.running
    lease = await client.get(LEASES, "cotenant-server", namespace)
    assert lease.spec.holder_identity == asked.server.election.identity

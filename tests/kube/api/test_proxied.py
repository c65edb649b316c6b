"""An API server that is reached through a proxy, and what is said where the proxy does not let us."""

import asyncio
import dataclasses
import logging
import sys
import time
import traceback
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from kube import replay
from kube.connect_proxy import proxying
from kube.replay import QUICK, bookmark, event, loopback_certificate, pod, replaying, says, streams, waits

from cotenant.kube.api.auth.credential_file import CredentialFile
from cotenant.kube.api.auth.credentials import StoredCredentials
from cotenant.kube.api.auth.proxy import proxy_from_url
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import KubeError, ProxyDenied, Unreachable, Untrusted
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import PODS
from cotenant.kube.certificates import certificates
from cotenant.kube.certificates.live_context import server_context

pytestmark = pytest.mark.asyncio
SECRET = "s3cr3t"
AUTHORIZATION = "Basic dXNlcjpzM2NyM3Q="  # user:s3cr3t


@pytest.fixture(autouse=True)
def in_tls(monkeypatch):
    """Servers have a certificate; each test sets the proxy itself."""
    monkeypatch.setattr(replay, "route", replay.PROXIED)


@asynccontextmanager
async def client_through(server, proxy, scheme="http", user="", **access):
    chosen = proxy_from_url(f"{scheme}://{user}127.0.0.1:{proxy.port}", "proxy-url")
    async with Client(dataclasses.replace(server.access, proxy=chosen, **access), QUICK) as client:
        yield client


@asynccontextmanager
async def proxied(answer, user="", scheme="http", tls=None, **proxy):
    """A server, a proxy, and a client that reaches the server through the proxy."""
    async with (
        replaying(answer) as server,
        proxying(tls, **proxy) as between,
        client_through(server, between, scheme, user) as client,
    ):
        yield server, between, client


async def test_the_proxy_is_asked_to_connect_once_and_the_connection_is_used_again():
    async with proxied(says(pod("a", 1)), user=f"user:{SECRET}@", authorization=AUTHORIZATION) as (
        server,
        proxy,
        client,
    ):
        for _ in range(3):
            assert (await client.get(PODS, "a", "web")).metadata.uid == "uid-a"
    assert proxy.targets == [server.url.removeprefix("https://")]
    assert all("Proxy-Authorization" not in seen.headers for seen in server.seen)


async def test_a_wrong_password_is_said_at_once_and_shown_nowhere(caplog):
    with caplog.at_level(logging.DEBUG):
        async with proxied(says(pod("a", 1)), user=f"user:{SECRET}@", authorization="Basic x") as (
            server,
            proxy,
            client,
        ):
            with pytest.raises(ProxyDenied) as caught:
                await client.get(PODS, "a", "web")
            assert SECRET not in repr(client)
    assert str(caught.value) == (
        f"get pods web/a: no answer from {server.url} through proxy http://127.0.0.1:{proxy.port}: "
        "CONNECT was refused: 407 Proxy Authentication Required"
    )
    assert len(proxy.targets) == 1
    shown = caplog.text + "".join(traceback.format_exception(caught.value))
    error = caught.value
    while error is not None:
        shown += repr(vars(error)) + repr(error)
        error = error.__context__
    assert SECRET not in shown
    assert AUTHORIZATION.split()[1] not in shown


async def test_a_proxy_that_cannot_reach_the_server_now_is_tried_again():
    async with proxied(says(pod("a", 1)), refuses=b"503 Busy") as (server, proxy, client):
        with pytest.raises(Unreachable, match=r"CONNECT was refused: 503 Busy") as caught:
            await client.bind("a", "web", "n1", guard=Guard())
        assert not caught.value.uncertain
        creating = asyncio.create_task(client.create(PODS, pod("a", 1), "web", within=10))
        await asyncio.sleep(0.2)
        assert len(proxy.targets) > 1
        proxy.refuses = b""
        assert (await creating).metadata.uid == "uid-a"
        assert len(server.seen) == 1


async def test_a_proxy_that_does_not_answer_costs_the_time_of_a_connection():
    async with proxied(says(pod("a", 1)), hangs=True) as (_server, _proxy, client):
        began = time.monotonic()
        with pytest.raises(Unreachable, match="no connection in time") as caught:
            await client.bind("a", "web", "n1", guard=Guard())
        assert 0.9 < time.monotonic() - began < 2.0
        assert not caught.value.uncertain
        with pytest.raises(Unreachable, match="no connection in time") as caught:
            await client.bind("a", "web", "n1", guard=Guard(), within=0.2)
        assert not caught.value.uncertain


async def test_a_proxy_that_is_not_there_is_named():
    async with replaying(says(pod("a", 1))) as server:
        async with proxying() as proxy:
            pass
        async with client_through(server, proxy) as client:
            with pytest.raises(Unreachable, match=f"through proxy .*:{proxy.port}: Connection refused"):
                await client.bind("a", "web", "n1", guard=Guard())


async def test_a_proxy_that_hangs_up_is_named_and_nothing_was_sent():
    async with replaying(says(pod("a", 1))) as server, proxying(authorization="Basic x") as proxy:

        async def hang_up(reader, writer):
            await reader.readuntil(b"\r\n\r\n")

        proxy._serve = hang_up
        async with client_through(server, proxy) as client:
            with pytest.raises(Unreachable, match="the proxy closed the connection") as caught:
                await client.bind("a", "web", "n1", guard=Guard())
            assert not caught.value.uncertain


async def test_the_server_and_not_the_proxy_must_be_trusted():
    now, day = datetime.now(UTC), timedelta(days=1)
    stranger = certificates.new_authority(now, day).certificate
    async with replaying(says(pod("a", 1))) as server, proxying() as proxy:
        other = CredentialFile("authority", data=stranger)
        async with client_through(server, proxy, authority=other) as client:
            with pytest.raises(Untrusted, match=f"{server.url} through proxy .*: "):
                await client.get(PODS, "a", "web")
        async with client_through(server, proxy, server_name="elsewhere") as client:
            with pytest.raises(Untrusted):
                await client.get(PODS, "a", "web")


async def test_a_proxy_may_speak_tls_itself():
    tls = server_context(loopback_certificate()[1])
    async with proxied(
        says(pod("a", 1)), user=f"user:{SECRET}@", scheme="https", tls=tls, authorization=AUTHORIZATION
    ) as (server, proxy, client):
        assert (await client.get(PODS, "a", "web")).metadata.uid == "uid-a"
    assert proxy.targets == [server.url.removeprefix("https://")]


async def test_a_server_without_tls_is_asked_through_the_proxy(monkeypatch):
    monkeypatch.setattr(replay, "route", replay.DIRECT)
    async with proxied(says(pod("a", 1)), user=f"user:{SECRET}@", authorization=AUTHORIZATION) as (
        server,
        proxy,
        client,
    ):
        assert (await client.get(PODS, "a", "web")).metadata.uid == "uid-a"
    assert proxy.targets[0].startswith(f"{server.url}/api/v1/namespaces/web/pods/a")


async def test_a_watch_is_a_stream():
    answer = streams(event("ADDED", pod("a", 7)), 0.3, bookmark(8), end="hang")
    async with replaying(answer) as server, proxying() as proxy, client_through(server, proxy) as client:
        began, seen = time.monotonic(), []
        async for each in client.watch(PODS, resource_version="5", silence=2.0):
            seen.append((each.resource_version, time.monotonic() - began))
            if each.resource_version == "8":
                break
        assert [version for version, _ in seen] == ["5", "7", "8"]
        assert seen[1][1] < 0.3 <= seen[2][1]


@pytest.mark.usefixtures("route")
async def test_a_client_certificate_that_is_renewed_is_used_from_the_next_call_on(tmp_path, monkeypatch):
    """Over both transports."""
    now, day = datetime.now(UTC), timedelta(days=1)
    authority = certificates.new_authority(now, day)
    serving = certificates.issue_serving(authority, ["127.0.0.1"], now, day)
    monkeypatch.setattr(replay, "loopback_certificate", lambda: (authority.certificate, serving))
    monkeypatch.setattr(replay, "server_context", lambda pair: server_context(pair, authority.certificate))
    users = []

    async def answer(request):
        shown = request.transport.get_extra_info("peercert")
        users.append(dict(field[0] for field in shown["subject"])["commonName"])
        return await says(pod("a", 1))(request)

    clock = [0.0]
    files = [CredentialFile(name, path=tmp_path / name, clock=lambda: clock[0]) for name in ("crt", "key")]
    direct = replay.route == replay.DIRECT
    monkeypatch.setattr(replay, "route", replay.PROXIED)
    async with replaying(answer) as server:
        access = dataclasses.replace(server.access, credentials=StoredCredentials(None, *files))
        if direct:
            access = dataclasses.replace(access, proxy=None)
        async with Client(access, QUICK) as client:
            for user in ("first", "second"):
                own = certificates.issue_client(authority, user, now, day)
                (tmp_path / "crt").write_bytes(own.certificate)
                (tmp_path / "key").write_bytes(own.key)
                clock[0] += 60.0
                await client.get(PODS, "a", "web")
                await client.get(PODS, "a", "web")
    assert users == ["first", "first", "second", "second"]


async def test_a_call_that_was_sent_through_the_proxy_and_not_answered_is_uncertain():
    async with (
        replaying(waits(5, says({}))) as server,
        proxying() as proxy,
        client_through(server, proxy) as client,
    ):
        with pytest.raises(Unreachable, match="not in time") as caught:
            await client.bind("a", "web", "n1", guard=Guard(), within=0.5)
        assert caught.value.uncertain


async def test_no_error_of_the_http_library_is_behind_ours():
    async with proxied(says(pod("a", 1)), refuses=b"403 No") as (_server, _proxy, client):
        with pytest.raises(KubeError) as caught:
            await client.get(PODS, "a", "web")
    error = caught.value
    while error is not None:
        assert not type(error).__module__.startswith("aiohttp")
        error = error.__context__


async def test_without_a_proxy_aiohttp_is_not_even_imported():
    program = "import sys, cotenant.kube.api.client, cotenant.kube.api.auth.kubeconfig; sys.exit('aiohttp' in sys.modules)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert await process.wait() == 0

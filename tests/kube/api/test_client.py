"""What the client does with each kind of answer, and with none."""

import asyncio
import dataclasses
import json
import logging
import socket
import time
import traceback

import msgspec
import pytest
from aiohttp import web
from kube.replay import QUICK, access_to, client_of, fails, hangs_up, pod, replaying, says, waits

from cotenant.kube.api.auth.credential_file import CredentialFile
from cotenant.kube.api.auth.credentials import StoredCredentials
from cotenant.kube.api.client import Client
from cotenant.kube.api.connection import ConnectionSettings
from cotenant.kube.api.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    ServerFailed,
    TooManyRequests,
    Unauthorized,
    Undecodable,
    Unreachable,
)
from cotenant.kube.api.patches import Guard, pointer
from cotenant.kube.api.resources import LEASES, NODES, PODS

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("route")]


@pytest.mark.parametrize(
    ("code", "reason", "kind", "uncertain"),
    [
        (400, "BadRequest", Invalid, False),
        (401, "Unauthorized", Unauthorized, False),
        (403, "Forbidden", Forbidden, False),
        (404, "NotFound", NotFound, False),
        (409, "Conflict", Conflict, False),
        (409, "AlreadyExists", AlreadyExists, False),
        (410, "Gone", Gone, False),
        (410, "Expired", Gone, False),
        (422, "Invalid", Invalid, False),
        (429, "TooManyRequests", TooManyRequests, False),
        (500, "InternalError", ServerFailed, True),
        (504, "Timeout", ServerFailed, True),
        (302, "", KubeError, False),
    ],
)
async def test_each_answer_is_an_error_of_its_own(code, reason, kind, uncertain):
    async with replaying(fails(code, reason, "because")) as server, client_of(server) as client:
        with pytest.raises(KubeError) as caught:
            await client.bind("front", "web", "n1", guard=Guard("u", "7"))
    assert type(caught.value) is kind
    assert caught.value.code == code
    assert caught.value.reason == reason
    assert caught.value.uncertain is uncertain
    assert str(caught.value).startswith("bind pod web/front to n1: ")
    assert str(caught.value).endswith("because")


async def test_a_guard_by_uid_that_does_not_hold_is_a_conflict():
    """The API server calls it an invalid change of metadata.uid."""
    causes = [{"field": "metadata.uid", "reason": "FieldValueInvalid"}]
    status = {"kind": "Status", "code": 422, "reason": "Invalid", "details": {"causes": causes}}
    async with replaying(says(status, 422)) as server, client_of(server) as client:
        with pytest.raises(Conflict):
            await client.merge_patch(PODS, "a", {}, "web", guard=Guard("another"))


async def test_an_answer_that_is_not_of_the_api_server_is_shown_shortened():
    page = b"<html>\n<body>Bad   Gateway</body>" + b"x" * 5000
    async with replaying(says(page, 502)) as server, client_of(server) as client:
        with pytest.raises(ServerFailed, match="<html> <body>Bad Gateway") as caught:
            await client.create(PODS, pod("a", 1), "web")
    assert len(str(caught.value)) < 300


async def test_reads_are_tried_again_until_they_succeed():
    answers = [hangs_up(), fails(500), fails(503), fails(429), says(pod("a", 1))]
    async with replaying(*answers) as server, client_of(server) as client:
        assert (await client.get(PODS, "a", "web")).metadata.uid == "uid-a"
        assert len(server.seen) >= 5  # the HTTP library itself may repeat one on a connection that was reused


@pytest.mark.parametrize("answer", [hangs_up(), fails(500), fails(503)])
async def test_a_write_that_may_have_happened_is_not_repeated(answer):
    async with replaying(says(pod("a", 1)), answer) as server, client_of(server) as client:
        await client.get(PODS, "a", "web")  # so that the write meets a connection that is in use already
        with pytest.raises(KubeError) as caught:
            await client.merge_patch(PODS, "a", {"metadata": {"labels": {"x": "y"}}}, "web")
        assert caught.value.uncertain
        assert len(server.seen) == 2


async def test_a_write_that_surely_did_not_happen_is_repeated():
    async with replaying(fails(429), fails(429), says(pod("a", 2))) as server, client_of(server) as client:
        done = await client.merge_patch(PODS, "a", {"metadata": {"labels": {"x": "y"}}}, "web")
        assert done.metadata.resource_version == "2"
        assert len(server.seen) == 3


def unused_port():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        return reserved.getsockname()[1]


async def test_a_write_waits_for_a_server_that_is_not_there_yet():
    port = unused_port()
    async with access_to(port) as access, Client(access, QUICK) as client:
        creating = asyncio.create_task(client.create(PODS, pod("a", 1), "web", within=5))
        await asyncio.sleep(0.2)
        async with replaying(says(pod("a", 1)), port=port) as server:
            assert (await creating).metadata.name == "a"
            assert len(server.seen) == 1


async def test_a_write_to_a_server_that_never_comes_did_surely_not_happen():
    port = unused_port()
    async with access_to(port) as access, Client(access, QUICK) as client:
        with pytest.raises(Unreachable) as caught:
            await client.create(PODS, pod("a", 1), "web", within=0.3)
        assert not caught.value.uncertain
        with pytest.raises(Unreachable) as caught:
            await client.bind("a", "web", "n1", guard=Guard())  # tried once, with time enough
    assert not caught.value.uncertain
    if access.proxy is None:
        expected = f"http://127.0.0.1:{port}: Connection refused"
    else:
        expected = (
            f"https://127.0.0.1:{port} through proxy {access.proxy.url}: CONNECT was refused: 502 Bad Gateway"
        )
    assert str(caught.value) == f"bind pod web/a to n1: no answer from {expected}"


async def test_a_server_without_tls_is_named_as_such():
    async def plain(reader, writer):
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, access_to(port) as access:
        access = dataclasses.replace(access, server=f"https://127.0.0.1:{port}", verify=False)
        async with Client(access, QUICK) as client:
            with pytest.raises(Unreachable, match="no TLS: ") as caught:
                await client.bind("a", "web", "n1", guard=Guard())
        assert not caught.value.uncertain


async def test_waiting_for_a_connection_is_part_of_the_calls_time():
    """After it nothing may be sent: a Binding would come when somebody else may lead."""
    one = dataclasses.replace(QUICK, connections=1)
    answers = waits(0.4, says(pod("a", 1))), waits(5, says({}))
    async with replaying(*answers) as server, Client(server.access, one) as client:
        first = asyncio.create_task(client.get(PODS, "a", "web"))
        await asyncio.sleep(0.05)
        with pytest.raises(Unreachable, match="no connection in time") as caught:
            await client.bind("a", "web", "n1", guard=Guard(), within=0.2)
        assert not caught.value.uncertain
        began = time.monotonic()
        with pytest.raises(Unreachable, match="not in time") as caught:
            await client.bind("b", "web", "n1", guard=Guard(), within=0.6)
        assert caught.value.uncertain
        assert 0.5 < time.monotonic() - began < 0.85
        await first
        assert [seen.path.split("/")[-2] for seen in server.seen] == ["pods", "b"]


async def test_bind_is_never_repeated():
    async with replaying(fails(429, Retry_After="0")) as server, client_of(server) as client:
        with pytest.raises(TooManyRequests):
            await client.bind("front", "web", "n1", guard=Guard())
        assert len(server.seen) == 1


async def test_the_server_says_when_to_come_again():
    async with (
        replaying(fails(429, Retry_After="1"), says(pod("a", 1))) as server,
        client_of(server) as client,
    ):
        began = time.monotonic()
        await client.get(PODS, "a", "web")
        assert 1.0 <= time.monotonic() - began < 2.0


async def test_a_pause_longer_than_the_calls_time_is_not_waited_for():
    async with replaying(fails(429, Retry_After="60")) as server, client_of(server) as client:
        began = time.monotonic()
        with pytest.raises(TooManyRequests) as caught:
            await client.get(PODS, "a", "web")
        assert caught.value.retry_after == 60
        assert time.monotonic() - began < 1.0


@pytest.mark.parametrize("method", ["get", "bind"])
async def test_a_server_that_does_not_answer_costs_the_calls_time_and_no_more(method):
    async with replaying(waits(5, says(pod("a", 1)))) as server, client_of(server) as client:
        began = time.monotonic()
        call = {
            "get": lambda: client.get(PODS, "a", "web", within=0.5),
            "bind": lambda: client.bind("a", "web", "n1", guard=Guard(), within=0.5),
        }[method]
        with pytest.raises(Unreachable, match="not in time") as caught:
            await call()
        assert 0.4 < time.monotonic() - began < 1.5
        assert caught.value.uncertain is (method == "bind")
        # The server is told as well, so that it does not go on with what nobody waits for.
        assert server.seen[0].query["timeout"] == "1s"


def garbage():
    """An answer that is no HTTP."""

    async def answer(request):
        request.transport.write(b"HTTP/1.1 abc nonsense\r\n\r\n")
        await asyncio.sleep(0.05)
        request.transport.abort()
        return web.Response()

    return answer


@pytest.mark.parametrize(
    "answer", [hangs_up(), garbage(), fails(401), fails(403), fails(500), says(b"{"), waits(5, says({}))]
)
async def test_no_failure_shows_the_token(answer, caplog):
    secret = "s3cr3t-t0k3n"
    credentials = StoredCredentials(CredentialFile("users[u].user.token", data=secret.encode()))
    with caplog.at_level(logging.DEBUG):
        async with replaying(answer) as server, client_of(server, credentials=credentials) as client:
            with pytest.raises(KubeError) as caught:
                await client.create(PODS, pod("a", 1), "web", within=0.5)
            assert secret not in repr(client)
        assert server.seen[0].headers["Authorization"] == f"Bearer {secret}"
    assert secret not in "".join(traceback.format_exception(caught.value))
    assert secret not in repr(caught.value)
    assert secret not in caplog.text


async def test_connections_are_used_again():
    peers = set()

    async def answer(request):
        peers.add(request.transport.get_extra_info("peername"))
        return await says(pod("a", 1))(request)

    async with replaying(answer) as server, client_of(server) as client:
        for _ in range(20):
            await client.get(PODS, "a", "web")
    assert len(peers) == 1


async def test_what_is_not_the_expected_json_is_named():
    for body in [b"", b"not json", b"\xff\xfe", b'{"metadata": {"name": 7}}']:
        async with replaying(says(body)) as server, client_of(server) as client:
            with pytest.raises(Undecodable, match="the API server's Pod: not understood"):
                await client.get(PODS, "a", "web")


async def test_writes_as_they_go_over_the_wire():
    async with replaying(says(pod("a", 1))) as server, client_of(server) as client:
        guard = Guard("u1", "7")
        await client.merge_patch(PODS, "a", {"metadata": {"labels": {"x": None}}}, "web", guard=guard)
        steps = [{"op": "add", "path": pointer("metadata", "annotations", "a/b~c"), "value": "1"}]
        await client.json_patch(PODS, "a", steps, "web", guard=guard, subresource="status")
        await client.apply(PODS, {"metadata": {"name": "a"}}, "cotenant", "web", force=True)
        await client.delete(PODS, "a", "web", guard=guard, grace_seconds=0)
        await client.bind("a", "web", "n1", guard=guard, annotations={"k": "v"})
        await client.evict("a", "web", guard=Guard("u1"))
        await client.evict("a", "web", guard=Guard("u1"), dry_run=True)
        merge, patch, apply, delete, bind, evict, ask = server.seen
    assert merge.headers["Content-Type"] == "application/merge-patch+json"
    assert merge.json == {"metadata": {"labels": {"x": None}, "uid": "u1", "resourceVersion": "7"}}
    assert patch.path == "/api/v1/namespaces/web/pods/a/status"
    assert patch.json == [
        {"op": "replace", "path": "/metadata/uid", "value": "u1"},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/metadata/annotations/a~1b~0c", "value": "1"},
    ]
    assert apply.headers["Content-Type"] == "application/apply-patch+yaml"
    assert (apply.query["fieldManager"], apply.query["force"]) == ("cotenant", "true")
    assert apply.json == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    assert delete.method == "DELETE"
    assert delete.json["preconditions"] == {"uid": "u1", "resourceVersion": "7"}
    assert delete.json["gracePeriodSeconds"] == 0
    assert (bind.method, bind.path) == ("POST", "/api/v1/namespaces/web/pods/a/binding")
    assert bind.json == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": "a", "namespace": "web", "uid": "u1", "resourceVersion": "7", "annotations": {"k": "v"},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }  # fmt: skip
    assert (evict.method, evict.path) == ("POST", "/api/v1/namespaces/web/pods/a/eviction")
    assert evict.json == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "a", "namespace": "web"},
        "deleteOptions": {"preconditions": {"uid": "u1"}},
    }
    assert "dryRun" not in evict.query
    assert ask.query["dryRun"] == "All"
    assert ask.json["deleteOptions"]["dryRun"] == ["All"]


async def test_an_eviction_that_a_budget_forbids_is_not_repeated():
    async with replaying(fails(429)) as server, client_of(server) as client:
        with pytest.raises(TooManyRequests):
            await client.evict("a", "web", guard=Guard("u1"))
        assert len(server.seen) == 1


async def test_an_apply_is_repeated_unless_it_is_guarded():
    async with replaying(fails(500), says(pod("a", 1))) as server, client_of(server) as client:
        await client.apply(PODS, {"metadata": {"name": "a"}}, "cotenant", "web")
        assert len(server.seen) == 2
    async with replaying(fails(500), says(pod("a", 1))) as server, client_of(server) as client:
        with pytest.raises(ServerFailed):
            await client.apply(PODS, {"metadata": {"name": "a"}}, "cotenant", "web", guard=Guard("u"))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2fb"])
async def test_a_name_cannot_lead_elsewhere(name):
    """An empty name in a delete would mean all pods of the namespace."""
    async with replaying(says({})) as server, client_of(server) as client:
        with pytest.raises(ValueError):
            await client.delete(PODS, name, "web")
        with pytest.raises(ValueError):
            await client.get(PODS, "a", name)
        assert server.seen == []


async def test_other_characters_in_a_name_are_quoted():
    async with replaying(says({})) as server, client_of(server) as client:
        await client.get(NODES, "n1?x=1#y ü")
        assert server.seen[0].path == "/api/v1/nodes/n1?x=1#y ü"
    with pytest.raises(ValueError, match="which namespace"):
        LEASES.path(None, "x")


async def test_many_calls_at_once_share_few_connections():
    peers, few = set(), ConnectionSettings(connections=4)

    async def answer(request):
        peers.add(request.transport.get_extra_info("peername"))
        return await waits(0.01, says(pod("a", 1)))(request)

    async with replaying(answer) as server, Client(server.access, few) as client:
        await asyncio.gather(*(client.get(PODS, "a", "web") for _ in range(40)))
    assert len(peers) <= 4


async def test_null_and_missing_and_unknown_fields_are_read_as_defaults():
    body = {
        "metadata": {"name": "a", "creationTimestamp": None, "managedFields": [{"manager": "x"}]},
        "spec": {"containers": None, "unknown": {"deep": [1]}},
        "status": {"conditions": [{"type": "Ready", "lastProbeTime": None, "lastTransitionTime": None}]},
    }
    read = PODS.decode(json.dumps(body).encode())
    assert read.spec.containers is None
    assert read.spec.node_name == ""
    assert read.metadata.creation_timestamp is None
    assert read.metadata.annotations == {}
    assert read.status.conditions[0].type == "Ready"
    assert msgspec.json.encode(PODS.decode(b"{}"))


async def test_an_answer_longer_than_the_limit_is_an_error_and_not_read():
    async with (
        replaying(says({"text": "x" * 5000}), says({"text": "x"})) as server,
        client_of(server) as client,
    ):
        with pytest.raises(Undecodable, match="get /state: not understood: more than 1000 bytes"):
            await client.get_path("/state", dict, limit=1000)
        assert await client.get_path("/state", dict, limit=1000) == {"text": "x"}

"""The extender's listener: plain requests, however they arrive, and all others by the longer way."""

from __future__ import annotations

import asyncio
import json
from typing import Self

import pytest
from aiohttp import web
from kube.builders import node_json, pod_json
from kube.world import World
from prometheus_client import CollectorRegistry

from cotenant.kube.extender.fast_http import LONGEST_HEAD, FastHttp
from cotenant.kube.extender.serving import LARGEST_BODY, Extender

HEAD = b"POST /%s HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: %d\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n%s\r\n"


def request(verb: str, body: object, extra: bytes = b"") -> bytes:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HEAD % (verb.encode(), len(text), extra) + text


def asked(*nodes: str) -> dict[str, object]:
    return {"Pod": pod_json("a"), "Nodes": None, "NodeNames": list(nodes)}


BIND = {"PodName": "a", "PodNamespace": "web", "PodUID": "uid-a", "Node": "n1"}


class Served:
    """A world behind a real socket. `handed` counts connections that aiohttp took over."""

    def __init__(self) -> None:
        self.world = World()
        self.world.api.add_node(node_json("n1", 16, 16))
        self.world.api.add(pod_json("a", "4Gi"))
        self.ready: str | None = None
        self.handed = 0

    async def __aenter__(self) -> Self:
        extender = Extender(self.world.decider, self.world.binder, lambda: self.ready, CollectorRegistry())
        self._runner = web.AppRunner(extender.app(), access_log=None)
        await self._runner.setup()
        self.front = FastHttp(extender.verbs(), self._other, LARGEST_BODY)
        self.port = await self.front.listen("127.0.0.1", 0, None)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.front.close(1)
        await self._runner.cleanup()

    def _other(self) -> asyncio.Protocol:
        self.handed += 1
        return self._runner.server()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    status = int((await reader.readline()).split()[1])
    headers = {}
    while (line := (await reader.readline()).decode().strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return status, headers, await reader.readexactly(int(headers.get("content-length", 0)))


def served(main) -> None:
    async def whole() -> None:
        async with asyncio.timeout(20), Served() as at:
            await main(at)

    asyncio.run(whole())


def test_one_connection_serves_the_whole_way_of_a_pod():
    async def main(at: Served) -> None:
        reader, writer = await at.connect()
        for verb, body, expected in (
            ("filter", asked("n1"), {"NodeNames": ["n1"]}),
            ("choose", asked("n1"), {"NodeNames": ["n1"]}),
            ("prioritize", asked("n1"), [{"Host": "n1", "Score": 10}]),
            ("gpushare-scheduler/filter", asked("n1"), {"NodeNames": ["n1"]}),
            ("bind", BIND, {"Error": ""}),
        ):
            writer.write(request(verb, body))
            status, headers, said = await answer(reader)
            assert (status, headers["content-type"]) == (200, "application/json")
            found = json.loads(said)
            assert found == expected or expected.items() <= found.items()
        assert at.world.api.truth("a").spec.node_name == "n1"
        assert at.handed == 0
        writer.close()

    served(main)


def test_a_request_may_arrive_byte_by_byte():
    async def main(at: Served) -> None:
        reader, writer = await at.connect()
        for byte in request("filter", asked("n1")):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert (await answer(reader))[0] == 200
        assert at.handed == 0
        writer.close()

    served(main)


def test_requests_that_come_at_once_are_answered_in_their_order():
    async def main(at: Served) -> None:
        reader, writer = await at.connect()
        writer.write(request("bind", BIND) + request("filter", asked("n1", "n9")) + request("bind", b"{"))
        assert json.loads((await answer(reader))[2]) == {"Error": ""}
        assert json.loads((await answer(reader))[2])["NodeNames"] == ["n1"], "it is charged there"
        assert (await answer(reader))[0] == 400
        assert at.handed == 0
        writer.close()

    served(main)


def test_a_large_body_is_one_request():
    async def main(at: Served) -> None:
        nodes = [f"node-{number:06d}" for number in range(50_000)]
        reader, writer = await at.connect()
        writer.write(request("filter", asked(*nodes, "n1")))
        status, _, said = await answer(reader)
        assert status == 200
        assert json.loads(said)["NodeNames"] == ["n1"]
        assert len(json.loads(said)["FailedAndUnresolvableNodes"]) == 50_000
        writer.close()

    served(main)


def test_who_does_not_lead_says_so_and_closes():
    async def main(at: Served) -> None:
        at.ready = "this server does not lead"
        reader, writer = await at.connect()
        writer.write(request("filter", asked("n1")) * 2)
        status, headers, said = await answer(reader)
        assert (status, headers["connection"]) == (503, "close")
        assert json.loads(said) == {"Error": at.ready}
        assert await reader.read() == b"", "the second one is for somebody else"
        writer.close()

    served(main)


BODY = json.dumps(asked("n1")).encode()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 404),
        (b"PUT /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 405),
        (
            b"POST /filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
            % (len(BODY), BODY),
            200,
        ),
        (b"POST /filter HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY), 200),
        (request("filter", BODY, b"Traceparent: 00-1-2-01\r\n"), 200),
        (request("filter", BODY, b"Connection: close\r\n"), 200),
        (request("filter", BODY, b"Content-Length: 5\r\n"), 400),
        (b"POST /filter HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /filter HTTP/1.1\r\nContent-Length: \xb2\r\n\r\n", 400),
        (b"POST /filter HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST /filter HTTP/1.1\r\nX: " + b"x" * 2 * LONGEST_HEAD, 400),
        (b"\x16\x03\x01\x02\x00", 400),
    ],
)
def test_what_is_unusual_goes_the_longer_way(data: bytes, status: int):
    async def main(at: Served) -> None:
        reader, writer = await at.connect()
        writer.write(request("filter", asked("n1")))
        assert (await answer(reader))[0] == 200
        writer.write(data)
        assert (await answer(reader))[0] == status
        assert at.handed == 1
        writer.close()

    served(main)


def test_a_body_that_is_waited_for_is_asked_for():
    async def main(at: Served) -> None:
        reader, writer = await at.connect()
        writer.write(HEAD % (b"filter", len(BODY), b"Expect: 100-continue\r\n"))
        assert (await answer(reader))[0] == 100
        writer.write(BODY)
        assert (await answer(reader))[0] == 200
        writer.close()

    served(main)


def test_one_who_goes_in_the_middle_leaves_nothing():
    async def main(at: Served) -> None:
        for part in (3, 40, len(request("filter", BODY)) - 1):
            _, writer = await at.connect()
            writer.write(request("filter", BODY)[:part])
            await writer.drain()
            writer.transport.abort()
        reader, writer = await at.connect()
        writer.write(request("filter", BODY))
        assert (await answer(reader))[0] == 200
        assert len(at.front.connections) == 1
        writer.close()

    served(main)


def test_a_bind_under_way_is_answered_before_the_end(monkeypatch):
    async def main(at: Served) -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slow(*_: str) -> None:
            begun.set()
            await go_on.wait()

        monkeypatch.setattr(at.world.binder, "bind", slow)
        reader, writer = await at.connect()
        idle, idle_writer = await at.connect()
        writer.write(request("bind", BIND))
        await begun.wait()
        closing = asyncio.create_task(at.front.close(10))
        assert await idle.read() == b"", "who asks nothing is let go at once"
        go_on.set()
        status, headers, said = await answer(reader)
        assert (status, headers["connection"], json.loads(said)) == (200, "close", {"Error": ""})
        await closing
        with pytest.raises(OSError):
            await at.connect()
        for each in (writer, idle_writer):
            each.close()

    served(main)


def test_a_bind_that_does_not_end_is_cancelled(monkeypatch):
    async def main(at: Served) -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def never(*_: str) -> None:
            begun.set()
            try:
                await asyncio.sleep(3600)
            finally:
                ended.set()

        monkeypatch.setattr(at.world.binder, "bind", never)
        _, writer = await at.connect()
        writer.write(request("bind", BIND))
        await begun.wait()
        await at.front.close(0.05)
        assert ended.is_set()
        writer.close()

    served(main)

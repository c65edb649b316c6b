"""Measures how the extender reads kube-scheduler's requests: parsed by hand, as today, or with httptools.

    python -m bench.request_heads [--rounds 15]

The extender's own protocol is fed with kube-scheduler's bytes in reads of 64 KiB, without a socket, and the
verb does nothing. CPU time for one request, in batches of the four ways in turn, so that a busy machine
disturbs all alike. The Content-Length of each request is another one of 60, as with pods of many names.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import httptools

from cotenant.kube.extender import fast_http
from cotenant.kube.extender.fast_http import FastHttp, _Head

HEAD = (
    b"POST /filter HTTP/1.1\r\nHost: cotenant-extender.cotenant.svc:8444\r\n"
    b"User-Agent: Go-http-client/1.1\r\nContent-Length: %d\r\n"
    b"Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
)
READ = 65536
LONGEST = 1 << 26


class _Parsed:
    """A request head as httptools parses it, by the same rules."""

    def __init__(self, data: bytes, longest: int) -> None:
        self.path, self.length, self.plain = b"", -1, True
        parser = httptools.HttpRequestParser(self)
        try:
            parser.feed_data(data)
        except httptools.HttpParserError:
            self.plain = False
        self.plain &= parser.get_method() == b"POST" and parser.get_http_version() == "1.1"
        self.plain &= 0 <= self.length <= longest

    def on_url(self, url: bytes) -> None:
        self.path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name not in fast_http._PLAIN:  # noqa: SLF001
            self.plain = False
        elif name == b"content-length":
            self.length = int(value)


def parse_with_httptools(head: bytes, longest: int) -> _Head | None:
    found = _Parsed(head + b"\r\n\r\n", longest)
    return _Head(found.path.decode("ascii"), found.length) if found.plain else None


class Streaming(asyncio.Protocol):
    """Reads heads and bodies with one httptools parser per connection; cannot hand over to aiohttp."""

    def __init__(self, server: FastHttp) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self.on_message_begin()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._path, self._length, self._plain, self._body = b"", -1, True, []

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name not in fast_http._PLAIN:  # noqa: SLF001
            self._plain = False
        elif name == b"content-length":
            self._length = int(value)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        status, body = self._server.verbs[self._path.decode("ascii")](b"".join(self._body))
        self._transport.write(fast_http._response(status, body, last=False))  # noqa: SLF001


class Sink:
    """A transport that discards what it is given."""

    def write(self, data: bytes) -> None:
        pass


def requests(nodes: int) -> list[list[bytes]]:
    """Returns requests as they arrive: 229 KB with 5,000 nodes."""
    names = b",".join(b'"gpu-node-pool-a-%026d"' % number for number in range(nodes))
    found = []
    for more in range(60):
        body = b'{"Pod":{"metadata":{"name":"%s"}},"NodeNames":[%s]}' % (b"x" * (40 + more), names)
        data = HEAD % len(body) + body
        found.append([data[at : at + READ] for at in range(0, len(data), READ)])
    return found


def cpu(protocol: Any, arriving: list[list[bytes]]) -> float:
    """Measures the CPU microseconds of one request."""
    began = time.process_time()
    for reads in arriving:
        for read in reads:
            protocol.data_received(read)
    return (time.process_time() - began) / len(arriving) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    by_hand: Callable[..., Any] = fast_http._parse_head.__wrapped__  # noqa: SLF001
    ways: dict[str, Callable[..., Any] | None] = {
        "by hand, cached (today)": fast_http._parse_head,  # noqa: SLF001
        "by hand, not cached": by_hand,
        "httptools, cached": lru_cache(maxsize=256)(parse_with_httptools),
        "httptools, not cached": parse_with_httptools,
        "httptools, heads and bodies": None,
    }
    for nodes in (100, 5000):
        arriving = requests(nodes) * (20 if nodes == 100 else 1)
        size = sum(map(len, arriving[0]))
        spent: dict[str, list[float]] = {way: [] for way in ways}
        answered = 0

        def verb(body: bytes, length: int = size) -> tuple[int, bytes]:
            nonlocal answered
            answered += abs(len(body) - length) < 500
            return 200, b"{}"

        server = FastHttp({"/filter": verb}, asyncio.Protocol, LONGEST)
        for _ in range(rounds + 1):
            for way, parse in ways.items():
                connection: Any = Streaming(server) if parse is None else fast_http._Connection(server)  # noqa: SLF001
                if parse is not None:
                    fast_http._parse_head = parse  # type: ignore[assignment]  # noqa: SLF001
                connection.connection_made(Sink())
                spent[way].append(cpu(connection, arriving))
        if answered != (rounds + 1) * len(ways) * len(arriving):
            raise AssertionError("not every request was answered")
        print(f"{nodes} nodes, {size:,} bytes a request: CPU in µs, median and least of {rounds} batches")
        for way, found in spent.items():
            print(f"  {way:30} {statistics.median(found[1:]):8.1f} {min(found[1:]):8.1f}")


if __name__ == "__main__":
    main()

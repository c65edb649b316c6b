"""A small HTTP proxy that understands CONNECT, and plain requests with an absolute URL."""

import asyncio
import contextlib
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class ConnectProxy:
    """Connects to any target; with `refuses`, answers that status line instead; with `hangs`, nothing."""

    refuses: bytes = b""
    hangs: bool = False
    authorization: str = ""
    """What Proxy-Authorization must be; otherwise the answer is 407."""
    targets: list[str] = field(default_factory=list)
    port: int = 0
    tasks: set[asyncio.Task] = field(default_factory=set)

    async def handle(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._serve(reader, writer)
        await _closed(writer)

    async def _serve(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        self.targets.append(target)
        if self.hangs:
            await reader.read()
            return
        sent = [
            line[21:].decode()
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"proxy-authorization: ")
        ]
        if self.authorization and sent != [self.authorization]:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return
        if self.refuses:
            writer.write(b"HTTP/1.1 " + self.refuses + b"\r\nContent-Length: 0\r\n\r\n")
            return
        host, _, port = (target if method == "CONNECT" else urlsplit(target).netloc).rpartition(":")
        try:
            upstream = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            return
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            upstream[1].write(head)
        try:
            await asyncio.gather(_relay(reader, upstream[1]), _relay(upstream[0], writer))
        finally:
            await _closed(upstream[1])


async def _relay(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        writer.transport.abort()
    writer.close()


async def _closed(writer):
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(0.2):
            await writer.wait_closed()
            return
    writer.transport.abort()


@asynccontextmanager
async def proxying(tls: ssl.SSLContext | None = None, **how):
    proxy = ConnectProxy(**how)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0, ssl=tls)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for task in proxy.tasks:
            task.cancel()
        if proxy.tasks:
            await asyncio.wait(proxy.tasks)

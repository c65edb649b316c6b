"""Opens TCP connections to addresses that are allowed, and bounds what a server may answer.

A specification's author chooses the server. One that answers without end must not fill the memory of the
process that reads the queues of everybody.
"""

from __future__ import annotations

import asyncio
import ssl

from cotenant.signals.addresses import allowed_addresses

ALLOWANCE = 16 << 20
"""Bytes of the answers to one question, or to all that are asked at once."""


class AnswerTooLong(ConnectionError):
    """A server answered more than anybody asked for."""

    def __init__(self) -> None:
        super().__init__(f"it answers more than {ALLOWANCE >> 20} MiB")


class BoundedReader(asyncio.StreamReader):
    """Fails when more bytes arrive than the allowance that the last question renewed."""

    left = ALLOWANCE

    def renew(self) -> None:
        self.left = ALLOWANCE

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]
        self.left -= len(data)
        if self.left < 0:
            self.set_exception(AnswerTooLong())
        else:
            super().feed_data(data)


async def open_stream(
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    server_name: str | None,
    *,
    loopback: bool = True,
) -> tuple[BoundedReader, asyncio.StreamWriter]:
    """Connects to the first address of a host that is allowed and accepts; SignalError or OSError."""
    loop = asyncio.get_running_loop()
    last: OSError | None = None
    for address in await allowed_addresses(host, port, loopback=loopback):
        reader = BoundedReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport, _ = await loop.create_connection(
                lambda made=protocol: made,
                address,
                port,
                ssl=context,
                server_hostname=(server_name or host) if context else None,
            )
        except OSError as error:
            last = error
        else:
            return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
    raise last or OSError("no address")

"""One HTTP request, and the errors of an exchange that every transport raises.

A transport raises OSError (TimeoutError, ssl.SSLError and ProxyRefused among them) if the request was surely
not sent, and BrokenExchange if it may have been.
"""

from __future__ import annotations

import msgspec

NOT_IN_TIME = "not in time"
CONNECTION_BROKE = "the connection broke"


class Request(msgspec.Struct, frozen=True, gc=False):
    """What is sent to the server; the transport adds Host, Content-Type and Content-Length."""

    method: str
    target: str
    """Path and query, quoted."""
    headers: tuple[tuple[str, str], ...]
    """The same object for all requests with one credential: a transport may encode it once."""
    body: bytes | None = None
    content_type: str = ""


class BrokenExchange(Exception):
    """There is no complete response, and the request may have been carried out. The text says why."""


class ProxyRefused(OSError):
    """The proxy answered CONNECT with an error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(None, f"CONNECT was refused: {status} {reason}".rstrip())
        self.status = status

"""Reports broken HTTP requests as mistakes of the sender: status 400 and one line in the log.

The HTTP library takes a body that is not encoded as its headers say for a failure of the server, and logs a
traceback for each broken request: the webhook's port is open to the cluster's network, so anybody could fill
the log.
"""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web
from aiohttp.http import HttpProcessingError

from cotenant.core.errors import BadInput

_THEIRS = (web.RequestPayloadError, HttpProcessingError, ConnectionError)
BODY_WITHIN = 10.0
"""Seconds in which a body must arrive. API servers and kube-scheduler send all of it at once."""
_LONGEST = 200
"""Characters that are logged of a broken request."""


async def read_body(request: web.Request) -> bytes:
    """Reads the body; BadInput if it ends too soon, takes too long or cannot be decoded. Too large: aiohttp's
    error.
    """
    try:
        async with asyncio.timeout(BODY_WITHIN):
            return await request.read()
    except TimeoutError:
        raise BadInput(f"body: it has not arrived within {BODY_WITHIN:g} seconds") from None
    except _THEIRS as error:
        raise BadInput(f"body: it cannot be read: {_line(error)}") from None


def server_log() -> logging.Logger:
    """Makes the logger of a `web.AppRunner`: a peer's mistake is one line, our failure has its traceback."""
    log = logging.getLogger(__name__)
    log.addFilter(_in_a_line)
    return log


def _in_a_line(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, _THEIRS):
        record.error = _line(error)
        record.exc_info = None
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
    return True


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:_LONGEST]

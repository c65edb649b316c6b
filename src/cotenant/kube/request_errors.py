"""What whoever can connect may send: HTTP that is broken is theirs to mend, and no failure of ours.

The HTTP library takes a body that is not packed as its headers say for a failure of whoever reads it, and
tells of each broken request in a traceback: the webhook's port is open to the cluster's network, so anybody
could fill the log.
"""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http import HttpProcessingError

from cotenant.core.errors import BadInput

_THEIRS = (web.RequestPayloadError, HttpProcessingError, ConnectionError)
_LONGEST = 200
"""Characters of what is told of a broken request."""


async def read_body(request: web.Request) -> bytes:
    """BadInput if it ends too soon or cannot be unpacked; too large is an error of the HTTP library's own."""
    try:
        return await request.read()
    except _THEIRS as error:
        raise BadInput(f"body: it cannot be read: {_line(error)}") from None


def server_log() -> logging.Logger:
    """For a `web.AppRunner`: what peers do wrong is a line, what goes wrong here has its traceback."""
    log = logging.getLogger(__name__)
    log.addFilter(_in_a_line)
    return log


def _in_a_line(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, _THEIRS):
        record.msg, record.args = f"{record.getMessage()}: {_line(error)}", ()
        record.exc_info = None
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
    return True


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:_LONGEST]

"""Writes structured logs: a short constant message, and what differs from record to record as keys.

    log = get_logger(__name__)
    log.warning("eviction failed", namespace="web", pod="a", uid=uid, error=error)

On a terminal a record is coloured for reading, elsewhere it is one line of logfmt or JSON. Records of
libraries (aiohttp, asyncio, grpc) are written by the same formatter. Much of what is logged was sent by
somebody else: what is not printable is escaped, so no sender can forge a line or control a terminal.

structlog is not configured globally: its loggers hand their keys to the standard library's, which tests and
programs without a set-up see as one line of text.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

# structlog imports rich for tracebacks, which our own formatter writes: 140 ms of each start for nothing.
_has_rich = sys.modules.setdefault("rich", None)  # type: ignore[arg-type]
import structlog  # noqa: E402

if _has_rich is None:
    del sys.modules["rich"]

LogFormat = Literal["logfmt", "json"]
Line = Mapping[str, Any]

_BARE = re.compile(r"[^\s=\"\\]+")
"""A value that logfmt needs no quotes for."""


class Fields(dict[str, Any]):
    """The message of a record (`event`) and its keys; `str()` of it is one line."""

    def __str__(self) -> str:
        return logfmt({"msg": self["event"], **{key: value for key, value in self.items() if key != "event"}})


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of a module: `get_logger(__name__)`."""
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, _hand_over],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return logger


def set_up(stream: TextIO, level: str, log_format: LogFormat) -> None:
    """Sends all records from `level` on to the stream: for people if it is a terminal."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Formatter(console() if stream.isatty() else _RENDERERS[log_format]))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class Formatter(logging.Formatter):
    """Formats records of our own loggers and of libraries alike."""

    def __init__(self, render: Callable[[Line], str]) -> None:
        super().__init__()
        self.render = render

    def format(self, record: logging.LogRecord) -> str:
        given: dict[str, Any] = (
            dict(record.msg) if isinstance(record.msg, Fields) else {"event": record.getMessage()}
        )
        if "error" not in given and hasattr(record, "error"):
            given["error"] = record.error
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "msg": given.pop("event"),
            "logger": record.name,
            **given,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return self.render(line)


def logfmt(line: Line) -> str:
    return " ".join(f"{key}={_quoted(_text(value))}" for key, value in line.items())


def as_json(line: Line) -> str:
    plain = (bool, int, float, type(None))
    return json.dumps({key: value if isinstance(value, plain) else str(value) for key, value in line.items()})


def console() -> Callable[[Line], str]:
    """For a terminal: colours, and a traceback on lines of its own, where newlines of others cannot be told
    from ours but nothing else of theirs has an effect.
    """
    draw = structlog.dev.ConsoleRenderer(event_key="msg", timestamp_key="time", sort_keys=False)

    def render(line: Line) -> str:
        shown = {key: escaped(_text(value)) for key, value in line.items() if key != "exception"}
        text = str(draw(None, "", shown))
        if "exception" not in line:
            return text
        return "\n".join([text, *(escaped(each) for each in line["exception"].split("\n"))])

    return render


def escaped(text: str) -> str:
    """The text with everything that is not printable written as an escape sequence of Python."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


_RENDERERS: dict[LogFormat, Callable[[Line], str]] = {"logfmt": logfmt, "json": as_json}


def _hand_over(_: Any, __: str, event: structlog.typing.EventDict) -> tuple[tuple[Fields], dict[str, Any]]:
    """To the standard library, which resolves `exc_info` and calls the handlers."""
    exc_info = event.pop("exc_info", None)
    return (Fields(event),), {"exc_info": exc_info}


def _quoted(text: str) -> str:
    if _BARE.fullmatch(text) and text.isprintable():
        return text
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped(inner)}"'


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)

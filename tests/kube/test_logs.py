"""Logs: keys instead of text, one line a record off a terminal, and nothing that a sender can forge."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cotenant.kube import logs
from cotenant.kube.logs import LogFormat, get_logger

FORGED = "no\n2026-01-01T00:00:00Z level=info msg=fine\r\x1b[2Jterm=9\x85a\u2028b\u202ec"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def failing() -> None:
    raise ValueError(FORGED)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


def written(stream: io.StringIO, log_format: LogFormat = "logfmt", level: str = "info") -> io.StringIO:
    logs.set_up(stream, level, log_format)
    return stream


def test_what_differs_between_records_is_a_key() -> None:
    to = written(io.StringIO())
    get_logger("cotenant.x").warning(
        "eviction failed", namespace="web", pod="a", term=3, error=OSError("no way")
    )
    time, rest = to.getvalue().split(" ", 1)
    assert time.startswith("time=20")
    assert rest == (
        'level=warning msg="eviction failed" logger=cotenant.x namespace=web pod=a term=3 error="no way"\n'
    )


def test_json_is_a_setting() -> None:
    to = written(io.StringIO(), "json")
    get_logger("cotenant.x").info("term begins", term=3, leads=True, error=FORGED)
    assert to.getvalue().count("\n") == 1
    line = json.loads(to.getvalue())
    assert (line["level"], line["msg"], line["term"], line["leads"]) == ("info", "term begins", 3, True)
    assert line["error"] == FORGED


@pytest.mark.parametrize("log_format", ["logfmt", "json"])
@pytest.mark.parametrize("message", ["short", FORGED])
def test_no_value_and_no_message_can_begin_another_line(log_format: LogFormat, message: str) -> None:
    to = written(io.StringIO(), log_format)
    get_logger("cotenant.x").warning(message, error=FORGED, pod=FORGED)
    logging.getLogger("aiohttp.server").warning("peer says %s", FORGED)
    try:
        failing()
    except ValueError:
        get_logger("cotenant.x").exception(message)
        logging.getLogger("asyncio").exception("library failed")
    lines = to.getvalue().splitlines()
    assert len(lines) == 4
    assert all(line.isprintable() for line in lines)
    assert sum("Traceback" in line and "ValueError" in line for line in lines) == 2


@pytest.mark.parametrize("value", ["", "a=b", 'a"b', "a\\", "a b", " ", "\t"])
def test_a_value_ends_where_it_ends(value: str) -> None:
    line = logs.logfmt({"a": value, "b": "c"})
    assert line.startswith('a="')
    assert line.endswith('" b=c')


def test_records_of_libraries_are_written_alike() -> None:
    to = written(io.StringIO())
    logging.getLogger("aiohttp.server").warning("Error handling request from %s", "10.0.0.1")
    assert (
        ' level=warning msg="Error handling request from 10.0.0.1" logger=aiohttp.server\n' in to.getvalue()
    )


def test_what_is_below_the_level_is_not_written() -> None:
    to = written(io.StringIO(), level="warning")
    get_logger("cotenant.x").info("this")
    get_logger("cotenant.x").warning("that")
    assert "msg=that" in to.getvalue()
    assert "this" not in to.getvalue()


def test_colours_are_for_terminals_only() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        logs.set_up(stream, "info", "logfmt")
        get_logger("cotenant.x").warning("lease lost", term=3)
    assert "\x1b[" in terminal.getvalue()
    assert "\x1b" not in file.getvalue()


def test_on_a_terminal_a_traceback_is_readable_and_nobody_else_controls_it() -> None:
    to = written(Terminal())
    try:
        failing()
    except ValueError:
        get_logger("cotenant.x").exception("failed", pod=FORGED)
    assert "\nTraceback (most recent call last):\n" in to.getvalue()
    assert "\x1b[2J" not in to.getvalue()
    assert "\u202e" not in to.getvalue()


def test_without_a_set_up_a_record_is_a_line_of_text(caplog: pytest.LogCaptureFixture) -> None:
    get_logger("cotenant.x").warning("lease lost", term=3, error=FORGED)
    assert caplog.messages[0].startswith('msg="lease lost" term=3 error="no\\n')
    assert caplog.messages[0].isprintable()


def test_rich_is_not_imported_for_tracebacks_that_it_never_draws() -> None:
    """It is a seventh of what a server imports. Whoever wants it later still finds it."""
    code = (
        "import sys, cotenant.kube.logs; assert not any(name.startswith('rich') for name in sys.modules);"
        "import rich.table; print(rich.table.Table.__name__)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "Table\n"

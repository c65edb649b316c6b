"""What did not run is named at the end, once for each reason."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from claims import Claims
from hypothesis import HealthCheck, settings

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""How long an example takes depends on the machine: timings are measured in bench/."""
settings.register_profile("same", UNTIMED, derandomize=True)
settings.register_profile("explore", UNTIMED, derandomize=False)
settings.load_profile(os.environ.get("COTENANT_HYPOTHESIS", "same"))
"""A run tells of the change that was made, not of luck; COTENANT_HYPOTHESIS=explore looks for what is new."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--claims", type=Path, help="folder in which runs note the files of tests that they take"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Whoever runs the tests in the background (`nohup`, `&`) has them ignore these, and so would every command
    that they start and interrupt.
    """
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGQUIT, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    if config.option.claims:
        config.pluginmanager.register(Claims(config.option.claims.absolute(), config.option.markexpr))


@pytest.fixture
def mps() -> Iterator[Any]:
    """The real MPS control daemon. Its sockets want short paths, so its folder is not pytest's."""
    import mpsdaemon  # most tests need nothing of it

    folder = Path(tempfile.mkdtemp(prefix="cot-mps-"))
    folder.chmod(0o755)
    daemons = mpsdaemon.Daemons(folder)
    yield daemons
    daemons.close()
    shutil.rmtree(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        if isinstance(report.longrepr, tuple)
        else str(report.longrepr)
        for report in terminalreporter.stats.get("skipped", [])
    )
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"did not run: {count} test{'s' if count > 1 else ''}: {reason}")

"""Runs the server or the agent as a process: loads settings, connects to the cluster, handles signals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cotenant.core.errors import CotenantError

if TYPE_CHECKING:
    from cotenant.kube.api.auth.access import Access
    from cotenant.kube.parts.part import Part
    from cotenant.kube.settings import Settings

settings_option = click.option(
    "--settings",
    type=click.Path(path_type=Path),
    envvar="COTENANT_SETTINGS",
    help="TOML file with settings; without it, defaults and environment variables apply.",
)


def run_service(
    file: Path | None, parts: Iterable[type[Part]], serve: Callable[[Settings, Access], Awaitable[None]]
) -> None:
    """Runs `serve` until SIGTERM or SIGINT; a CotenantError ends the process with its message."""
    from cotenant.kube.api.auth.kubeconfig import find

    settings = load(file, parts)
    access = find(path=Path(settings.kubeconfig) if settings.kubeconfig else None)
    run_until_signal(serve(settings, access))


def run_until_signal(work: Awaitable[None]) -> None:
    """Runs until SIGTERM or SIGINT; a CotenantError ends the process with its message."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_until_signal(work))


def load(file: Path | None, parts: Iterable[type[Part]]) -> Settings:
    """Loads the settings of a process of these parts, and begins to log as they say."""
    from cotenant.kube import logs
    from cotenant.kube.parts.settings import settings_type
    from cotenant.settings.loading import load_settings

    unknown: list[str] = []
    settings = load_settings(settings_type(parts), file, os.environ, unknown.append)
    logs.set_up(sys.stderr, settings.log_level, settings.log_format)
    for each in unknown:
        logs.get_logger(__name__).warning(
            "settings: no part of this process reads this section", section=each
        )
    return settings


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Chooses uvloop where it is installed: a server spends half of its time on sockets."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _until_signal(work: Awaitable[None]) -> None:
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, task, number)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    except BaseExceptionGroup as group:
        raise _first(group) from group


def _stop(task: asyncio.Future[Any], number: int) -> None:
    from cotenant.kube.logs import get_logger

    get_logger(__name__).info("stopping", signal=signal.Signals(number).name)
    task.cancel()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Picks the error to report from a group: a CotenantError if there is one."""
    error: BaseException = group.subgroup(CotenantError) or group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error

"""Runs what may never return, such as a call of a driver that hangs, in threads that no exit waits for."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class _Worker:
    """A thread that does one thing after another: to start one for each costs more than most of them."""

    def __init__(self) -> None:
        self._work = SimpleQueue[Callable[[], None]]()
        threading.Thread(target=self._run, name="driver", daemon=True).start()

    def do(self, work: Callable[[], None]) -> None:
        self._work.put(work)

    def _run(self) -> None:
        while True:
            self._work.get()()
            _idle.append(self)


_idle = deque[_Worker]()


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Runs it in a thread that has nothing else to do. A pool waits for its threads at exit, and this one may
    never return.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    # One that nobody waits for any more, since the agent ends, has failed for nobody.
    future.add_done_callback(_retrieve)

    def finish(result: T | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        problem: Exception | None = None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            problem = error
        try:
            loop.call_soon_threadsafe(finish, result, problem)
        except RuntimeError:  # the loop is closed: nobody waits for it
            return

    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.do(run)
    return future


def _retrieve(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()

"""A process that is slow: it runs for a moment, stands still for a while, and so on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.testbed.component import Component


@contextmanager
def stuttering(component: Component, *, stopped: float, running: float) -> Iterator[None]:
    """`stopped` and `running`: seconds of each. With 0.3 and 0.06 it has a sixth of its time."""
    ended = threading.Event()

    def stutter() -> None:
        while not ended.is_set():
            component.pause()
            ended.wait(stopped)
            component.resume()
            ended.wait(running)

    thread = threading.Thread(target=stutter)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        component.resume()

"""Keeps one MPS control daemon running with its defaults, and takes over one that runs already.

A daemon outlives the process that has started it: the next supervisor finds it by its lock and goes on with
it. What was set is lost when a daemon ends, so it is set anew after each start, and compared now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from cotenant.core.errors import BadInput
from cotenant.hardware.mps import daemon
from cotenant.hardware.mps.control import (
    MOST_DEVICES,
    TIMEOUT,
    Control,
    MpsError,
    NoDaemon,
    NoReply,
    UnknownCommand,
    shows_memory,
)
from cotenant.hardware.mps.place import Place

LOOK = 0.5
"""Seconds between two looks at the daemon's lock: its death is noticed within that time."""
_COMPARE = 30.0
"""Seconds between two comparisons of the defaults."""
_SHORT_LIFE = 60.0
"""Seconds. A daemon that ends sooner is started again later each time."""
_SHORTEST_DELAY, _LONGEST_DELAY = 0.5, 4.0
"""Seconds. However often it has ended, it is back within five."""
_HUNG = 5.0
"""Seconds until a daemon that does not answer is asked again."""
_LISTENS = 3.0
"""Seconds in which a daemon listens. A process that has its lock for longer without is none, whoever it is:
clients can open that file.
"""


class Defaults(NamedTuple):
    """What every client is held to, whatever its own environment says."""

    percentage: int = 100
    mebibytes: int | None = None
    """Memory of one process on each GPU; None: no limit."""
    devices: int = 1
    """GPUs that the daemon serves."""


def apply(control: Control, defaults: Defaults, *, only_changed: bool = False) -> None:
    """Sets the defaults of servers that start later. `only_changed` leaves what is shown as it should be."""
    if not only_changed or control.percentage() != defaults.percentage:
        control.set_percentage(defaults.percentage)
    if defaults.mebibytes is None:
        return
    for device in range(min(defaults.devices, MOST_DEVICES)):
        if not only_changed or not shows_memory(control.memory(device), defaults.mebibytes):
            try:
                control.set_memory(device, defaults.mebibytes)
            except UnknownCommand as error:
                raise MpsError(f"mps.pinned_memory: {error}: leave it out, or update the driver") from None


@dataclass
class Supervisor:
    """`run()` keeps the daemon running until it is cancelled, and leaves it running then."""

    place: Place
    find_program: Callable[[], Path]
    defaults: Callable[[], Defaults]
    environ: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    mode: int = 0o755
    """Of the daemon's folders."""
    tell: Callable[[str], None] = lambda _: None
    """Called with what happens, in words for a log."""
    warn: Callable[[str], None] = lambda _: None
    """The same for what is wrong."""
    clock: Callable[[], float] = time.monotonic
    timeout: float = TIMEOUT
    """Seconds for each reply."""

    pid: int | None = field(default=None, init=False)
    """The daemon that was last seen; None before the first, and while none runs."""
    starts: int = field(default=0, init=False)
    """Daemons that were started; without those that were taken over."""
    trouble: str | None = field(default="the MPS control daemon has not been started yet", init=False)
    """Why clients cannot rely on it; None if they can."""
    _applied: Defaults | None = field(default=None, init=False)
    _since: float = field(default=0.0, init=False)
    _delay: float = field(default=0.0, init=False)
    _next: float = field(default=0.0, init=False)
    """When it may be started or compared again."""

    async def run(self) -> None:
        while True:
            if not self._at_rest():
                await asyncio.to_thread(self.tend)
            await asyncio.sleep(LOOK)

    def _at_rest(self) -> bool:
        """Whether there is nothing to do: most looks cost two calls of the kernel and no thread."""
        due = self.clock() >= self._next or self.defaults() != self._applied
        return self.trouble is None and not due and daemon.holder(self.place) == self.pid

    def tend(self) -> None:
        """Looks once, and does what is needed."""
        found = daemon.holder(self.place)
        if found is None:
            self._restore()
        elif found != self.pid:
            self._take(found, "the MPS control daemon is taken over")
        elif self.clock() >= self._next or (self.trouble is None and self.defaults() != self._applied):
            self._apply(only_changed=self.trouble is None and self.defaults() == self._applied)
            daemon.shorten_logs(self.place)

    def _restore(self) -> None:
        now = self.clock()
        if self.pid is not None:
            lived, self.pid = now - self._since, None
            self._delay = 0.0 if lived >= _SHORT_LIFE else _later(self._delay)
            self._next = now + self._delay
            self.trouble = "the MPS control daemon has ended, and is started again"
            self.warn(f"the MPS control daemon has ended after {lived:.0f} s")
        if now < self._next:
            return
        try:
            self.place.make(self.mode)
            started = daemon.start(
                self.find_program(), self.place, environ=self.environ, options=self.options
            )
        except (MpsError, BadInput, OSError) as error:
            self._delay = _later(self._delay)
            self._next = self.clock() + self._delay
            self._say(str(error))
            return
        self.starts += 1
        self._take(started, "the MPS control daemon is started")

    def _take(self, pid: int, words: str) -> None:
        self.pid, self._since = pid, self.clock()
        self.tell(f"{words}: pid {pid}, pipe folder {self.place.pipe}")
        self._apply(only_changed=False)

    def _apply(self, *, only_changed: bool) -> None:
        self._next = self.clock() + _COMPARE
        try:
            control = Control(self.find_program(), self.place, self.timeout)
            wanted = self.defaults()
            apply(control, wanted, only_changed=only_changed)
        except (MpsError, BadInput) as error:
            self._next = self.clock() + (_HUNG if isinstance(error, NoReply) else _SHORTEST_DELAY)
            self._say(str(error))
            if isinstance(error, NoDaemon) and self.clock() - self._since >= _LISTENS:
                self._replace_lock()
        else:
            self.trouble, self._applied = None, wanted

    def _replace_lock(self) -> None:
        """Takes the place from a process that holds the lock and is no daemon."""
        self.warn(f"process {self.pid} holds the lock of an MPS control daemon and is none: it is replaced")
        with contextlib.suppress(OSError):
            self.place.lock.unlink()
        self._since, self._next = self.clock(), 0.0

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.warn(trouble)
        self.trouble = trouble


def _later(delay: float) -> float:
    return min(_LONGEST_DELAY, max(_SHORTEST_DELAY, 2 * delay))

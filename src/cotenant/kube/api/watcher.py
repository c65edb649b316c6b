"""Keeps a store equal to the API server's state by list and watch, through restarts, stalls and breaks.

List, then watch from the list's resourceVersion; after any break, watch again from the last event or
bookmark. If the server no longer knows that far back (410), list again and report the difference. So no
change is reported twice, and a deletion that happened during a break is still reported.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random
from typing import Generic, TypeVar

from cotenant.kube.api.backoff import Backoff
from cotenant.kube.api.client import EVERYTHING, Client, Selection
from cotenant.kube.api.errors import Gone, KubeError, Silent, Unreachable
from cotenant.kube.api.objects import HasMeta
from cotenant.kube.api.resources import Resource
from cotenant.kube.api.store import Store
from cotenant.kube.api.watch_stream import BOOKMARK, DELETED
from cotenant.kube.logs import get_logger

T = TypeVar("T", bound=HasMeta)
log = get_logger(__name__)


@dataclass(frozen=True)
class WatchSettings:
    """Times are in seconds."""

    first_pause: float = 0.1
    longest_pause: float = 5.0
    """Between retries while the server does not answer; jittered."""
    shortest: int = 240
    longest: int = 480
    """How long one watch request lasts; drawn at random, so that clients spread over API servers."""
    silence: float = 75.0
    """A watch that is silent for this long may be dead: another one is opened. API servers send a
    bookmark about every minute if there was anything to say.
    """
    list_timeout: float = 60.0
    """For each page."""
    newest: bool = True
    """Whether the first list is a quorum read. Later ones always are: the store never goes back in time."""


@dataclass
class Watcher(Generic[T]):
    """`run()` keeps `store` current until it is cancelled."""

    client: Client
    resource: Resource[T]
    selection: Selection = EVERYTHING
    settings: WatchSettings = field(default_factory=WatchSettings)
    store: Store[T] = field(default_factory=Store)
    random: Random = field(default_factory=Random, repr=False)
    clock: Callable[[], float] = time.monotonic

    trouble: KubeError | None = field(default=None, init=False)
    """Why the store is not current now."""
    heard: float = field(default=float("-inf"), init=False)
    """When the server last sent something, by `clock`."""
    lists: int = field(default=0, init=False)
    """How often everything was listed."""
    _position: str = field(default="", init=False)
    _following: asyncio.Future[None] | None = field(default=None, init=False, repr=False)
    _wanted: int = field(default=0, init=False)
    _had: int = field(default=0, init=False)
    _listed: asyncio.Event = field(default_factory=asyncio.Event, init=False, repr=False)
    _synced: asyncio.Event = field(default_factory=asyncio.Event, init=False, repr=False)

    @property
    def synced(self) -> bool:
        """Whether the store has been filled once."""
        return self._synced.is_set()

    async def wait_until_synced(self, within: float | None = None) -> None:
        """Raises the trouble, or Unreachable, if that takes longer than `within` seconds."""
        try:
            async with asyncio.timeout(within):
                await self._synced.wait()
        except TimeoutError:
            problem = self.trouble or Unreachable(f"list {self.resource.plural}: not listed in {within} s")
            raise problem from None

    async def relist(self) -> None:
        """Lists everything again; on return, the store shows a state not older than this call."""
        self._wanted += 1
        mine = self._wanted
        self._position = ""
        if self._following is not None:
            self._following.cancel()
        while self._had < mine:
            self._listed.clear()
            await self._listed.wait()

    async def run(self) -> None:
        backoff = Backoff(self.settings.first_pause, self.settings.longest_pause, self.random)
        while True:
            began, asked = self.clock(), None
            try:
                if not self._position:
                    await self._list()
                if not self._position or not await self._follow_unless_told(backoff):
                    continue
            except Silent:
                continue  # only another try can tell whether anything is wrong
            except Gone as error:
                self._position = ""
                self._note(error)
            except KubeError as error:
                asked = error.retry_after
                self._note(error)
            else:
                self.trouble = None
                if self.clock() - began > self.settings.longest_pause:
                    backoff.reset()
                    continue  # the request had its time: nothing is wrong
            await asyncio.sleep(backoff.next(asked))

    async def _follow_unless_told(self, backoff: Backoff) -> bool:
        """Returns False if it ended because a list is wanted."""
        self._following = asyncio.ensure_future(self._follow(backoff))
        following = self._following
        try:
            await asyncio.wait([following])
        finally:
            self._following = None
            following.cancel()
            await asyncio.wait([following])
        if following.cancelled():
            return False
        following.result()
        return True

    async def _list(self) -> None:
        wanted = self._wanted
        listing = await self.client.list(
            self.resource,
            self.selection,
            newest=self.settings.newest or self.lists > 0,
            retry=False,  # `run` does that, and shows the trouble meanwhile
            within=self.settings.list_timeout,
        )
        self.lists += 1
        self.store.replace(listing.items)
        self._had = wanted
        if wanted == self._wanted:  # else somebody wants one that begins later
            self._position = listing.resource_version
        self._heard()
        self._synced.set()
        self._listed.set()

    async def _follow(self, backoff: Backoff) -> None:
        watch = self.client.watch(
            self.resource,
            self.selection,
            resource_version=self._position,
            seconds=self.random.randint(self.settings.shortest, self.settings.longest),
            silence=self.settings.silence,
        )
        async with aclosing(watch) as events:
            async for event in events:
                if event.object is None:
                    assert event.kind == BOOKMARK  # noqa: S101
                elif event.kind == DELETED:
                    self.store.remove(event.object)
                else:
                    self.store.put(event.object)
                if event.resource_version != self._position:
                    self._position = event.resource_version
                    backoff.reset()
                self._heard()

    def _heard(self) -> None:
        self.heard = self.clock()
        self.trouble = None

    def _note(self, error: KubeError) -> None:
        if self.trouble is None or type(self.trouble) is not type(error):
            log.warning("watch interrupted", kind=self.resource.plural, error=error)
        self.trouble = error

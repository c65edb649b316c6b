"""Defines a part: one named piece of a server or an agent.

A part brings everything of its own: its section of the settings, the fields that it needs of watched objects,
its work, its readiness, its metrics and its HTTP routes. A server and an agent are each a list of parts, so a
new capability is one folder and one line in such a list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, cast

from cotenant.kube.api.client import Client
from cotenant.kube.api.informers import Informers, Need
from cotenant.kube.settings import Settings
from cotenant.observe.exposition import Registry

if TYPE_CHECKING:
    from aiohttp import web

S = TypeVar("S")


@dataclass(frozen=True)
class Term:
    """The time for which this server holds the lease."""

    number: int
    inherited: bool = False
    """Whether the leader before may have stopped in the middle of a write: it did not release the lease."""


class Leading(Protocol):
    """Says whether this server leads. Ask right before each act of a leader."""

    def must_lead(self, for_seconds: float = 0.0) -> None:
        """Raises unless no other server can lead now, nor in the coming `for_seconds` seconds."""

    def leads(self, term: Term) -> bool:
        """Whether this term still lasts."""

    def led(self) -> bool:
        """Whether any server leads, as far as this one has seen."""

    def not_serving(self) -> str | None:
        """Says why nothing may be answered as leader now; None if it may."""


@dataclass
class Context:
    """What a process gives to its parts. They are made in the order of the list, and may share what they
    keep: a later part finds it by its type, and need not know who keeps it.
    """

    settings: Settings
    client: Client
    informers: Informers
    leading: Leading
    registry: Registry
    environ: Mapping[str, str]
    _shared: dict[type[Any], Any] = field(default_factory=dict)

    def share(self, kept: S) -> S:
        """Offers something to the parts after this one."""
        self._shared[type(kept)] = kept
        return kept

    def use(self, kind: type[S]) -> S:
        """Returns what an earlier part of the list shares: an object of this class, or one that has the
        methods of this Protocol. So a part declares what it needs of another, and imports nothing of it.
        """
        found = [kept for type_, kept in self._shared.items() if type_ is kind or isinstance(kept, kind)]
        if len(found) != 1:
            several = "several parts share one" if found else "no earlier part of the list shares it"
            raise LookupError(f"{kind.__name__}: {several}")
        return cast("S", found[0])

    def section(self, kind: type[S]) -> S:
        """Returns a part's own section of the settings."""
        return section(self.settings, kind)


def section(settings: Settings, kind: type[S]) -> S:
    """Finds the section of this type in settings that `settings_type` composed."""
    for name in settings.__dataclass_fields__:
        found = getattr(settings, name)
        if type(found) is kind:
            return found
    raise LookupError(f"{kind.__name__}: no part in the list declares it as its section")


class Part:
    """The one protocol, with defaults for what a part does not need."""

    name: ClassVar[str]
    """In logs, readiness and metrics."""
    leader_only: ClassVar[bool] = False
    """Whether `run` works only while this server leads: it is started when a term has begun, and cancelled
    when the term is over."""
    counts_for_readiness: ClassVar[bool] = True
    """Whether the process is unready while the part is. A server's readiness decides whether the API server
    reaches the webhook, so a part that only the leader's answers need must not count."""
    section: ClassVar[tuple[str, type[Any]] | None] = None
    """The section of the settings that the part brings: its name in the file, and a frozen dataclass."""

    def __init__(self, context: Context) -> None:
        """Makes the part; metrics are registered here. Nothing is awaited before `run` or `begin`."""

    @classmethod
    def needs(cls, settings: Settings) -> Iterable[Need[Any]]:
        """Declares the kinds that the part watches and the fields that it needs of them."""
        del settings
        return ()

    async def begin(self, term: Term) -> None:
        """Makes the part right for a new term. No answer is given as leader before all parts have begun."""

    async def run(self) -> None:
        """Works until it is cancelled. A part that returns or raises has failed."""
        await asyncio.Event().wait()

    def in_doubt(self) -> bool:
        """Whether writes that the part sent as leader may still arrive after it has stopped. If so, the lease
        is not released: the next leader then fences them.
        """
        return False

    def ready(self) -> str | None:
        """Says in words what the part still waits for; None if it is ready."""
        return None

    def routes(self) -> Sequence[web.RouteDef]:
        """HTTP routes that the process serves for the part, next to its health and metrics."""
        return ()

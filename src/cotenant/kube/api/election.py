"""Elects one leader among several servers, with a Lease object.

Safety depends on monotonic clocks only; no server compares its time with another's. The leader counts from
*before* it sent the last successful renewal, and stops leading `margin` seconds before the lease's duration
is over. The others count the full duration from *after* they first saw that renewal. So a leader's term ends
before the next one can begin, however long any of them, or the API server, was stopped in between.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

from cotenant.core.errors import BadInput, CotenantError
from cotenant.kube.api.client import Client
from cotenant.kube.api.errors import AlreadyExists, Conflict, KubeError, NotFound
from cotenant.kube.api.objects import Lease
from cotenant.kube.api.patches import Guard
from cotenant.kube.api.resources import LEASES
from cotenant.kube.logs import get_logger

log = get_logger(__name__)
NEVER = float("-inf")


class NotLeading(CotenantError):
    """Another server may be the leader: do not act."""


@dataclass(frozen=True)
class LeaseSettings:
    """Times are in seconds."""

    name: str = "cotenant-server"
    namespace: str = "cotenant"
    duration: int = 10
    """How long others wait for a leader that does not renew."""
    margin: float = 2.0
    """How much earlier the leader stops: covers clocks that run at different speeds."""
    renew_every: float = 2.0
    look_every: float = 1.0
    """How often the others read the lease; jittered."""

    def __post_init__(self) -> None:
        if not 0 < self.margin < self.duration - self.renew_every:
            raise BadInput("lease: duration must be longer than margin and renew_every together")


def unique_identity() -> str:
    """Returns an identity that no other process has, not even another run of the same container."""
    return f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:12]}"


def boot_clock() -> float:
    """Returns monotonic seconds that also count while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass
class Election:
    """`run()` competes for the lease until it is cancelled, and then releases it."""

    client: Client
    settings: LeaseSettings = field(default_factory=LeaseSettings)
    identity: str = field(default_factory=unique_identity)
    clock: Callable[[], float] = boot_clock
    random: Random = field(default_factory=Random, repr=False)

    wall: Callable[[], datetime] = field(default=lambda: datetime.now(UTC), repr=False)
    """For the timestamps in the lease, which are for people; no decision depends on them."""

    term: int = field(default=0, init=False)
    """Counts the leaders of this lease; decisions of an earlier term are void."""
    inherited: bool = field(default=True, init=False)
    """Whether the previous leader may have died in the middle of its work: it did not release the lease."""
    holder: str = field(default="", init=False)
    """The identity in the lease, for display."""
    trouble: KubeError | None = field(default=None, init=False)
    _taken_over: int = field(default=0, init=False)
    """The last term of which `took_over` was said."""
    _begins: float = field(default=NEVER, init=False)
    _ends: float = field(default=NEVER, init=False)
    _away_until: float = field(default=NEVER, init=False)
    _seen: Lease | None = field(default=None, init=False)
    _seen_at: float = field(default=NEVER, init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False, repr=False)

    def leading(self, for_seconds: float = 0.0) -> bool:
        """Whether no other server can lead now, nor in the next `for_seconds` seconds. Call it right before
        an action, with the time that the action may take.
        """
        return self._begins <= self.clock() < self._ends - for_seconds

    def led(self) -> bool:
        """Whether some server holds a lease that has not expired, as far as this server has seen. For
        display: it says nothing about who may act.
        """
        duration = self.settings.duration
        if self._seen is not None:
            duration = self._seen.spec.lease_duration_seconds or duration
        return bool(self.holder) and self.clock() - self._seen_at <= duration

    def withdraw(self, seconds: float) -> None:
        """Stops leading at once and does not compete for `seconds`. The lease is not released: others wait
        for its full duration, and treat this leader as one that died.
        """
        self._away_until = self.clock() + seconds
        self._drop()

    def took_over(self, term: int) -> None:
        """Says that what an earlier leader may have left behind is dealt with. Until then an inherited lease
        is not released: the next leader inherits it in turn.
        """
        self._taken_over = term

    def must_lead(self, for_seconds: float = 0.0) -> None:
        if not self.leading(for_seconds):
            by = self.holder or "nobody"
            raise NotLeading(
                f"lease {self.settings.namespace}/{self.settings.name}: not ours now, held by {by}"
            )

    async def wait_until_leading(self) -> int:
        """Waits until this server leads and returns the term."""
        while not self.leading():
            await self._changed.wait()
        return self.term

    async def wait_until_over(self, term: int) -> None:
        while self.leading() and self.term == term:
            await self._changed.wait()

    async def run(self) -> None:
        """Cancel it after everything that acts as leader has stopped."""
        try:
            while True:
                pause = await self._try()
                await asyncio.sleep(pause)
        finally:
            await self._release()

    async def _try(self) -> float:
        """Makes one step and returns the seconds to wait before the next."""
        try:
            await self._step()
        except KubeError as error:
            if self.trouble is None:
                log.warning("lease not reached", lease=self.settings.name, error=error)
            self.trouble = error
        else:
            self.trouble = None
            if self._holds_lease():
                return self.settings.renew_every
        return self.settings.look_every * (0.5 + self.random.random() / 2)

    async def _step(self) -> None:
        if self._holds_lease():
            try:
                return await self._write(self._renewal())
            except (Conflict, NotFound):
                pass  # another server has changed it: read who holds it
        lease = await self._read()
        if self.clock() < self._away_until:
            return None
        if lease is None:
            return await self._create()
        if self._is_holder(lease) and self._holds_lease():
            return await self._write(self._renewal())
        self._drop()
        if self._can_take(lease):
            self.inherited = bool(lease.spec.holder_identity)
            await self._write(self._acquisition(lease))
        return None

    async def _read(self) -> Lease | None:
        settings = self.settings
        try:
            lease = await self.client.get(
                LEASES, settings.name, settings.namespace, within=self._request_seconds()
            )
        except NotFound:
            return None
        self._observe(lease)
        return lease

    def _observe(self, lease: Lease) -> None:
        """Remembers the lease. Its age counts from when this version of it was first seen."""
        self.holder = lease.spec.holder_identity or ""
        if self._seen is None or Guard.of(self._seen) != Guard.of(lease):
            self._seen, self._seen_at = lease, self.clock()

    def _holds_lease(self) -> bool:
        return self.clock() < self._ends

    def _is_holder(self, lease: Lease) -> bool:
        return lease.spec.holder_identity == self.identity

    def _can_take(self, lease: Lease) -> bool:
        """Whether the lease can be taken: also if it is ours by a write whose response was lost."""
        if not lease.spec.holder_identity or self._is_holder(lease):
            return True
        return self.clock() - self._seen_at > (lease.spec.lease_duration_seconds or self.settings.duration)

    def _renewal(self) -> dict[str, Any]:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.settings.duration,
            "renewTime": self._now(),
        }

    def _acquisition(self, lease: Lease | None) -> dict[str, Any]:
        before = 0 if lease is None else lease.spec.lease_transitions or 0
        return {
            **self._renewal(),
            "acquireTime": self._now(),
            "leaseTransitions": max(before, self.term) + 1,
        }

    async def _write(self, spec: dict[str, Any]) -> None:
        """Writes the lease, guarded by the version that was seen: of two servers that write, one succeeds."""
        assert self._seen is not None  # noqa: S101 -- it was read before
        sent = self.clock()
        lease = await self.client.merge_patch(
            LEASES,
            self.settings.name,
            {"spec": spec},
            self.settings.namespace,
            guard=Guard.of(self._seen),
            within=self._request_seconds(),
        )
        self._won(lease, sent)

    async def _create(self) -> None:
        """Creates the lease. It may have been deleted while another server still leads, so leadership begins
        only after that one's time. An installation that includes a Lease without a holder starts at once.
        """
        self._drop()
        longest = self.settings.duration
        if self._seen is not None:
            longest = max(longest, self._seen.spec.lease_duration_seconds or 0)
        self._begins = self.clock() + longest
        self.inherited = True
        body = {"metadata": {"name": self.settings.name}, "spec": self._acquisition(self._seen)}
        sent = self.clock()
        try:
            lease = await self.client.create(
                LEASES, body, self.settings.namespace, within=self._request_seconds()
            )
        except AlreadyExists:
            return
        self._won(lease, sent)

    def _won(self, lease: Lease, sent: float) -> None:
        self._observe(lease)
        if self.clock() < self._away_until:
            return  # the answer to a renewal that was sent before this server withdrew
        self._ends = sent + self.settings.duration - self.settings.margin
        term = lease.spec.lease_transitions or 0
        if term != self.term:
            self.term = term
            log.info("lease acquired", lease=self.settings.name, term=term)
        loop = asyncio.get_running_loop()
        for moment in (self._begins, self._ends):
            loop.call_later(max(0.0, moment - self.clock()), self._notify)
        self._notify()

    def _drop(self) -> None:
        if self._ends != NEVER:
            self._ends = NEVER
            log.warning("lease lost", lease=self.settings.name, term=self.term, holder=self.holder)
            self._notify()

    def _notify(self) -> None:
        """Wakes every waiter; each checks again whether this server leads."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _release(self) -> None:
        """Releases the lease, so that the next leader need not wait nor fence. Not if that would hide that a
        write may still arrive: if this server has withdrawn, has lost its lease, has not taken over what it
        inherited, or waits itself for an unknown leader's time to end.
        """
        clean = not self.inherited or self._taken_over == self.term
        begun = self.leading() and clean
        self._ends = NEVER
        self._notify()
        try:
            lease = await self._read() if begun and self._seen is not None else None
            if lease is not None and self._is_holder(lease):
                await self._write({"holderIdentity": None, "renewTime": self._now()})
        except KubeError as error:
            log.warning("lease not released: it will expire", lease=self.settings.name, error=error)
        finally:
            self._ends = NEVER

    def _request_seconds(self) -> float:
        """Seconds for one request: if it is lost, there must be time for another before the lease expires."""
        return max(1.0, (self.settings.duration - self.settings.margin) / 3)

    def _now(self) -> str:
        return self.wall().astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")

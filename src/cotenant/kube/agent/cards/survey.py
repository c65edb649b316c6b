"""Reads the GPUs' state at an interval, and goes on when the driver hangs.

NVML is called in separate threads. One that does not return is left behind: its GPUs are then unhealthy and
the agent goes on. When the driver answers after all, they are healthy again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cotenant.core.errors import CotenantError
from cotenant.dialects.pod_grant import PodGrant
from cotenant.hardware import activity
from cotenant.hardware.accounting import account
from cotenant.hardware.nvml import CardReading, Fault, Readings
from cotenant.kube.agent.cards.cgroups import Owner
from cotenant.kube.agent.cards.health import NOTHING, Remembered, judge, marked, together
from cotenant.kube.agent.cards.process_owners import ProcessOwners
from cotenant.kube.agent.grants import granted_by_gpu
from cotenant.kube.agent.threads import in_thread
from cotenant.kube.logs import get_logger

log = get_logger(__name__)

_LISTEN = 30.0
"""Seconds. Then the GPUs are registered for fault events again: some may have come back."""
STEP = 16 << 20
"""Bytes. Memory outside grants is rounded up to it, so that the node's status seldom changes."""
_APART = 0.5
"""Seconds, the shortest time between two surveys, however many faults ask for one."""


class Cards(Protocol):
    """Reads the state of the GPUs."""

    def read(self) -> Readings: ...

    def close(self) -> None: ...


class Faults(Protocol):
    """Reports faults of the GPUs."""

    def faults(self, timeout: float) -> Iterator[Fault]: ...


class Look(NamedTuple):
    """What the thread that asks the driver returns."""

    readings: Readings
    owners: Mapping[int, Owner | None]
    """By pid; None for a process of no pod."""
    busy: Mapping[str, Mapping[int, int]]
    """Percent of each GPU's time by pid; without the GPUs of which the driver does not report it."""
    own_pids: Mapping[int, int] = {}
    """By pid, for processes of pods: the pid by which each knows itself."""


class PodProcess(NamedTuple):
    """A process of a pod that the driver reports on a GPU."""

    pid: int
    """On the host."""
    own_pid: int
    """By which it knows itself, in its own pid namespace."""
    owner: Owner
    bytes: int | None = None
    """What it holds on that GPU; None where the driver does not report it."""


class Sight(NamedTuple):
    """The result of a survey: the GPUs, and the memory on each that no grant covers."""

    cards: tuple[CardReading, ...]
    outside: Mapping[str, int]
    at: float
    """Time of the survey, by a monotonic clock."""
    granted: bool
    """Whether the node's grants were known: without them, all that pods hold counts as outside."""
    busy: Mapping[str, Mapping[Owner, int]] = {}
    """Percent of each GPU's time by container; without the GPUs of which the driver does not report it."""
    processes: Mapping[str, tuple[PodProcess, ...]] = {}
    """Processes of pods on each GPU. This and `busy` are the same objects as before where nothing changed."""


@dataclass
class Survey:
    """`run()` keeps `sight` up to date until it is cancelled."""

    cards: Cards
    listener: Faults
    """Not the same object as `cards`: each is used by its own thread."""
    grants: Callable[[], Mapping[str, PodGrant] | None]
    """By pod UID; None while they are not known."""
    counted: Callable[[], Mapping[str, Mapping[str, int]]]
    """Bytes that slots count, by GPU and pod UID; read only where the driver does not report a process's."""
    interval: float
    timeout: float
    recovery: float
    seen: Callable[[], None] = lambda: None
    """Called after each survey."""
    clock: Callable[[], float] = time.monotonic
    busy: Callable[[Iterable[str]], Mapping[str, Mapping[int, int]]] = activity.by_gpu
    """Percent of GPUs' time by pid; without those of which the driver does not report it."""

    processes: ProcessOwners = field(default_factory=ProcessOwners)

    sight: Sight | None = field(default=None, init=False)
    trouble: str | None = field(default=None, init=False)
    """Why the driver does not answer; None if it does."""
    _remembered: Remembered = field(default=NOTHING, init=False)
    _unexplained: dict[str, int] = field(default_factory=dict, init=False)
    _asking: asyncio.Future[Look] | None = field(default=None, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def recall(self, older: Remembered) -> None:
        """Takes over what the agent before this one had published."""
        self._remembered = together(self._remembered, older)
        self.again()

    def again(self) -> None:
        """Surveys as soon as possible."""
        self._wake.set()

    async def run(self) -> None:
        listening = asyncio.Event()
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._listen, args=(loop, listening), name="faults", daemon=True).start()
        try:
            async with asyncio.timeout(self.timeout):
                await listening.wait()
        except TimeoutError:
            log.warning("not listening for GPU faults yet: the driver does not answer")
        while True:
            self._wake.clear()
            await self.look()
            await asyncio.sleep(_APART)
            try:
                async with asyncio.timeout(max(0.0, self.interval - _APART)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def look(self) -> Sight:
        """Surveys once, within `timeout`."""
        if self._asking is None:
            self._asking = in_thread(self._ask)
        done, _ = await asyncio.wait({self._asking}, timeout=self.timeout)
        told: Readings | str = f"the driver does not answer: a look took more than {self.timeout:g}s"
        owners: Mapping[int, Owner | None] = {}
        busy: Mapping[str, Mapping[int, int]] = {}
        own_pids: Mapping[int, int] = {}
        if done:
            asked, self._asking = self._asking, None
            try:
                told, owners, busy, own_pids = asked.result()
            except CotenantError as error:
                told = str(error)
            except (
                Exception
            ) as error:  # whatever a driver does, its GPUs are not healthy and the agent goes on
                log.exception("GPUs cannot be read")
                told = f"the GPUs cannot be read: {error}"
        self._note(told if isinstance(told, str) else None)
        before, sight = self.sight, self._reckon(told, owners)
        sight = sight._replace(
            busy=_by_owner(busy, owners), processes=_of_pods(sight.cards, owners, own_pids)
        )
        self.sight = sight if before is None else _with_unchanged(sight, before)
        self.seen()
        return self.sight

    def _ask(self) -> Look:
        readings = self.cards.read()
        busy = self.busy(card.gpu.uuid for card in readings.cards if card.problem is None)
        pids = {process.pid for card in readings.cards for process in card.processes}
        owned = self.processes.of(pids.union(*busy.values()))
        return Look(readings, owned.owners, busy, owned.own_pids)

    def _reckon(self, told: Readings | str, owners: Mapping[int, Owner | None]) -> Sight:
        pods = {pid: owner and owner.uid for pid, owner in owners.items()}
        now = self.clock()
        known = self.grants()
        granted = granted_by_gpu(known or {})
        before = self._remembered
        self._remembered, cards = judge(before, told, granted.keys(), now, self.recovery)
        told_all = all(process.bytes is not None for card in cards for process in card.processes)
        counted = {} if told_all else self.counted()
        outside = {}
        for card in cards:
            uuid = card.gpu.uuid
            unreported = _unreported(card, pods, counted.get(uuid, {}))
            found = account(card, pods, granted.get(uuid, {}), unreported)
            outside[uuid] = _rounded(found.confirmed(self._unexplained.get(uuid)).outside)
            self._unexplained[uuid] = found.unexplained
        self._tell_changes(cards)
        return Sight(cards, outside, now, known is not None)

    def _tell_changes(self, cards: tuple[CardReading, ...]) -> None:
        before = {card.gpu.uuid: card.problem for card in self.sight.cards} if self.sight else {}
        for card in cards:
            was = before.get(card.gpu.uuid)
            if card.problem is not None and card.problem != was:
                log.warning(
                    "GPU takes no new grant", gpu=card.gpu.index, gpu_uuid=card.gpu.uuid, problem=card.problem
                )
            elif card.problem is None and was is not None:
                log.info("GPU is healthy again", gpu=card.gpu.index, gpu_uuid=card.gpu.uuid)
        for uuid in before.keys() - {card.gpu.uuid for card in cards}:
            log.warning("GPU is gone", gpu_uuid=uuid)

    def _note(self, trouble: str | None) -> None:
        if trouble is not None and trouble != self.trouble:
            log.error("GPUs cannot be surveyed", error=trouble)
        elif trouble is None and self.trouble is not None:
            log.info("driver answers again")
        self.trouble = trouble

    def _listen(self, loop: asyncio.AbstractEventLoop, listening: asyncio.Event) -> None:
        """Runs in a thread, for as long as the process lives."""
        while True:
            pause = 0.0
            try:
                faults = self.listener.faults(_LISTEN)
                loop.call_soon_threadsafe(listening.set)
                for fault in faults:
                    loop.call_soon_threadsafe(self._heard, fault)
            except CotenantError:  # `look` reports what is wrong with the driver
                pause = self.interval
            except RuntimeError:  # the loop is closed: the agent ends
                return
            except Exception:
                log.exception("cannot listen for GPU faults")
                pause = self.interval
            try:
                loop.call_soon_threadsafe(listening.set)
            except RuntimeError:
                return
            time.sleep(pause)

    def _heard(self, fault: Fault) -> None:
        log.warning("GPU reported a fault", gpu_uuid=fault.uuid, xid=fault.xid)
        self._remembered = marked(self._remembered, [fault], self.clock())
        self.again()


def _unreported(
    card: CardReading, pods: Mapping[int, str | None], counted: Mapping[str, int]
) -> dict[str, int]:
    """What slots count beyond the driver's figures, for pods with a process of which it reports none. A
    slot's entries have pids of the container, so they cannot be matched with processes one by one.
    """
    found = {}
    for uid in {pods.get(process.pid) for process in card.processes if process.bytes is None}:
        if uid is not None:
            reported = sum(each.bytes or 0 for each in card.processes if pods.get(each.pid) == uid)
            found[uid] = max(0, counted.get(uid, 0) - reported)
    return found


def _rounded(size: int) -> int:
    return -(-size // STEP) * STEP


def _of_pods(
    cards: Iterable[CardReading], owners: Mapping[int, Owner | None], own_pids: Mapping[int, int]
) -> dict[str, tuple[PodProcess, ...]]:
    return {
        card.gpu.uuid: tuple(
            PodProcess(process.pid, own_pids[process.pid], owner, process.bytes)
            for process in card.processes
            if process.pid in own_pids and (owner := owners.get(process.pid)) is not None
        )
        for card in cards
    }


def _with_unchanged(sight: Sight, before: Sight) -> Sight:
    return sight._replace(
        busy=before.busy if sight.busy == before.busy else sight.busy,
        processes=before.processes if sight.processes == before.processes else sight.processes,
    )


def _by_owner(
    busy: Mapping[str, Mapping[int, int]], owners: Mapping[int, Owner | None]
) -> dict[str, dict[Owner, int]]:
    """Adds up the processes of each container; those of no pod are left out."""
    found: dict[str, dict[Owner, int]] = {}
    for uuid, by_pid in busy.items():
        of_card = found.setdefault(uuid, {})
        for pid, percent in by_pid.items():
            owner = owners.get(pid)
            if owner is not None:
                of_card[owner] = of_card.get(owner, 0) + percent
    return found

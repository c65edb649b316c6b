"""Creates, reads and disturbs the shared file of the stand-in driver, which simulates GPUs.

The stand-in takes the place of the CUDA driver and NVML on machines without GPUs. All its users share one
file. This module reads the file directly, not through NVML, so that tests can check what others report.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import struct
import time
import uuid
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cotenant.core.errors import BadInput, CotenantError
from cotenant.hardware import libraries
from cotenant.hardware.host_memory import read_host_memory
from cotenant.hardware.standin import layout
from cotenant.hardware.standin.models import MIB, Model
from cotenant.hardware.standin.spec import DRIVER_VERSION, CardSpec, parse_description, parse_spec

__all__ = [
    "CardSpec",
    "MemoryLimit",
    "StandIn",
    "StandInCard",
    "StandInProcess",
    "context_bytes",
    "create",
    "environment",
    "parse_description",
    "parse_spec",
]

CONTEXT_BYTES = 256 * MIB
LAUNCH_SECONDS = 20e-6
CUDA_VERSION = 13000
VARIABLE = "COTENANT_STANDIN"
"""Names the shared file to the stand-in's libraries."""
RUNTIME = "COTENANT_STANDIN_RUNTIME"
"""Where it is set, the stand-in also does what NVIDIA's container runtime would: a process sees only the GPUs
that NVIDIA_VISIBLE_DEVICES names.
"""

_UUIDS = uuid.UUID("5d0b0a9c-9f5f-4b5e-8f6c-0d8d5d3c8d11")
_SIZE = ctypes.sizeof(layout.State)
_BEGINNING = layout.State.process.offset
"""Bytes that describe the GPUs. Processes follow; they begin as zeros."""
_LOST_XID = 79
_FLOCK = "hhqqi4x"


@dataclass(frozen=True, slots=True)
class StandInCard:
    uuid: str
    name: str
    capacity: int
    """Bytes that programs can get: the total less the driver's reserve."""
    parent: str | None
    lost: bool
    used: int
    peak: int
    """The most that was in use at one time, also by processes that have ended."""
    launches: int
    """Kernel launches of the processes that are on it, or were last."""


@dataclass(frozen=True, slots=True)
class StandInProcess:
    pid: int | None
    """In this process's pid namespace; None if it is not visible there."""
    name: str
    used: Mapping[str, int]
    """Bytes by GPU UUID, contexts included."""
    context: Mapping[str, int]
    """The part of these that contexts take."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """What nvmlDeviceSetMemoryLimits_v1 has set."""

    path: str
    """The cgroup's folder, as whoever set it calls it."""
    uuid: str
    soft: int
    hard: int


def create(
    path: Path,
    specs: tuple[CardSpec, ...],
    context_bytes: int = CONTEXT_BYTES,
    launch_seconds: float = LAUNCH_SECONDS,
    driver: str = DRIVER_VERSION,
) -> None:
    """Creates the shared file. If it is there already, with these GPUs, it is left as it is.

    It appears atomically; of several processes that try at once, one succeeds.
    """
    image = _image(specs, context_bytes, launch_seconds, driver)
    with contextlib.suppress(FileExistsError):
        _publish(path, image)
        return
    with path.open("rb") as file:
        found = file.read(_BEGINNING)
    if len(found) < _BEGINNING or _identity(found) != _identity(image):
        raise CotenantError(
            f"{path} describes other GPUs or is of another version: remove it once nothing uses it"
        )


def _identity(image: bytes) -> tuple[object, ...]:
    """Returns what stays the same while the GPUs are used."""
    state = layout.State.from_buffer_copy(image.ljust(_SIZE, b"\0"))
    cards = [state.card[i] for i in range(min(state.cards, layout.CARDS))]
    drivers = (state.cuda_version, state.driver_version)
    return (
        state.magic,
        state.abi,
        *drivers,
        *((card.uuid, card.name, card.total, card.parent) for card in cards),
    )


def _publish(path: Path, image: bytes) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    descriptor = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        os.fchmod(descriptor, 0o666)  # all users of the machine share its GPUs
        os.write(descriptor, image)
        os.ftruncate(descriptor, _SIZE)
        os.link(fresh, path)
    finally:
        os.close(descriptor)
        fresh.unlink()


def _image(specs: tuple[CardSpec, ...], context_bytes: int, launch_seconds: float, driver: str) -> bytes:
    """Builds the beginning of the file, up to the processes."""
    state = layout.State()
    state.magic = layout.MAGIC
    state.abi = layout.ABI
    state.size = _SIZE
    state.cuda_version = CUDA_VERSION
    state.driver_version = driver.encode()
    place = 0
    for ordinal, spec in enumerate(specs):
        model, whole = spec.model, place
        _fill(state.card[place], model, context_bytes, launch_seconds)
        state.card[place].uuid = f"GPU-{_uuid(f'card {ordinal}')}".encode()
        state.card[place].ordinal = ordinal
        place += 1
        for number, (profile_name, profile) in enumerate(spec.instances):
            card = state.card[place]
            _fill(card, model, context_bytes, launch_seconds)
            card.uuid = f"MIG-{_uuid(f'card {ordinal} instance {number}')}".encode()
            card.name = f"{model.name} MIG {profile_name}".encode()
            card.total, card.reserved = profile.memory, 0
            card.multiprocessors, card.slices = profile.multiprocessors, profile.slices
            card.parent, card.instance, card.ordinal = whole + 1, number + 1, number
            place += 1
    state.cards = place
    return bytes(state)[:_BEGINNING]


def _fill(card: layout.Card, model: Model, context_bytes: int, launch_seconds: float) -> None:
    card.name = model.name.encode()
    card.total = read_host_memory().total if model.unified else model.total
    card.reserved, card.unified = model.reserved, model.unified
    card.context_bytes = context_bytes
    card.launch_ns = round(launch_seconds * 1e9)
    card.major, card.minor = model.capability
    card.multiprocessors = model.multiprocessors
    card.mig_capable = bool(model.profiles)
    card.power_limit = model.watts * 1000


def _uuid(text: str) -> uuid.UUID:
    return uuid.uuid5(_UUIDS, text)


def environment(path: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Adds to `base` what lets a program load the stand-in's CUDA and NVML libraries."""
    folder = str(libraries.standin_folder())
    before = base.get("LD_LIBRARY_PATH", "")
    folders = [folder, *(f for f in before.split(":") if f and f != folder)]
    return {**base, VARIABLE: str(path), "LD_LIBRARY_PATH": ":".join(folders)}


def context_bytes(path: Path) -> int:
    """Reads the size of one CUDA context on these GPUs."""
    with path.open("rb") as file:
        file.seek(layout.State.card.offset + layout.Card.context_bytes.offset)
        return int.from_bytes(file.read(8), "little")


class StandIn:
    """Reads the shared file while programs use it, and makes its GPUs fail as real ones do."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise CotenantError(f"{path} is no stand-in driver's file: {error.strerror}") from error
        weakref.finalize(self, os.close, self._file)
        if os.fstat(self._file).st_size != _SIZE:
            raise CotenantError(f"{path} is no stand-in driver's file of this version")
        self._state = layout.State.from_buffer(mmap.mmap(self._file, _SIZE))
        if self._state.magic != layout.MAGIC or self._state.abi != layout.ABI:
            raise CotenantError(f"{path} is no stand-in driver's file of this version")

    def cards(self) -> tuple[StandInCard, ...]:
        return tuple(self._card(i) for i in range(self._state.cards))

    def used(self, uuid: str) -> int:
        """Bytes that live processes hold on this GPU."""
        return self._card(self._index(uuid)).used

    def is_locked(self, uuid: str) -> bool:
        """Whether a process is inside the stand-in's own lock of this GPU at this moment.

        A process that is stopped there blocks the others, which no real driver does.
        """
        return any(self._state.card[self._index(uuid)].lock[:4])

    def processes(self) -> tuple[StandInProcess, ...]:
        """Lists live processes that hold memory on a GPU."""
        found: dict[int, tuple[dict[str, int], dict[str, int]]] = {}
        for index in range(self._state.cards):
            uuid = self._uuid(index)
            for entry, used, context in self._holders(index):
                by_card = found.setdefault(entry, ({}, {}))
                by_card[0][uuid], by_card[1][uuid] = used, context
        return tuple(
            StandInProcess(
                self._pid(entry), self._state.process[entry].name.decode(errors="replace"), used, context
            )
            for entry, (used, context) in sorted(found.items())
        )

    def limits(self) -> tuple[MemoryLimit, ...]:
        """Lists the limits by cgroup, also of a cgroup that is gone, until NVML notices it."""
        groups = (self._state.group[i] for i in range(layout.GROUPS) if self._state.limited)
        return tuple(
            MemoryLimit(group.path.decode(), self._uuid(i), group.limit[i].soft, group.limit[i].hard)
            for group in groups
            if group.inode
            for i in range(self._state.cards)
            if group.limit[i].soft or group.limit[i].hard != layout.NO_LIMIT
        )

    def fail(self, uuid: str) -> None:
        """Lets the GPU fall off the bus, with its MIG instances; the driver reports it (XID 79)."""
        self.post_xid(uuid, _LOST_XID)
        self._set_lost(uuid, 1)

    def recover(self, uuid: str) -> None:
        self._set_lost(uuid, 0)

    def add_ecc_errors(self, uuid: str, corrected: int = 0, uncorrected: int = 0) -> None:
        card = self._state.card[self._index(uuid)]
        with self._controlling():
            card.ecc_corrected += corrected
            card.ecc_uncorrected += uncorrected

    def post_xid(self, uuid: str, code: int) -> None:
        """Posts an XID event to those who listen through NVML."""
        card = self._state.card[self._index(uuid)]
        with self._controlling():
            slot = card.xid[card.xid_count % layout.XIDS]
            slot.code, slot.time = code, time.monotonic_ns()
            card.xid_count += 1

    def set_launch_seconds(self, seconds: float) -> None:
        for index in range(self._state.cards):
            self._state.card[index].launch_ns = round(seconds * 1e9)

    def _set_lost(self, uuid: str, lost: int) -> None:
        index = self._index(uuid)
        for other in range(self._state.cards):
            if other == index or self._state.card[other].parent == index + 1:
                self._state.card[other].lost = lost

    def _index(self, uuid: str) -> int:
        for index in range(self._state.cards):
            if self._uuid(index) == uuid:
                return index
        raise BadInput(f"no simulated GPU {uuid!r}: there are {', '.join(c.uuid for c in self.cards())}")

    def _uuid(self, index: int) -> str:
        return str(self._state.card[index].uuid.decode())

    def _card(self, index: int) -> StandInCard:
        card = self._state.card[index]
        launches = sum(self._state.process[i].use[index].launches for i in range(self._state.high))
        return StandInCard(
            uuid=self._uuid(index),
            name=card.name.decode(),
            capacity=card.total - card.reserved,
            parent=self._uuid(card.parent - 1) if card.parent else None,
            lost=bool(card.lost),
            used=sum(used for _, used, _ in self._holders(index)),
            peak=card.peak,
            launches=launches,
        )

    def _holders(self, index: int) -> list[tuple[int, int, int]]:
        """Returns (entry, bytes, bytes of contexts) of live processes, all at one moment."""
        card = self._state.card[index]
        for _ in range(10_000):
            version = card.version
            uses = [(i, self._state.process[i].use[index]) for i in range(self._state.high)]
            found = [(i, int(use.used), int(use.context)) for i, use in uses if use.used]
            if card.version == version and version % 2 == 0:
                break
            time.sleep(0)
        living = {entry: (used, context) for entry, used, context in found if self._alive(entry)}
        for heir, size in self._inherited(index):
            used, context = living.get(heir, (0, 0))
            living[heir] = (used + size, context)
        return [(entry, used, context) for entry, (used, context) in living.items()]

    def _inherited(self, index: int) -> Iterator[tuple[int, int]]:
        """Yields (entry, bytes) of exported memory whose owner is gone: a process that imported it has it."""
        for place in range(layout.SHARED):
            shared = self._state.shared[place]
            if not shared.id or shared.card != index or not shared.owner or self._alive(shared.owner - 1):
                continue
            holders = (i for i in range(layout.PROCESSES) if shared.holders[i // 64] >> i % 64 & 1)
            heir = next((i for i in holders if i != shared.owner - 1 and self._alive(i)), None)
            if heir is not None:
                yield heir, shared.bytes

    def _alive(self, entry: int) -> bool:
        probe = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, layout.LOCK_PROCESS + entry, 1, 0)
        answer = fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, probe)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)

    def _pid(self, entry: int) -> int | None:
        process = self._state.process[entry]
        pid = int(process.pid)
        if process.namespace == os.stat("/proc/self/ns/pid").st_ino:
            return pid
        for status in Path("/proc").glob("[0-9]*/status"):
            with contextlib.suppress(OSError, IndexError, ValueError):
                line = next(line for line in status.read_text().splitlines() if line.startswith("NSpid:"))
                same = int(line.split()[-1]) == pid and _started(status.parent) == process.started
                if same and _may_be_in(status.parent, process.namespace):
                    return int(status.parent.name)
        return None

    @contextlib.contextmanager
    def _controlling(self) -> Iterator[None]:
        """Locks out other controllers."""
        lock = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, layout.LOCK_CONTROL, 1, 0)
        fcntl.fcntl(self._file, fcntl.F_OFD_SETLKW, lock)
        try:
            yield
        finally:
            none = struct.pack(_FLOCK, fcntl.F_UNLCK, os.SEEK_SET, layout.LOCK_CONTROL, 1, 0)
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, none)


def _started(process: Path) -> int:
    """Returns when a process started, in clock ticks since boot: it distinguishes a pid from its next use."""
    return int((process / "stat").read_text().rsplit(")", 1)[1].split()[19])


def _may_be_in(process: Path, namespace: int) -> bool:
    """Whether a process may be in this pid namespace; True where we have no permission to see it.

    Every container has a process 1, and several may start in the same clock tick.
    """
    try:
        return os.stat(process / "ns" / "pid").st_ino == namespace
    except OSError:
        return True

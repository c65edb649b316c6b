"""Slots as the machine's side sees them: it writes `limits` and reads `usage`.

The layout is that of csrc/include/cotenant_slot.h; a test compares the two. A slot is alive while anybody
holds a lock on its `usage` file: the command by a descriptor that it inherits, and each process that uses a
card by an entry of its own. Both are kernel locks, so they end with their holder and with nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cotenant.core.errors import BadInput, CotenantError
from cotenant.core.mode import MODES, Mode

ABI = 1
CARDS = 16
PROCESSES = 1024
GRANULE = 2 << 20
"""The step in which CUDA drivers hand out device memory."""

_HEADER = struct.Struct("<8sII64sQQ")
_CARD = struct.Struct("<80sQQ32x")
_LIMITS_HEAD = 256
_LIMITS_SIZE = _LIMITS_HEAD + _CARD.size * CARDS
_LIMIT_BYTES = 80
_USAGE_HEAD = 4096
_PROCESS = struct.Struct(f"<6Q80x{CARDS}Q{CARDS}Q128x")
_LAST_LAUNCH, _UNNOTED = 8, 40
_USAGE_SIZE = _USAGE_HEAD + _PROCESS.size * PROCESSES
_CLOSED = 80
TOTALS = ("closed", "high", "denied", "over", "last_launch", "last_alloc")
_TOTALS = struct.Struct(f"<{len(TOTALS)}Q")
_PEAK_AT = 256
_PEAK = struct.Struct(f"<{CARDS}Q")

_LOCK_PROCESS = 1 << 40
_LOCK_OWNER = 1 << 41
_FLOCK = "hhqqi"
_OUT_OF_THE_WAY = 200


class Modes(NamedTuple):
    """Who may do what with the files of a slot, as the file system tells."""

    folder: int
    usage: int
    limits: int


PRIVATE = Modes(0o700, 0o600, 0o600)
SHARED = Modes(0o777, 0o666, 0o666)
"""For all users of a machine: everybody must be able to reap, and so to lock and delete, what others left."""
MOUNTED = Modes(0o755, 0o666, 0o644)
"""For a container: whatever user its processes are, they count in `usage` and only read `limits`."""


class SlotUnusable(CotenantError):
    """The slot's files are missing, damaged or of another version."""


class CardLimit(NamedTuple):
    uuid: str
    bytes: int
    context_bytes: int


class Limits(NamedTuple):
    """What the processes of a grant may hold together, card by card."""

    owner: str
    mode: Mode
    cards: tuple[CardLimit, ...]
    granule: int = GRANULE


class ProcessUsage(NamedTuple):
    """One living process. `pid` is what the process calls itself: in a container it is another here."""

    pid: int
    used: tuple[int, ...]


class Usage(NamedTuple):
    """Bytes per card in the order of `limits`, times in CLOCK_MONOTONIC nanoseconds."""

    processes: tuple[ProcessUsage, ...]
    peak: tuple[int, ...]
    denied: int
    over: int
    last_active: int

    def used(self, card: int) -> int:
        return sum(process.used[card] for process in self.processes)


def encode(limits: Limits) -> bytes:
    if len(limits.cards) > CARDS:
        raise BadInput(f"{len(limits.cards)} GPUs asked for one grant, a slot has room for {CARDS}")
    head = _HEADER.pack(
        b"COTLIMIT", ABI, len(limits.cards), limits.owner.encode(), MODES.index(limits.mode), limits.granule
    )
    cards = b"".join(_CARD.pack(card.uuid.encode(), card.bytes, card.context_bytes) for card in limits.cards)
    return (head.ljust(_LIMITS_HEAD, b"\0") + cards).ljust(_LIMITS_SIZE, b"\0")


def decode(data: bytes) -> Limits:
    if len(data) < _LIMITS_SIZE:
        raise SlotUnusable(f"limits has {len(data)} bytes, {_LIMITS_SIZE} are expected")
    magic, abi, count, owner, mode, granule = _HEADER.unpack_from(data)
    if magic != b"COTLIMIT" or abi != ABI or count > CARDS or mode >= len(MODES):
        raise SlotUnusable(f"limits is not of version {ABI}")
    cards = []
    for index in range(count):
        uuid, size, context = _CARD.unpack_from(data, _LIMITS_HEAD + index * _CARD.size)
        cards.append(CardLimit(_text(uuid), size, context))
    return Limits(_text(owner), MODES[mode], tuple(cards), granule)


def create(folder: Path, limits: Limits, *, modes: Modes = PRIVATE) -> None:
    """Make the slot. `limits` comes last: a slot without it does not exist for the shim."""
    data = encode(limits)
    folder.mkdir(parents=True)
    folder.chmod(modes.folder)
    head = struct.pack("<8sII64s", b"COTUSAGE", ABI, PROCESSES, limits.owner.encode())
    _write(folder / "usage", head, _USAGE_SIZE, modes.usage)
    _write(folder / "limits", data, len(data), modes.limits)


def read_limits(folder: Path) -> Limits:
    try:
        return decode((folder / "limits").read_bytes())
    except OSError as error:
        raise SlotUnusable(f"{folder / 'limits'} cannot be read: {error.strerror}") from None


def read_usage(folder: Path) -> Usage:
    """The living processes and what they hold; an entry whose lock is free belongs to a dead one and is
    left out.
    """
    path = folder / "usage"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise SlotUnusable(f"{path} cannot be read: {error.strerror}") from None
    try:
        head = os.pread(fd, _USAGE_HEAD, 0)
        if len(head) < _USAGE_HEAD or head[:8] != b"COTUSAGE" or struct.unpack_from("<I", head, 8)[0] != ABI:
            raise SlotUnusable(f"{path} is not of version {ABI}")
        _closed, high, denied, over, launch, alloc = _TOTALS.unpack_from(head, _CLOSED)
        entries = os.pread(fd, _PROCESS.size * min(high, PROCESSES), _USAGE_HEAD)
        processes = []
        active = max(launch, alloc)
        for index, (pid, launch, alloc, _denied, _over, unnoted, *held) in enumerate(
            _PROCESS.iter_unpack(entries)
        ):
            active = max(active, launch, alloc)
            if pid and _locked(fd, _LOCK_PROCESS + index, 1):
                processes.append(ProcessUsage(pid, tuple(held[:CARDS])))
                if unnoted:
                    active = max(active, _note_launches(path, index))
        return Usage(tuple(processes), _PEAK.unpack_from(head, _PEAK_AT), denied, over, active)
    finally:
        os.close(fd)


def _note_launches(path: Path, index: int) -> int:
    """In a burst of launches most leave their time open; whoever looks says that it is now."""
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    with contextlib.suppress(OSError):  # one who may only read sees it again at the next look
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            at = _USAGE_HEAD + index * _PROCESS.size
            os.pwrite(fd, struct.pack("<Q", 0), at + _UNNOTED)
            os.pwrite(fd, struct.pack("<Q", now), at + _LAST_LAUNCH)
        finally:
            os.close(fd)
    return now


def hold(folder: Path) -> int:
    """An inheritable descriptor that keeps the slot alive for as long as any process has it open."""
    fd = os.open(folder / "usage", os.O_RDWR | os.O_CLOEXEC)
    try:
        _lock(fd, fcntl.F_RDLCK, _LOCK_OWNER, 1)
        with contextlib.suppress(OSError):  # out of the way of scripts, which like the low numbers
            return fcntl.fcntl(fd, fcntl.F_DUPFD, _OUT_OF_THE_WAY)
        return fcntl.fcntl(fd, fcntl.F_DUPFD, 0)
    finally:
        os.close(fd)


def close(folder: Path) -> bool:
    """End the slot if nobody lives in it; False when somebody does. A slot that was never made has nobody."""
    try:
        fd = os.open(folder / "usage", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        try:
            _lock(fd, fcntl.F_WRLCK, 0, 0)
        except BlockingIOError:
            return False
        os.pwrite(fd, struct.pack("<Q", 1), _CLOSED)
        return True
    finally:
        os.close(fd)


def is_held(folder: Path) -> bool:
    """Whether anybody lives in the slot; looks, and closes nothing."""
    try:
        fd = os.open(folder / "usage", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        return _locked(fd, 0, 0)
    finally:
        os.close(fd)


def set_limits(folder: Path, sizes: Mapping[str, int]) -> None:
    """Change the bytes of cards in place, each by one 8-byte store: processes have the file mapped."""
    limits = read_limits(folder)
    with open(folder / "limits", "r+b") as file, mmap.mmap(file.fileno(), _LIMITS_SIZE) as mapped:
        words = memoryview(mapped).cast("Q")
        try:
            for index, card in enumerate(limits.cards):
                if card.uuid in sizes:
                    words[(_LIMITS_HEAD + index * _CARD.size + _LIMIT_BYTES) // 8] = sizes[card.uuid]
        finally:
            words.release()


def _lock(fd: int, kind: int, start: int, length: int) -> None:
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0))


def _locked(fd: int, start: int, length: int) -> bool:
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    kind: int = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))[0]
    return kind != fcntl.F_UNLCK


def _write(path: Path, head: bytes, size: int, mode: int) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        os.fchmod(fd, mode)  # whatever the umask says
        os.posix_fallocate(fd, 0, size)  # a full tmpfs is told here, not by SIGBUS in somebody's program
        os.pwrite(fd, head, 0)
    finally:
        os.close(fd)


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode(errors="replace")

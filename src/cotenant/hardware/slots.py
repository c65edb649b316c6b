"""Creates, reads, changes and closes a slot: the files `limits` and `usage` that a grant's processes share.

This is the machine's side: it writes `limits` and reads `usage`. The layout is that of
csrc/include/cotenant_slot.h; a test compares the two. A slot is in use while any process holds a lock on its
`usage` file: the command through a descriptor that it inherits, and each process that uses a GPU through the
lock of its own entry. Both are kernel locks: they end with their holder, also after kill -9, and with nothing
else.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from cotenant.core.errors import BadInput, CotenantError
from cotenant.core.grant import Share
from cotenant.core.mode import MODES, Mode

ABI = 1
CARDS = 16
PROCESSES = 1024
GRANULE = 2 << 20
"""Bytes: CUDA drivers allocate device memory in multiples of this."""

_HEADER = struct.Struct("<8sII64sQQ")
_CARD = struct.Struct("<80sQQ32x")
_LIMITS_HEAD = 256
_LIMITS_SIZE = _LIMITS_HEAD + _CARD.size * CARDS
_LIMIT_BYTES = 80
_MADE = 96
_USAGE_HEAD = 4096
IMPORTS = 8
_PROCESS = struct.Struct(f"<6Q80x{CARDS}Q{CARDS}Q{2 * IMPORTS}Q")
_HELD = 6
"""The field of an entry with which its bytes by card begin."""
_TIMES = struct.Struct(f"<8xQQ16xQ{_PROCESS.size - 48}x")
_IMPORT_CHARGED = 1 << 31
_LAST_LAUNCH, _UNNOTED = 8, 40
_USAGE_SIZE = _USAGE_HEAD + _PROCESS.size * PROCESSES
_USAGE_START = _USAGE_HEAD + _PROCESS.size * 8
_ABI_WORD = struct.pack("<I", ABI)
_CLOSED = 80
TOTALS = ("closed", "high", "denied", "over", "last_launch", "last_alloc")
_TOTALS = struct.Struct(f"<{len(TOTALS)}Q")
_PEAK_AT = 256
_PEAK = struct.Struct(f"<{CARDS}Q")

MOST_BYTES = 1 << 50
"""Of one process on one GPU. A container writes `usage` itself: what it claims beyond this does not count, so
that sums stay within 64 bits.
"""
_BLOCK = 512
"""Bytes in the unit of st_blocks."""

_LOCK_PROCESS = 1 << 40
_LOCK_OWNER = 1 << 41
_FLOCK = "hhqqi"
_OUT_OF_THE_WAY = 200


class Permissions(NamedTuple):
    """File permissions of a slot."""

    folder: int
    usage: int
    limits: int


PRIVATE = Permissions(0o700, 0o600, 0o600)
SHARED = Permissions(0o777, 0o666, 0o666)
"""For all users of a machine: each of them must be able to lock and delete what another left behind."""
MOUNTED = Permissions(0o755, 0o666, 0o644)
"""For a container: its processes, of any user, write `usage` and only read `limits`."""


class SlotUnusable(CotenantError):
    """The slot's files are missing, damaged or of another version."""


class CardLimit(NamedTuple):
    uuid: str
    bytes: int
    context_bytes: int


class Limits(NamedTuple):
    """Bytes that the processes of a grant may hold together on each GPU, and what happens beyond them."""

    owner: str
    mode: Mode
    cards: tuple[CardLimit, ...]
    granule: int = GRANULE


class Activity(NamedTuple):
    """Times in CLOCK_MONOTONIC nanoseconds, 0 if there was none. As in `Usage`, none is in the future."""

    last: int
    """Of the last kernel launch, allocation or release of memory."""
    last_launch: int


class ProcessUsage(NamedTuple):
    """One live process. `pid` is its own view: in a container it differs from the host's."""

    pid: int
    used: tuple[int, ...]


class Usage(NamedTuple):
    """Bytes per card in the order of `limits`, times in CLOCK_MONOTONIC nanoseconds, 0 if there was none.
    Processes write them: a time in the future is read as the present.
    """

    processes: tuple[ProcessUsage, ...]
    peak: tuple[int, ...]
    denied: int
    over: int
    last_active: int

    def used(self, card: int) -> int:
        return sum([process.used[card] for process in self.processes])


def limits_of(owner: str, mode: Mode, shares: Iterable[Share], context_bytes: Callable[[str], int]) -> Limits:
    """Builds the limits of a grant. `context_bytes` gives the size of one CUDA context on the GPU of a
    UUID.
    """
    cards = (CardLimit(share.uuid, share.memory, context_bytes(share.uuid)) for share in shares)
    return Limits(owner, mode, tuple(cards))


def shares_of(limits: Limits) -> tuple[Share, ...]:
    """Reconstructs a grant's shares where its record is lost. Compute and whole GPUs are not in `limits`."""
    return tuple(Share(card.uuid, card.bytes) for card in limits.cards if card.bytes)


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


def create(folder: Path, limits: Limits, permissions: Permissions = PRIVATE) -> None:
    """Creates the slot's files. `limits` comes last: without it the shim refuses all memory."""
    data = bytearray(encode(limits))
    struct.pack_into("<Q", data, _MADE, _now())
    folder.mkdir(parents=True)
    folder.chmod(permissions.folder)
    head = struct.pack("<8sII64s", b"COTUSAGE", ABI, PROCESSES, limits.owner.encode())
    _write(folder / "usage", head, _USAGE_SIZE, permissions.usage)
    _write(folder / "limits", data, len(data), permissions.limits)


def read_limits(folder: Path) -> Limits:
    try:
        with open(f"{folder}/limits", "rb", buffering=0) as file:
            return decode(file.read())
    except OSError as error:
        raise SlotUnusable(f"{folder / 'limits'} cannot be read: {error.strerror}") from None


def made_at(folder: Path) -> int:
    """Reads when the slot was created, in CLOCK_MONOTONIC nanoseconds; 0 if an older version created it."""
    try:
        with open(folder / "limits", "rb") as file:
            word = os.pread(file.fileno(), 8, _MADE)
    except OSError as error:
        raise SlotUnusable(f"{folder / 'limits'} cannot be read: {error.strerror}") from None
    return min(int.from_bytes(word, "little"), _now())


def read_activity(folder: Path, opened: int | None = None) -> Activity:
    """Reads when the slot's processes last used a GPU. It is read often, so it looks at no lock: whoever
    writes `usage` may hold so many that each look would take seconds. `opened`: a descriptor of its `usage`.
    """
    fd = open_usage(folder) if opened is None else opened
    try:
        start = _start_of(fd, folder)
        _closed, high, _denied, _over, launch, alloc = _TOTALS.unpack_from(start, _CLOSED)
        for index, (launched, allocated, unnoted) in enumerate(_TIMES.iter_unpack(_entries(fd, start, high))):
            launch, alloc = max(launch, launched), max(alloc, allocated)
            if unnoted:
                launch = max(launch, _note_launches(folder, index))
    finally:
        if opened is None:
            os.close(fd)
    now = _now()
    return Activity(min(max(launch, alloc), now), min(launch, now))


def read_usage(folder: Path) -> Usage:
    """Reads the live processes and what they hold. An entry without a lock belongs to a process that has
    ended; it is left out.
    """
    fd = open_usage(folder)
    try:
        start = _start_of(fd, folder)
        _closed, high, denied, over, launch, alloc = _TOTALS.unpack_from(start, _CLOSED)
        entries = _entries(fd, start, high)
        processes: dict[int, ProcessUsage] = {}
        imports: dict[int, tuple[int, ...]] = {}
        for index, entry in enumerate(_PROCESS.iter_unpack(entries)):
            pid, launched, allocated, _denied, _over, unnoted = entry[:_HELD]
            launch, alloc = max(launch, launched), max(alloc, allocated)
            if pid and _locked(fd, _LOCK_PROCESS + index, 1):
                processes[index] = ProcessUsage(pid, _bounded(entry[_HELD : _HELD + CARDS]))
                if any(words := entry[_HELD + 2 * CARDS :]):
                    imports[index] = words
                if unnoted:
                    launch = max(launch, _note_launches(folder, index))
        _add_inherited(processes, imports)
        return Usage(
            tuple(processes.values()),
            _bounded(_PEAK.unpack_from(start, _PEAK_AT)),
            denied,
            over,
            min(max(launch, alloc), _now()),
        )
    finally:
        os.close(fd)


def open_usage(folder: Path) -> int:
    """Returns a descriptor of `usage`, for reading."""
    path = f"{folder}/usage"
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise SlotUnusable(f"{path} cannot be read: {error.strerror}") from None


def _start_of(fd: int, folder: Path) -> bytes:
    """Reads the head of `usage` and some entries, in one call: most slots have few processes, and a node
    reads hundreds of slots every two seconds.
    """
    start = os.pread(fd, _USAGE_START, 0)
    if len(start) < _USAGE_HEAD or start[:8] != b"COTUSAGE" or start[8:12] != _ABI_WORD:
        raise SlotUnusable(f"{folder}/usage is not of version {ABI}")
    return start


def _entries(fd: int, start: bytes, high: int) -> bytes:
    """Returns the entries that have been in use, whole ones only: a writer may have shortened the file."""
    size = _PROCESS.size * min(high, PROCESSES)
    entries = start[_USAGE_HEAD : _USAGE_HEAD + size]
    if size > _USAGE_START - _USAGE_HEAD:
        entries = os.pread(fd, size, _USAGE_HEAD)
    return entries[: len(entries) // _PROCESS.size * _PROCESS.size]


def _add_inherited(processes: dict[int, ProcessUsage], imports: Mapping[int, tuple[int, ...]]) -> None:
    """Adds imported memory whose maker has ended to one process that has it.

    The next process of the slot that looks does the same for good (csrc/shim/imports.c). Processes write
    these words themselves: whatever they say, nothing here fails.
    """
    seen: set[int] = set()
    for index, words in imports.items():
        for maker, size in zip(words[::2], words[1::2], strict=True):
            found = processes.get((maker & 0xFFFF) - 1)
            card = maker >> 16 & 0xFF
            if not maker or maker & _IMPORT_CHARGED or maker in seen or card >= CARDS:
                continue
            if found is None or found.pid != maker >> 32:
                seen.add(maker)
                used = list(processes[index].used)
                used[card] += size
                processes[index] = processes[index]._replace(used=_bounded(tuple(used)))


def _note_launches(folder: Path, index: int) -> int:
    """In a burst of kernel launches the shim does not note each time; the reader notes the present for
    them.
    """
    now = _now()
    with contextlib.suppress(OSError):  # a reader without write permission finds the same at its next read
        fd = os.open(folder / "usage", os.O_WRONLY | os.O_CLOEXEC)
        try:
            at = _USAGE_HEAD + index * _PROCESS.size
            os.pwrite(fd, struct.pack("<Q", 0), at + _UNNOTED)
            os.pwrite(fd, struct.pack("<Q", now), at + _LAST_LAUNCH)
        finally:
            os.close(fd)
    return now


def note_kernel(folder: Path, at: int) -> None:
    """Records that a kernel ran at this time, in CLOCK_MONOTONIC nanoseconds, as if it had been launched
    then: the shim sees when a kernel is launched, and only the driver how long it runs.
    """
    where = _CLOSED + 8 * TOTALS.index("last_launch")
    with contextlib.suppress(OSError):  # removed meanwhile
        fd = os.open(folder / "usage", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            before = os.pread(fd, 8, where)
            if len(before) == 8 and not at <= int.from_bytes(before, "little") <= _now():
                os.pwrite(fd, struct.pack("<Q", at), where)
        finally:
            os.close(fd)


def hold(folder: Path) -> int:
    """Returns an inheritable descriptor that keeps the slot in use while any process has it open."""
    fd = os.open(folder / "usage", os.O_RDWR | os.O_CLOEXEC)
    try:
        _lock(fd, fcntl.F_RDLCK, _LOCK_OWNER, 1)
        with contextlib.suppress(OSError):  # scripts use the low numbers
            return fcntl.fcntl(fd, fcntl.F_DUPFD, _OUT_OF_THE_WAY)
        return fcntl.fcntl(fd, fcntl.F_DUPFD, 0)
    finally:
        os.close(fd)


def close(folder: Path, *, force: bool = False) -> bool:
    """Closes the slot, so that no process can begin to use it; False, and nothing is changed, while one does.
    A slot that was never created counts as closed. `force` closes it whoever has a lock on it: for a caller
    who knows that no process of its owner lives.
    """
    try:
        fd = os.open(folder / "usage", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        try:
            _lock(fd, fcntl.F_WRLCK, 0, 0)
        except BlockingIOError:
            if not force:
                return False
        try:
            os.pwrite(fd, struct.pack("<Q", 1), _CLOSED)
        except OSError:
            return False  # its writer made a hole in it, and the tmpfs is full
        return True
    finally:
        os.close(fd)


def is_held(folder: Path) -> bool:
    """Whether any process uses the slot; changes nothing. True where that cannot be seen."""
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


def cut(folder: Path) -> int:
    """Cuts `usage` to its own size, and returns the bytes beyond it; 0 if it has none. The processes of a
    slot write that file, so they can make it larger, or take memory beyond its end (FALLOC_FL_KEEP_SIZE).
    """
    path = f"{folder}/usage"
    try:
        if _extent(os.lstat(path)) <= _USAGE_SIZE:
            return 0  # as nearly always
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return 0  # there is no such file
    try:
        before = _extent(os.fstat(fd))
        if before <= _USAGE_SIZE:
            return 0
        os.ftruncate(fd, min(os.fstat(fd).st_size, _USAGE_SIZE))
        return max(0, before - max(_USAGE_SIZE, _extent(os.fstat(fd))))
    finally:
        os.close(fd)


def set_limits(folder: Path, sizes: Mapping[str, int]) -> None:
    """Changes the bytes by GPU UUID in place, each by one 8-byte store: processes have the file mapped."""
    limits = read_limits(folder)
    with open(folder / "limits", "r+b") as file, mmap.mmap(file.fileno(), _LIMITS_SIZE) as mapped:
        words = memoryview(mapped).cast("Q")
        try:
            for index, card in enumerate(limits.cards):
                if card.uuid in sizes:
                    words[(_LIMITS_HEAD + index * _CARD.size + _LIMIT_BYTES) // 8] = sizes[card.uuid]
        finally:
            words.release()
        os.utime(file.fileno())  # a store through a mapping of tmpfs leaves the file's time as it was


def names(root: Path) -> list[str]:
    """Lists the slots in a folder of slots; empty if the folder does not exist."""
    try:
        return os.listdir(root)
    except FileNotFoundError:
        return []


def write_record(path: Path, content: bytes, permissions: int) -> None:
    """Writes the record of a slot's owner by rename: a reader sees the old one or the new one, whole."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.chmod(permissions)
    draft.replace(path)


def _lock(fd: int, kind: int, start: int, length: int) -> None:
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0))


def _locked(fd: int, start: int, length: int) -> bool:
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    kind: int = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))[0]
    return kind != fcntl.F_UNLCK


def _write(path: Path, head: bytes | bytearray, size: int, permissions: int) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, permissions)
    try:
        os.fchmod(fd, permissions)  # independent of the umask
        os.posix_fallocate(fd, 0, size)  # a full tmpfs fails here, not as SIGBUS in a program
        os.pwrite(fd, head, 0)
    finally:
        os.close(fd)


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def _bounded(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if max(sizes) <= MOST_BYTES:
        return sizes
    return tuple(min(size, MOST_BYTES) for size in sizes)


def _extent(found: os.stat_result) -> int:
    """Bytes of a file: its length, or what it takes of its filesystem if that is more."""
    return max(found.st_size, found.st_blocks * _BLOCK)


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode(errors="replace")

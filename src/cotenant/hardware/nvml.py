"""Reads the GPUs of this machine through NVML: memory, processes, utilisation, health, XID events.

A GPU that does not answer is reported as lost and never hides the others. Each MIG instance counts as a GPU;
a card that is cut into instances does not. A card has the index that the driver, nvidia-smi and NVIDIA's
container runtime know it by. MIG instances have none there: they are numbered from the count of cards on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pynvml

from cotenant.core.errors import CotenantError
from cotenant.core.gpu import GPU
from cotenant.hardware.host_memory import HostMemory, read_host_memory

T = TypeVar("T")

FAULTS_OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 109})
"""XIDs that a faulty program causes. The GPU is healthy; NVIDIA's device plugin ignores the same ones."""

_PROCESS = struct.Struct("@IQII")
"""nvmlProcessInfo_t: pid, bytes, and two numbers of MIG instances."""
_NOT_REPORTED = 2**64 - 1
"""Bytes of a process where the driver does not report them."""
_FEW = 128
"""Processes for which there is room at first."""

HOST_KEEPS = 8
"""Of memory that a GPU shares with its host, the host may use one part in this many uncounted: a GPU that
nobody uses can then be granted whole. What the host uses beyond that is outside grants.
"""


class NoDriver(CotenantError):
    """NVML cannot be used here."""


class CardProcess(NamedTuple):
    pid: int
    bytes: int | None
    """None where the driver does not report it (some virtual machines)."""


class CardReading(NamedTuple):
    """One GPU at one moment."""

    gpu: GPU
    used: int
    """Bytes in use by all processes, without the driver's own reserve."""
    processes: tuple[CardProcess, ...] = ()
    utilization: int | None = None
    """Percent of the last sampling period in which a kernel ran."""
    problem: str | None = None
    """What is wrong with a GPU that is not healthy."""


class Readings(NamedTuple):
    cards: tuple[CardReading, ...]
    lost: tuple[int, ...] = ()
    """Indexes of cards that do not even report their UUID any more."""


class Fault(NamedTuple):
    """An XID event that means the GPU is not healthy."""

    uuid: str
    xid: int


class Nvml:
    """Loads NVML at the first read, not earlier: to load the driver may take long."""

    def __init__(self, library: Path | None = None, environ: dict[str, str] | None = None) -> None:
        """`library` replaces the system's own, and `environ` is what it needs to find its GPUs."""
        self._library = library
        self._environ = environ or {}
        self._ready = False
        self._handles: dict[str, Any] = {}
        """By UUID. They are valid until NVML is shut down."""

    def read(self) -> Readings:
        self.start()
        try:
            return self._read()
        except pynvml.NVMLError as error:
            self.close()  # the driver may have been replaced: the next read loads it again
            raise NoDriver(f"the GPUs cannot be read: NVML says {str(error)!r}") from None

    def _read(self) -> Readings:
        cards: list[CardReading] = []
        lost: list[int] = []
        count = next_instance = pynvml.nvmlDeviceGetCount()
        for index in range(count):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                uuid = _text(pynvml.nvmlDeviceGetUUID(handle))
            except pynvml.NVMLError:
                lost.append(index)
                continue
            try:
                for instance, instance_uuid, parent in _instances(handle, uuid):
                    number = index if parent is None else next_instance
                    cards.append(_read(instance, instance_uuid, parent, number))
                    next_instance += parent is not None
            except pynvml.NVMLError as error:
                gpu = GPU(uuid, index, "unknown model", 0, healthy=False)
                cards.append(CardReading(gpu, 0, problem=f"does not answer: {error}"))
        return Readings(tuple(cards), tuple(lost))

    def memory_in_use(self, uuids: Iterable[str]) -> dict[str, int]:
        """Reads only how much of these GPUs is in use, by UUID: one cheap call for each. Without GPUs that do
        not answer, and those that share the host's memory.
        """
        self.start()
        found: dict[str, int] = {}
        answers, trouble = 0, ""
        for uuid in uuids:
            try:
                if uuid not in self._handles:
                    self._handles[uuid] = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
                _, used, shared = _memory(self._handles[uuid], ())
            except pynvml.NVMLError as error:  # the GPU is lost, or the instance is gone
                self._handles.pop(uuid, None)
                trouble = str(error)
                continue
            answers += 1
            if not shared:
                found[uuid] = used
        if trouble and not answers:
            self.close()  # the driver may have been replaced: the next call loads it again
            raise NoDriver(f"the GPUs cannot be read: NVML says {trouble!r}")
        return found

    def faults(self, timeout: float) -> Iterator[Fault]:
        """Yields XID events of all GPUs from now on. Ends after `timeout` seconds without an event; raises
        NoDriver if the driver is gone.
        """
        self.start()
        uuids: dict[int | None, str] = {}
        try:
            events = pynvml.nvmlEventSetCreate()
            for index in range(pynvml.nvmlDeviceGetCount()):
                # a GPU that has no events, or one that is lost already
                with contextlib.suppress(pynvml.NVMLError):
                    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                    uuids[_address(handle)] = _text(pynvml.nvmlDeviceGetUUID(handle))
                    pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
        except pynvml.NVMLError as error:
            self.close()
            raise NoDriver(f"XID events cannot be read: NVML says {str(error)!r}") from None
        return self._faults(events, timeout, uuids)

    def _faults(self, events: Any, timeout: float, uuids: Mapping[int | None, str]) -> Iterator[Fault]:
        """`uuids` were read before: a GPU that has failed may not report its UUID any more."""
        try:
            while True:
                event = pynvml.nvmlEventSetWait_v2(events, int(timeout * 1000))
                uuid = uuids.get(_address(event.device))
                if event.eventData not in FAULTS_OF_PROGRAMS and uuid is not None:
                    yield Fault(uuid, event.eventData)
        except pynvml.NVMLError_Timeout:
            return
        except pynvml.NVMLError as error:
            self.close()
            raise NoDriver(f"XID events cannot be read: NVML says {str(error)!r}") from None
        finally:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(events)

    def close(self) -> None:
        if self._ready:
            self._ready = False
            self._handles.clear()
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def start(self) -> None:
        """Loads NVML if it is not loaded yet; NoDriver if it cannot be."""
        if self._ready:
            return
        os.environ.update(self._environ)
        try:
            if self._library is not None:
                # pynvml loads it by name, and gets the one that is loaded already
                ctypes.CDLL(str(self._library), mode=ctypes.RTLD_GLOBAL)
            pynvml.nvmlInit()
        except (OSError, pynvml.NVMLError) as error:
            raise NoDriver(
                f"no GPU can be found here: NVML says {str(error)!r}. Is the NVIDIA driver loaded? "
                "To try Cotenant without a GPU, add --simulate 2x16GiB"
            ) from None
        self._ready = True


def _address(handle: Any) -> int | None:
    """Returns the address of a handle, by which handles are compared."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def with_known(
    readings: Readings, known: Mapping[str, GPU], in_use: AbstractSet[str]
) -> tuple[CardReading, ...]:
    """Completes GPUs that do not answer from what was known, and adds those that are lost, or gone while
    grants are on them.
    """
    seen = {reading.gpu.uuid for reading in readings.cards}
    answering_cards = {reading.gpu.parent or reading.gpu.uuid for reading in readings.cards}
    answering = [_as_known(reading, known.get(reading.gpu.uuid)) for reading in readings.cards]
    missing = [
        CardReading(replace(gpu, healthy=False), 0, problem="does not answer: it may have fallen off the bus")
        for gpu in known.values()
        if gpu.uuid not in seen and (gpu.uuid in in_use or _is_lost(gpu, readings.lost, answering_cards))
    ]
    return tuple(sorted((*answering, *missing), key=lambda reading: reading.gpu.index))


def _is_lost(gpu: GPU, lost: Collection[int], answering_cards: AbstractSet[str]) -> bool:
    """A lost card is known by its index only. An instance may be on it if no other card has that instance."""
    if gpu.parent is None:
        return gpu.index in lost
    return bool(lost) and gpu.parent not in answering_cards


def _as_known(reading: CardReading, known: GPU | None) -> CardReading:
    if known is None or reading.gpu.memory:
        return reading
    return reading._replace(
        gpu=replace(
            reading.gpu, model=known.model, memory=known.memory, parent=known.parent, shared=known.shared
        )
    )


def _instances(handle: Any, uuid: str) -> list[tuple[Any, str, str | None]]:
    """Returns the card itself, or its MIG instances with the card's UUID as their parent."""
    mode = _ask(lambda: pynvml.nvmlDeviceGetMigMode(handle))
    if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return [(handle, uuid, None)]
    found: list[tuple[Any, str, str | None]] = []
    for index in range(_ask(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0):
        instance = _ask(lambda index=index: pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))  # type: ignore[misc]
        if instance is not None:
            found.append((instance, _text(pynvml.nvmlDeviceGetUUID(instance)), uuid))
    return found


def _read(handle: Any, uuid: str, parent: str | None, index: int) -> CardReading:
    """Reads processes before the total: memory allocated in between then makes too much look in use, never
    too little.
    """
    model = _text(_ask(lambda: pynvml.nvmlDeviceGetName(handle)) or "unknown model")
    processes = _processes(handle)
    memory, used, shared = _memory(handle, processes)
    problem = _problem(handle)
    rates = _ask(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle))
    return CardReading(
        gpu=GPU(uuid, index, model, memory, healthy=problem is None, parent=parent, shared=shared),
        used=used,
        processes=processes,
        utilization=None if rates is None else int(rates.gpu),
        problem=problem,
    )


def _memory(handle: Any, processes: tuple[CardProcess, ...]) -> tuple[int, int, bool]:
    """Returns capacity, use, and whether both are the host's. Drivers before 510 do not report their reserve:
    it then counts as used. A GPU without memory of its own has no figures at all.
    """
    try:
        info = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        return int(info.total) - int(info.reserved), int(info.used), False
    except (pynvml.NVMLError_FunctionNotFound, pynvml.NVMLError_NotSupported):
        pass
    try:
        info = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return int(info.total), int(info.used), False
    except pynvml.NVMLError_NotSupported:
        host = read_host_memory()
        return host.total, used_of_shared(host, processes), True


def used_of_shared(host: HostMemory, processes: tuple[CardProcess, ...]) -> int:
    """Returns what is in use of memory that the GPU shares with its host: what processes hold on the GPU, and
    what the host uses beside that, as far as it is more than the host's part.
    """
    held = sum(process.bytes or 0 for process in processes)
    beside = max(0, host.total - host.available - held)
    return held + max(0, beside - host.total // HOST_KEEPS)


def _processes(handle: Any) -> tuple[CardProcess, ...]:
    """Lists the processes on a GPU. NVML reports one that computes and renders in both of its lists."""
    found: dict[int, int | None] = {}
    for kind in ("Compute", "Graphics"):
        for pid, size in _ask(lambda kind=kind: _running(kind, handle)) or ():  # type: ignore[misc]
            found[pid] = found.get(pid) if size == _NOT_REPORTED else max(found.get(pid) or 0, size)
    return tuple(CardProcess(pid, size) for pid, size in found.items())


def _running(kind: str, handle: Any) -> list[tuple[int, int]]:
    """Lists pids and bytes by one call. pynvml's own function calls twice, and makes an object of Python with
    all fields of each process: with hundreds of them that is most of the time of a look at the GPUs.
    """
    list_processes = pynvml._nvmlGetFunctionPointer(f"nvmlDeviceGet{kind}RunningProcesses_v3")  # noqa: SLF001 -- there is no public one
    room = _FEW
    while True:
        count, found = ctypes.c_uint(room), (pynvml.c_nvmlProcessInfo_v3_t * room)()
        code = list_processes(handle, ctypes.byref(count), found)
        if code == pynvml.NVML_SUCCESS:
            return [
                (pid, size)
                for pid, size, *_ in _PROCESS.iter_unpack(
                    memoryview(found).cast("B")[: count.value * _PROCESS.size]
                )
            ]
        if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            raise pynvml.NVMLError(code)
        room = 2 * max(count.value, room)


def _problem(handle: Any) -> str | None:
    errors = _ask(
        lambda: pynvml.nvmlDeviceGetTotalEccErrors(
            handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        )
    )
    if errors:
        return f"{errors} uncorrected memory error{'s' if errors > 1 else ''} since it was reset"
    return None


def _ask(question: Callable[[], T]) -> T | None:
    """Returns None where this GPU or driver does not report the figure; raises if the GPU is lost."""
    try:
        return question()
    except pynvml.NVMLError as error:
        if error.value in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_UNKNOWN):
            raise
        return None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value

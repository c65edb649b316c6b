"""Sets and reads the driver's own limits of memory, by GPU and cgroup (drivers from r615 on).

Whether a driver has them is tried, never assumed from its version: `probe()` sets, reads and clears a limit
on a cgroup that has no process.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import pynvml

from cotenant.core.errors import CotenantError
from cotenant.core.units import format_bytes
from cotenant.hardware.nvml import Nvml
from cotenant.hardware.slots import GRANULE

NO_LIMIT = 2**64 - 1
"""As NVML has it."""
_PROBED = 64 << 20
"""Bytes of the limit that is tried, on a cgroup whose processes hold no memory of a GPU."""


class LimitsUnavailable(CotenantError):
    """The driver does not set or tell a limit."""


class CgroupLimit(NamedTuple):
    """The limits of one cgroup on one GPU, in bytes."""

    soft: int
    """What is guaranteed to it."""
    hard: int
    """The most that it can have; NO_LIMIT if there is none."""
    used: int
    """What its processes hold."""

    def is_at(self, size: int | None) -> bool:
        """Whether both are as asked, None being none. A driver may keep multiples of its granule."""
        if size is None:
            return self.soft == 0 and self.hard == NO_LIMIT
        return 0 <= size - self.hard < GRANULE and 0 <= size - self.soft < GRANULE


class DriverLimits:
    """Calls NVML, each time with the handle of that moment: a driver may be replaced."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml

    def get(self, uuid: str, cgroup: Path) -> CgroupLimit:
        """Raises LimitsUnavailable if the driver has none, on MIG instances, and if the cgroup is gone."""
        function, struct = _function("nvmlDeviceGetMemoryLimits_v1"), _function("c_nvmlGetMemoryLimits_v1_t")
        asked = struct(os.fsencode(cgroup))
        self._call(f"read of {cgroup}", uuid, lambda device: function(device, asked))
        return CgroupLimit(int(asked.softLimit), int(asked.hardLimit), int(asked.currentUsed))

    def set(self, uuid: str, cgroup: Path, size: int | None) -> None:
        """Gives the cgroup this much of the GPU and no more; None takes the limit away."""
        function, struct = _function("nvmlDeviceSetMemoryLimits_v1"), _function("c_nvmlSetMemoryLimits_v1_t")
        soft, hard = (0, NO_LIMIT) if size is None else (size, size)
        asked = struct(os.fsencode(cgroup), soft, hard)
        what = "cleared on" if size is None else f"set to {format_bytes(size)} on"
        self._call(f"{what} {cgroup}", uuid, lambda device: function(device, asked))

    def hold(self, uuid: str, cgroup: Path, size: int | None) -> CgroupLimit:
        """Sets the limit if it is not as asked, and reads it back; LimitsUnavailable if it is not so then."""
        found = self.get(uuid, cgroup)
        if found.is_at(size):
            return found
        self.set(uuid, cgroup, size)
        found = self.get(uuid, cgroup)
        if not found.is_at(size):
            asked = "none" if size is None else format_bytes(size)
            raise LimitsUnavailable(
                f"{uuid}: the driver was asked for a limit of {asked} on {cgroup}, and tells "
                f"{found.hard} bytes (soft {found.soft})"
            )
        return found

    def probe(self, cgroup: Path) -> str:
        """Tries it on a cgroup that holds no GPU memory; returns in words what was done. Raises
        LimitsUnavailable if no GPU of this machine can be limited: some may be cut into MIG instances, which
        cannot.
        """
        refused = "it reports no GPU"
        for uuid in self._uuids():
            try:
                self.hold(uuid, cgroup, _PROBED)
                self.hold(uuid, cgroup, None)
            except LimitsUnavailable as error:
                refused = str(error)
                continue
            return f"a limit of memory was set, read back and cleared on {uuid}"
        raise LimitsUnavailable(refused)

    def _uuids(self) -> list[str]:
        self._nvml.start()
        found = []
        try:
            for index in range(pynvml.nvmlDeviceGetCount()):
                uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index))
                found.append(uuid.decode() if isinstance(uuid, bytes) else str(uuid))
        except pynvml.NVMLError as error:
            if not found:
                raise LimitsUnavailable(f"the GPUs cannot be read: NVML says {str(error)!r}") from None
        return found

    def _call(self, what: str, uuid: str, call: Any) -> None:
        self._nvml.start()
        try:
            call(pynvml.nvmlDeviceGetHandleByUUID(uuid.encode()))
        except pynvml.NVMLError_FunctionNotFound:
            raise LimitsUnavailable(
                f"the driver ({_version()}) has no limits of memory by cgroup: they came with r615"
            ) from None
        except pynvml.NVMLError_NotSupported:
            raise LimitsUnavailable(
                f"{uuid}: the driver does not limit memory there: it is a MIG instance, or the kernel has no "
                "cgroup v2"
            ) from None
        except pynvml.NVMLError_NoPermission:
            raise LimitsUnavailable(
                f"{uuid}: limit of memory {what}: this process may not: it needs to be root (in a container, "
                "with CAP_SYS_ADMIN)"
            ) from None
        except pynvml.NVMLError as error:
            raise LimitsUnavailable(f"{uuid}: limit of memory {what}: NVML says {str(error)!r}") from None


def _function(name: str) -> Any:
    found = getattr(pynvml, name, None)
    if found is None:
        raise LimitsUnavailable(
            f"nvidia-ml-py has no {name}: install nvidia-ml-py 13.615 or later beside Cotenant"
        )
    return found


def _version() -> str:
    try:
        version = pynvml.nvmlSystemGetDriverVersion()
    except pynvml.NVMLError:
        return "of unknown version"
    return version.decode() if isinstance(version, bytes) else str(version)

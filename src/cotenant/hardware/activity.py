"""Reads how much of a GPU's time each process uses, where the driver reports it (not on MIG instances)."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pynvml

WINDOW = 2.0
"""Seconds: a process without a sample since then does nothing."""


def by_gpu(uuids: Iterable[str]) -> dict[str, dict[int, int]]:
    """Percent by UUID and pid, without the GPUs of which the driver does not report it."""
    found = ((uuid, by_process(uuid)) for uuid in uuids)
    return {uuid: percent for uuid, percent in found if percent is not None}


def by_process(uuid: str) -> dict[int, int] | None:
    """Percent of the time in which a kernel ran, by pid, of processes that do something: at least 1 for one
    that only copies, encodes or decodes. None where the driver does not report it. Read the GPUs first: that
    starts NVML.
    """
    since = int((time.time() - WINDOW) * 1e6)
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
        samples = pynvml.nvmlDeviceGetProcessUtilization(handle, since)
    except pynvml.NVMLError_NotFound:  # no process has done anything
        return {}
    except pynvml.NVMLError:
        return None
    newest = sorted(samples, key=lambda sample: sample.timeStamp)
    return {int(sample.pid): _percent(sample) for sample in newest}


def _percent(sample: Any) -> int:
    others = sample.memUtil or sample.encUtil or sample.decUtil
    return max(int(sample.smUtil), 1 if others else 0)

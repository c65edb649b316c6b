"""How much of a card's time each process takes, where the driver tells (not on MIG instances)."""

from __future__ import annotations

import time

import pynvml

WINDOW = 2.0
"""Seconds: a process without a sample since then does nothing."""


def by_process(uuid: str) -> dict[int, int] | None:
    """Pid to percent of those that do something; None where the driver does not tell. Start NVML before."""
    since = int((time.time() - WINDOW) * 1e6)
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())
        samples = pynvml.nvmlDeviceGetProcessUtilization(handle, since)
    except pynvml.NVMLError_NotFound:  # nobody has done anything
        return {}
    except pynvml.NVMLError:
        return None
    newest = sorted(samples, key=lambda sample: sample.timeStamp)
    return {int(sample.pid): int(sample.smUtil) for sample in newest}

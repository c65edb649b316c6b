"""Checks by NVML whether MPS can hold clients to a share of a GPU's compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import pynvml

from cotenant.core.gpu import GPU
from cotenant.hardware.nvml import NoDriver, Nvml

T = TypeVar("T")

VOLTA = (7, 0)
"""The first compute capability whose MPS has shares of compute and isolated address spaces."""
MOST_CLIENTS = 48
"""Clients of one server before Blackwell; 60 from there on."""


class ComputeFacts(NamedTuple):
    """What bears on MPS; None where the driver does not report it."""

    capability: tuple[int, int] | None = None
    prohibited: bool = False
    """Whether the compute mode forbids all processes."""
    exclusive: bool = False
    """Whether the compute mode admits one process at a time: then only MPS's server."""


def read_facts(nvml: Nvml) -> dict[str, ComputeFacts]:
    """Reads the facts of each card, by its UUID; none where the driver does not answer."""
    try:
        cards = {reading.gpu.parent or reading.gpu.uuid for reading in nvml.read().cards}
    except NoDriver:
        return {}
    try:
        return {uuid: facts for uuid in cards if (facts := _read(uuid)) is not None}
    finally:
        nvml.close()


def objection(gpu: GPU, facts: ComputeFacts | None, *, one_daemon: bool) -> str | None:
    """Says why MPS cannot hold clients on this GPU; None if nothing is known that speaks against it.
    `one_daemon` is one for all GPUs of the node.
    """
    if gpu.parent is not None and one_daemon:
        return (
            "it is a MIG instance, and one MPS server cannot serve several: mps.daemons = 'card' has one for "
            "each"
        )
    if facts is None:
        return None
    if facts.capability is not None and facts.capability < VOLTA:
        found = ".".join(map(str, facts.capability))
        return f"its compute capability is {found}: shares of compute need 7.0 (Volta) or later"
    if facts.prohibited:
        return "its compute mode is PROHIBITED: nvidia-smi -c DEFAULT changes it"
    return None


def _read(uuid: str) -> ComputeFacts | None:
    handle = _ask(lambda: pynvml.nvmlDeviceGetHandleByUUID(uuid))
    if handle is None:
        return None
    capability = _ask(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    mode = _ask(lambda: pynvml.nvmlDeviceGetComputeMode(handle))
    return ComputeFacts(
        None if capability is None else (int(capability[0]), int(capability[1])),
        prohibited=mode == pynvml.NVML_COMPUTEMODE_PROHIBITED,
        exclusive=mode == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
    )


def _ask(question: Callable[[], T]) -> T | None:
    try:
        return question()
    except pynvml.NVMLError:
        return None

"""The native names: resources of containers and nodes, annotations of pods and nodes, a node condition."""

from __future__ import annotations

DOMAIN = "cotenant.dev"

GPU_MEMORY = f"{DOMAIN}/gpu-memory"
GPU_COMPUTE = f"{DOMAIN}/gpu-compute"
GPU = f"{DOMAIN}/gpu"
GPU_SLOT = f"{DOMAIN}/gpu-slot"
"""Added at admission; its presence says that the native figures beside it are ours, not the author's."""

GPU_MODEL = f"{DOMAIN}/gpu-model"
GPU_UUID = f"{DOMAIN}/gpu-uuid"
PLACEMENT = f"{DOMAIN}/placement"
ENFORCE = f"{DOMAIN}/enforce"

GRANT = f"{DOMAIN}/grant"
RETRY = f"{DOMAIN}/retry"

GPUS = f"{DOMAIN}/gpus"
"""On nodes, by the agent: the cards one by one."""
DRAINED = f"{DOMAIN}/drained"
"""On nodes, by people: UUIDs of cards that take no new grant."""
GPUS_HEALTHY = f"{DOMAIN}/GPUsHealthy"
"""The type of a node's condition, by the agent: whether every GPU works."""

_GPU_COUNT = f"gpu-count.{DOMAIN}/"
_DEVICES = f"devices.{DOMAIN}/"
_COMPUTE = f"compute.{DOMAIN}/"
_CARD_MEMORY = f"card-memory.{DOMAIN}/"

SERVER_ONLY = (GRANT, RETRY)
SERVER_ONLY_PREFIXES = (_DEVICES, _COMPUTE, _CARD_MEMORY)
"""Annotations of pods that only the server writes: by name, and by how their names begin."""

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
"""What NVIDIA's container runtime reads; an empty or missing one shows no card."""

ACTIVE_THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
"""What MPS reads; without MPS it does nothing."""


def gpu_count(container: str) -> str:
    """Over how many cards the container's memory is spread.

    A container's name always fits: it is a DNS label, and any of up to 63 characters names an annotation.
    """
    return _GPU_COUNT + container


def devices(container: str) -> str:
    """The cards that the container sees, as its dialect spells them."""
    return _DEVICES + container


def compute(container: str) -> str:
    """Percent of each card's compute."""
    return _COMPUTE + container


def card_memory(container: str) -> str:
    """The size of the container's card, in its dialect's unit: known only once a card is chosen."""
    return _CARD_MEMORY + container


def counted_container(annotation: str) -> str | None:
    """The container that a gpu-count annotation is about; None if it is another annotation."""
    return annotation.removeprefix(_GPU_COUNT) if annotation.startswith(_GPU_COUNT) else None


def only_server_writes(annotation: str) -> bool:
    """Whether a pod that brings this along is pretending to have been granted something."""
    return annotation in SERVER_ONLY or annotation.startswith(SERVER_ONLY_PREFIXES)

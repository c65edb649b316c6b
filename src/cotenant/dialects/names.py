"""Names our resources, annotations, variables and conditions: everything under cotenant.dev."""

from __future__ import annotations

DOMAIN = "cotenant.dev"

GPU_MEMORY = f"{DOMAIN}/gpu-memory"
GPU_COMPUTE = f"{DOMAIN}/gpu-compute"
GPU = f"{DOMAIN}/gpu"
GPU_SLOT = f"{DOMAIN}/gpu-slot"
"""Added at admission; where it is present, the native figures beside it are ours, not the author's."""

GPU_MODEL = f"{DOMAIN}/gpu-model"
GPU_UUID = f"{DOMAIN}/gpu-uuid"
PLACEMENT = f"{DOMAIN}/placement"
ENFORCE = f"{DOMAIN}/enforce"

GRANT = f"{DOMAIN}/grant"
RETRY = f"{DOMAIN}/retry"

GPUS = f"{DOMAIN}/gpus"
"""On nodes, written by the agent: each GPU."""
DRAINED = f"{DOMAIN}/drained"
"""On nodes, written by people: UUIDs of GPUs that get no new grants."""
DEFRAG = f"{DOMAIN}/defrag"
"""On nodes, written by `cotenant plan defrag --apply`: GPUs that it drained, and until when it needs them."""
GPUS_HEALTHY = f"{DOMAIN}/GPUsHealthy"
"""The type of a node condition, written by the agent: whether every GPU works."""
GPU_IDLE = f"{DOMAIN}/GPUIdle"
"""The type of a pod condition, written by the agent: whether no container of the pod uses its GPU."""
GPU_LIMIT_HELD = f"{DOMAIN}/GPULimitHeld"
"""The type of a pod condition, written by the agent: whether its limits of GPU memory hold, and by what."""
EVICT_OVER_LIMIT = f"{DOMAIN}/evict-over-limit"
"""On namespaces, a label, and on pods, an annotation: whether a pod that holds more than its limit is
evicted.
"""

SCALE_DOWN_THRESHOLD = f"{DOMAIN}/scale-down-threshold"
"""On workloads, written by people: idle that long, the workload is scaled to zero."""
SCALE_DOWN_THRESHOLD_WHEN_OTHERS_WAIT = f"{DOMAIN}/scale-down-threshold-when-others-wait"
"""The same while a pod waits in line that could start with what is idle there."""
RELEASED_REPLICAS = f"{DOMAIN}/released-replicas"
"""On workloads, written by the server when it scales one to zero: how many replicas it had."""

_GPU_COUNT = f"gpu-count.{DOMAIN}/"
_DEVICES = f"devices.{DOMAIN}/"
_COMPUTE = f"compute.{DOMAIN}/"
_CARD_MEMORY = f"card-memory.{DOMAIN}/"
_MPS_MEMORY = f"mps-memory.{DOMAIN}/"

SERVER_ONLY = (GRANT, RETRY)
SERVER_ONLY_PREFIXES = (_DEVICES, _COMPUTE, _CARD_MEMORY, _MPS_MEMORY)
"""Annotations of pods that only the server writes: by name, and by prefix."""

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
"""Read by NVIDIA's container runtime; empty or missing, the container sees no GPU."""

ACTIVE_THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
"""Read by MPS when a process creates its first context; without MPS it has no effect."""
MPS_MEMORY_LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
"""Read by MPS, as above: the most that one process may allocate on each of its GPUs."""
MPS_PIPE_FOLDER = "CUDA_MPS_PIPE_DIRECTORY"
"""The folder through which a process reaches the MPS control daemon. Where there is none, CUDA works without
MPS.
"""


def gpu_count(container: str) -> str:
    """Names the annotation with the number of GPUs over which the container's memory is spread.

    A container's name always fits: it is a DNS label, and any of up to 63 characters names an annotation.
    """
    return _GPU_COUNT + container


def devices(container: str) -> str:
    """Names the annotation with the GPUs that the container sees, as its dialect writes them."""
    return _DEVICES + container


def compute(container: str) -> str:
    """Names the annotation with the percent of each GPU's compute."""
    return _COMPUTE + container


def card_memory(container: str) -> str:
    """Names the annotation with the size of the container's GPU, in its dialect's unit; bind writes it."""
    return _CARD_MEMORY + container


def mps_memory(container: str) -> str:
    """Names the annotation with the memory limits of one process on each GPU, as MPS writes them."""
    return _MPS_MEMORY + container


def counted_container(annotation: str) -> str | None:
    """Returns the container that a gpu-count annotation names; None if it is another annotation."""
    return annotation.removeprefix(_GPU_COUNT) if annotation.startswith(_GPU_COUNT) else None


def only_server_writes(annotation: str) -> bool:
    """Whether only the server may write this annotation: from a pod's author it would be a forged grant."""
    return annotation in SERVER_ONLY or annotation.startswith(SERVER_ONLY_PREFIXES)

"""Declares every metric that Cotenant exports, once: name, type, help, labels, and who exports it.

To add a metric, add a member here, build it with `exposition`, and run `make docs`: `docs/metrics.md` is
generated from this table. A metric that is not in the table cannot be exported, since `exposition` takes
nothing but its members.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from typing import Literal

Exporter = Literal["node", "agent", "server", "both"]
"""`node`: the agent of a node, and `cotenant metrics` on one machine. `both`: agent and server."""
Kind = Literal["gauge", "counter", "histogram"]

GPU = ("node", "uuid", "index", "model")
CONTAINER = ("namespace", "pod", "container")
SCALER = ("namespace", "scaler")
WAITING_POD = ("namespace", "pod")
CONTAINER_ON_GPU = (*CONTAINER, "uuid")
"""Only for values that can be added up over GPUs. One that belongs to the container as a whole has no `uuid`:
a sum would count it once for each of its GPUs.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the table."""

    kind: Kind
    exporter: Exporter
    name: str
    """As Prometheus stores it: a counter's ends in `_total`."""
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's, in the unit that its name says."""


@unique
class Metric(Enum):
    """All metrics, in the order of the reference."""

    GPU_MEMORY = Entry(
        "gauge", "node", "cotenant_gpu_memory_bytes", "Memory of the GPU that can be granted.", GPU
    )
    GPU_MEMORY_GRANTED = Entry(
        "gauge",
        "node",
        "cotenant_gpu_memory_granted_bytes",
        "Memory of the GPU that is granted to pods.",
        GPU,
    )
    GPU_MEMORY_USED = Entry(
        "gauge", "node", "cotenant_gpu_memory_used_bytes", "Memory of the GPU in use by any process.", GPU
    )
    GPU_MEMORY_OUTSIDE = Entry(
        "gauge",
        "node",
        "cotenant_gpu_memory_outside_bytes",
        "Memory of the GPU in use that belongs to no container: with what containers use it adds up to what "
        "is in use.",
        GPU,
    )
    GPU_MEMORY_FREE = Entry(
        "gauge",
        "node",
        "cotenant_gpu_memory_free_bytes",
        "Memory of the GPU that a new grant may take; 0 where the GPU is sick, drained or granted whole.",
        GPU,
    )
    GPU_UTILIZATION = Entry(
        "gauge",
        "node",
        "cotenant_gpu_utilization_ratio",
        "Part of the driver's last sampling period in which a kernel ran, from 0 to 1.",
        GPU,
    )
    GPU_HEALTHY = Entry("gauge", "node", "cotenant_gpu_healthy", "1 if the GPU is healthy, else 0.", GPU)
    CONTAINER_MEMORY_LIMIT = Entry(
        "gauge",
        "node",
        "cotenant_container_memory_limit_bytes",
        "Memory of the GPU that the container may hold. Absent for a container without a grant.",
        CONTAINER_ON_GPU,
    )
    CONTAINER_MEMORY_USED = Entry(
        "gauge",
        "node",
        "cotenant_container_memory_used_bytes",
        "Memory of the GPU that the container's processes hold, CUDA contexts included: what its slot "
        "counts, and what the driver reports beyond that. Of a container without a grant, what the driver "
        "reports.",
        CONTAINER_ON_GPU,
    )
    CONTAINER_MEMORY_PEAK = Entry(
        "gauge",
        "node",
        "cotenant_container_memory_peak_bytes",
        "The most memory of the GPU that the container held at one time since it started. What no slot "
        "counts is seen at each survey only, and forgotten when the agent restarts.",
        CONTAINER_ON_GPU,
    )
    CONTAINER_UTILIZATION = Entry(
        "gauge",
        "node",
        "cotenant_container_utilization_ratio",
        "Part of the GPU's time that the container's processes used, from 0 to 1, by the driver's latest "
        "samples. Absent where the driver does not report it (MIG).",
        CONTAINER_ON_GPU,
    )
    CONTAINER_DENIED = Entry(
        "counter",
        "node",
        "cotenant_container_denied_allocations_total",
        "Allocations beyond the limit that failed (mode enforce) since the container started.",
        CONTAINER,
    )
    CONTAINER_OVER_LIMIT = Entry(
        "counter",
        "node",
        "cotenant_container_over_limit_allocations_total",
        "Allocations beyond the limit that were allowed (modes observe, warn) since the container started.",
        CONTAINER,
    )
    CONTAINER_MEMORY_OVER = Entry(
        "gauge",
        "node",
        "cotenant_container_memory_over_bytes",
        "Memory that the container holds beyond its grant, on all GPUs together.",
        CONTAINER,
    )
    CONTAINER_UNLIMITED = Entry(
        "gauge",
        "node",
        "cotenant_container_unlimited_processes",
        "Processes of the container that use a GPU and are not held to its limit: the shim is not loaded.",
        CONTAINER,
    )
    CONTAINER_LAST_ACTIVITY = Entry(
        "gauge",
        "node",
        "cotenant_container_last_activity_timestamp_seconds",
        "Unix time of the container's last kernel launch or allocation. Absent before the first.",
        CONTAINER,
    )
    CONTAINER_ENFORCER = Entry(
        "gauge",
        "node",
        "cotenant_container_enforcer_info",
        "Always 1. `asked`: the enforcer that the container was to be held by; `actual`: what was seen to "
        "hold it, `unknown` before anything shows it, `none` without a grant. `mode`: observe, warn or "
        "enforce.",
        (*CONTAINER, "asked", "actual", "mode"),
    )
    CONTAINER_INFO = Entry(
        "gauge",
        "node",
        "cotenant_container_info",
        "Always 1; to join with. `workload` and `workload_kind`: what the pod belongs to; `version`: of its "
        "template.",
        (*CONTAINER, "workload", "workload_kind", "version"),
    )
    METRICS_CUT = Entry(
        "gauge",
        "node",
        "cotenant_metrics_cut",
        "What is missing here: containers beyond the most that are exported, and label values that were "
        "shortened.",
        ("what",),
    )
    AGENT_INFO = Entry(
        "gauge",
        "agent",
        "cotenant_agent_info",
        "Always 1; the label has the agent's version.",
        ("node", "version"),
    )
    AGENT_REGISTERED = Entry(
        "gauge",
        "agent",
        "cotenant_agent_registered",
        "1 if the agent is registered with the kubelet as a device plugin, else 0.",
    )
    AGENT_POD_RESOURCES_REACHABLE = Entry(
        "gauge",
        "agent",
        "cotenant_agent_pod_resources_reachable",
        "1 if the kubelet's pod-resources API answered the last request, else 0.",
    )
    AGENT_API_REACHABLE = Entry(
        "gauge",
        "agent",
        "cotenant_agent_api_reachable",
        "1 if the API server answered the last request, else 0.",
    )
    AGENT_SURVEY_AGE = Entry(
        "gauge", "agent", "cotenant_agent_survey_age_seconds", "Time since the agent last read the GPUs."
    )
    AGENT_PUBLISHES = Entry(
        "counter",
        "agent",
        "cotenant_agent_publishes_total",
        "How often the agent wrote the node's GPUs to the API server.",
    )
    AGENT_IDLE_WRITES = Entry(
        "counter",
        "agent",
        "cotenant_agent_idle_writes_total",
        "How often the agent wrote the condition cotenant.dev/GPUIdle of a pod, by its status (True: idle).",
        ("status",),
    )
    MPS_UP = Entry(
        "gauge",
        "agent",
        "cotenant_mps_up",
        "1 while the MPS control daemon runs, else 0; by daemon: node, or the UUID of its GPU.",
        ("daemon",),
    )
    MPS_RESTARTS = Entry(
        "counter",
        "agent",
        "cotenant_mps_restarts_total",
        "How often an MPS control daemon had to be started again, as far as the agent has seen.",
        ("daemon",),
    )
    LEADER = Entry(
        "gauge",
        "server",
        "cotenant_leader",
        "1 if this server is the leader and its ledger is complete, else 0.",
    )
    TERM_PENDING = Entry(
        "gauge",
        "server",
        "cotenant_leader_term_pending_seconds",
        "Time for which this server holds the lease and cannot begin its term. /readyz says why.",
    )
    PART_READY = Entry(
        "gauge", "both", "cotenant_part_ready", "1 if the part of the process is ready, else 0.", ("part",)
    )
    PART_FAILURES = Entry(
        "counter", "both", "cotenant_part_failures_total", "How often the part has failed.", ("part",)
    )
    CHARGED_PODS = Entry(
        "gauge", "server", "cotenant_charged_pods", "Pods whose grant is in this server's ledger."
    )
    PENDING_PODS = Entry("gauge", "server", "cotenant_scheduler_pending_pods", "Pods that wait in line.")
    LONGEST_WAIT = Entry(
        "gauge",
        "server",
        "cotenant_scheduler_longest_wait_seconds",
        "For how long the pod that has waited longest has been in line; 0 if none waits.",
    )
    WAITING_SECONDS = Entry(
        "gauge",
        "server",
        "cotenant_scheduler_waiting_pod_seconds",
        "For how long a pod has been in line. Of the first 50 in line only.",
        WAITING_POD,
    )
    WAITING_MEMORY = Entry(
        "gauge",
        "server",
        "cotenant_scheduler_waiting_pod_memory_bytes",
        "GPU memory that a pod in line asks for; whole GPUs are not counted. Of the first 50 in line only.",
        WAITING_POD,
    )
    AGENTS_SILENT = Entry(
        "gauge",
        "server",
        "cotenant_agents_silent",
        "Nodes whose agent has reported and does so no longer.",
    )
    EVICTIONS = Entry(
        "counter",
        "server",
        "cotenant_scheduler_evictions_total",
        "Pods that this server evicted to make room for one of higher priority. kube-scheduler's own "
        "evictions are not counted.",
    )
    LIMIT_EVICTIONS = Entry(
        "counter",
        "server",
        "cotenant_limit_evictions_total",
        "Pods that held more GPU memory than their limit, by outcome: evicted, refused (by a "
        "PodDisruptionBudget) or dry-run.",
        ("outcome",),
    )
    DECISION_SECONDS = Entry(
        "histogram",
        "server",
        "cotenant_scheduler_decision_seconds",
        "Time to answer kube-scheduler, by verb (choose or filter, prioritize, prioritize-without-gpu, "
        "preempt, bind).",
        ("verb",),
        (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
    )
    SCALER_BACKLOG = Entry(
        "gauge",
        "server",
        "cotenant_scaler_backlog_seconds",
        "How long the ready replicas would take for the backlog. NaN without figures.",
        SCALER,
    )
    SCALER_DESIRED = Entry(
        "gauge",
        "server",
        "cotenant_scaler_desired_replicas",
        "Replicas that were decided on, also in the mode observe.",
        SCALER,
    )
    SCALER_STATE = Entry(
        "gauge",
        "server",
        "cotenant_scaler_state",
        "1 for the state that the scaler is in.",
        (*SCALER, "state"),
    )
    SCALER_ROUND = Entry(
        "gauge", "server", "cotenant_scaler_round_seconds", "Time that the last round over all scalers took."
    )
    RELEASES = Entry(
        "counter",
        "server",
        "cotenant_scaler_releases_total",
        "Workloads that were scaled to zero because they were idle.",
    )
    KEDA_ANSWERS = Entry(
        "counter",
        "server",
        "cotenant_keda_answers_total",
        "Answers to KEDA, by method and gRPC status; a stream counts when it begins.",
        ("method", "code"),
    )
    WEBHOOK_REQUESTS = Entry(
        "counter",
        "server",
        "cotenant_webhook_requests_total",
        "Requests of the API server to the webhook, by result.",
        ("result",),
    )
    WEBHOOK_SECONDS = Entry(
        "histogram",
        "server",
        "cotenant_webhook_seconds",
        "Time to review one pod in the webhook.",
        buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
    )

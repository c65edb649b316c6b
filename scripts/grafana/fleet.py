"""Describes the dashboard of all GPUs: grants, use, who waits, fragmentation."""

from __future__ import annotations

from grafana.description import Dashboard, Panel, Query, Row, Variable, stat

ON_NODE = '{node=~"$node"}'
FLEET = Dashboard(
    "cotenant-fleet",
    "Cotenant / Fleet",
    "GPUs of all nodes: what is granted, what is used, who waits, and whether free memory is of use.",
    (
        Variable("node", "label_values(cotenant_gpu_memory_bytes, node)", "Node"),
        Variable("gpu", f"label_values(cotenant_gpu_memory_bytes{ON_NODE}, uuid)", "GPU"),
        Variable(
            "size",
            "1 GiB : 1073741824, 4 GiB : 4294967296, 8 GiB : 8589934592, 16 GiB : 17179869184, "
            "24 GiB : 25769803776, 40 GiB : 42949672960",
            "Size of a demand",
            several=False,
        ),
    ),
    (
        Row(
            "Now",
            (
                stat("GPUs", f"count(count by (uuid) (cotenant_gpu_memory_bytes{ON_NODE}))", "short"),
                stat(
                    "Not healthy",
                    f"count(max by (uuid) (cotenant_gpu_healthy{ON_NODE}) == 0) or vector(0)",
                    "short",
                ),
                stat(
                    "Granted",
                    f"sum(cotenant_gpu_memory_granted_bytes{ON_NODE}) / sum(cotenant_gpu_memory_bytes{ON_NODE})",
                    "percentunit",
                    "Part of all memory that is granted to pods.",
                ),
                stat(
                    "Used of what is granted",
                    'sum(cotenant_container_memory_used_bytes{uuid=~"$gpu"})'
                    f" / sum(cotenant_gpu_memory_granted_bytes{ON_NODE})",
                    "percentunit",
                    "What containers hold, as part of what is granted. Low: grants are larger than needed.",
                ),
                stat(
                    "Free",
                    f"sum(cotenant_gpu_memory_free_bytes{ON_NODE})",
                    "bytes",
                    "What new grants may take, in all.",
                ),
                stat(
                    "Pods that wait",
                    "max(cotenant_scheduler_pending_pods and on (instance) cotenant_leader == 1) or vector(0)",
                    "short",
                ),
            ),
        ),
        Row(
            "Grants on each GPU",
            (
                Panel(
                    "Grants on $gpu",
                    (
                        Query(
                            'sum by (namespace, pod, container) (cotenant_container_memory_limit_bytes{uuid=~"$gpu"})',
                            "{{namespace}}/{{pod}} {{container}}",
                        ),
                        Query(
                            'max by (node, index, uuid) (cotenant_gpu_memory_bytes{uuid=~"$gpu"})',
                            "memory of GPU {{index}} of {{node}}",
                            line=True,
                        ),
                        Query(
                            'sum by (uuid) (cotenant_gpu_memory_used_bytes{uuid=~"$gpu"})',
                            "in use",
                            line=True,
                        ),
                    ),
                    about="What each container may hold, stacked under the GPU's memory.",
                    stacked=True,
                    repeat="gpu",
                ),
            ),
        ),
        Row(
            "Use",
            (
                Panel(
                    "Memory of all GPUs",
                    (
                        Query(f"sum(cotenant_gpu_memory_bytes{ON_NODE})", "there is"),
                        Query(f"sum(cotenant_gpu_memory_granted_bytes{ON_NODE})", "granted"),
                        Query(f"sum(cotenant_gpu_memory_used_bytes{ON_NODE})", "used"),
                        Query(f"sum(cotenant_gpu_memory_outside_bytes{ON_NODE})", "used by no container"),
                    ),
                ),
                Panel(
                    "Utilisation",
                    (
                        Query(
                            f"max by (node, index) (cotenant_gpu_utilization_ratio{ON_NODE})",
                            "{{node}} GPU {{index}}",
                        ),
                    ),
                    "percentunit",
                    about="Part of the time in which a kernel ran.",
                ),
                Panel(
                    "Containers that use most",
                    (
                        Query(
                            'topk(15, sum by (namespace, pod, container) (cotenant_container_memory_used_bytes{uuid=~"$gpu"}))',
                            "{{namespace}}/{{pod}} {{container}}",
                        ),
                    ),
                ),
                Panel(
                    "Health",
                    (
                        Query(
                            f"min by (node, index) (cotenant_gpu_healthy{ON_NODE})", "{{node}} GPU {{index}}"
                        ),
                    ),
                    "short",
                    "state-timeline",
                    about="0: sick or lost.",
                ),
            ),
        ),
        Row(
            "Who waits",
            (
                Panel(
                    "The first in line",
                    (
                        Query("max by (namespace, pod) (cotenant_scheduler_waiting_pod_seconds)"),
                        Query("max by (namespace, pod) (cotenant_scheduler_waiting_pod_memory_bytes)"),
                    ),
                    "s",
                    "table",
                    hidden=("Time",),
                    named=(("Value #A", "waited"), ("Value #B", "asks for")),
                    about="At most 50 pods. `kubectl cotenant explain POD` says why one waits.",
                ),
                Panel(
                    "The line",
                    (
                        Query(
                            "max(cotenant_scheduler_pending_pods and on (instance) cotenant_leader == 1)",
                            "pods that wait",
                        ),
                        Query("max(cotenant_scheduler_longest_wait_seconds)", "longest wait, in seconds"),
                    ),
                    "short",
                ),
            ),
        ),
        Row(
            "Fragmentation",
            (
                Panel(
                    "Free memory, and the largest piece of it",
                    (
                        Query(f"sum(cotenant_gpu_memory_free_bytes{ON_NODE})", "free in all"),
                        Query(f"max(cotenant_gpu_memory_free_bytes{ON_NODE})", "most on one GPU"),
                    ),
                    about="A demand for one GPU that is larger than the lower line waits, whatever is free in all.",
                ),
                Panel(
                    "Free in pieces too small for a demand",
                    (
                        Query(
                            f"(sum(cotenant_gpu_memory_free_bytes{ON_NODE} < $size) or vector(0))"
                            f" / sum(cotenant_gpu_memory_free_bytes{ON_NODE})",
                            "of no use for this size",
                        ),
                    ),
                    "percentunit",
                    about="Part of the free memory that is on GPUs with less than the chosen size.",
                ),
                Panel(
                    "Demands of this size that would fit",
                    (Query(f"sum(floor(cotenant_gpu_memory_free_bytes{ON_NODE} / $size))", "would fit"),),
                    "short",
                ),
                Panel(
                    "Free on each GPU",
                    (
                        Query(
                            f"sum by (node, index) (cotenant_gpu_memory_free_bytes{ON_NODE})",
                            "{{node}} GPU {{index}}",
                        ),
                    ),
                    "bytes",
                    "bargauge",
                ),
            ),
        ),
        Row(
            "Cotenant itself",
            (
                Panel(
                    "Time to answer kube-scheduler (99 of 100)",
                    (
                        Query(
                            "histogram_quantile(0.99, sum by (le, verb) (rate(cotenant_scheduler_decision_seconds_bucket"
                            "[$__rate_interval])))",
                            "{{verb}}",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "Leader and agents",
                    (
                        Query("sum(cotenant_leader)", "servers that lead"),
                        Query("count(cotenant_agent_info)", "agents"),
                        Query("max(cotenant_agents_silent)", "agents that are silent"),
                    ),
                    "short",
                ),
            ),
        ),
    ),
)

"""Describes the dashboard of one workload: limit, use, peak, refused memory, utilisation, advice."""

from __future__ import annotations

from grafana.description import Dashboard, Panel, Query, Row, Variable

INFO = (
    "max by (namespace, pod, container, workload, workload_kind, version) "
    '(cotenant_container_info{namespace=~"$namespace", workload=~"$workload", container=~"$container"})'
)
OF = "on (namespace, pod, container) group_left (workload, version)"


def of_workload(metric: str) -> str:
    return f'{metric}{{namespace=~"$namespace"}} * {OF} {INFO}'


def largest(expression: str) -> str:
    """Of one container: the most on any of its GPUs times their number, since a demand is split evenly."""
    by = "by (namespace, pod, container)"
    return f"max {by} ({expression}) * count {by} ({expression})"


PEAK = largest('max_over_time(cotenant_container_memory_peak_bytes{namespace=~"$namespace"}[$__range])')
LIMIT = 'sum by (namespace, pod, container) (cotenant_container_memory_limit_bytes{namespace=~"$namespace"})'
VERSION = "max by (namespace, workload, version, container)"
ADVICE = f"{VERSION} (1.15 * ({PEAK}) * {OF} {INFO})"
WORKLOAD = Dashboard(
    "cotenant-workload",
    "Cotenant / Workload",
    "One workload: limit, use, peak, refused memory, utilisation, and what it should ask for.",
    (
        Variable("namespace", "label_values(cotenant_container_info, namespace)", "Namespace"),
        Variable(
            "workload", 'label_values(cotenant_container_info{namespace=~"$namespace"}, workload)', "Workload"
        ),
        Variable(
            "container",
            'label_values(cotenant_container_info{namespace=~"$namespace", workload=~"$workload"}, container)',
            "Container",
        ),
    ),
    (
        Row(
            "Advice",
            (
                Panel(
                    "What to ask for",
                    (
                        Query(f"{VERSION} (({LIMIT}) * {OF} {INFO})"),
                        Query(f"{VERSION} (({PEAK}) * {OF} {INFO})"),
                        Query(ADVICE),
                    ),
                    "bytes",
                    "table",
                    width=24,
                    hidden=("Time",),
                    named=(("Value #A", "now"), ("Value #B", "peak"), ("Value #C", "advised")),
                    about="The peak over all replicas of a version in the time that is shown, start-up included, and 15 % "
                    "more. Choose a time that contains the heaviest load. `cotenant recommend` learns the headroom and "
                    "shows its evidence.",
                ),
            ),
        ),
        Row(
            "Memory",
            (
                Panel(
                    "Used, by pod",
                    (
                        Query(
                            f"sum by (namespace, pod, container) ({of_workload('cotenant_container_memory_used_bytes')})",
                            "{{pod}} {{container}}",
                        ),
                    ),
                ),
                Panel(
                    "Limit, use and peak of the largest replica",
                    (
                        Query(
                            f"max(sum by (namespace, pod, container) ({of_workload('cotenant_container_memory_limit_bytes')}))",
                            "limit",
                        ),
                        Query(
                            f"max(sum by (namespace, pod, container) ({of_workload('cotenant_container_memory_used_bytes')}))",
                            "used",
                        ),
                        Query(
                            f"max(sum by (namespace, pod, container) ({of_workload('cotenant_container_memory_peak_bytes')}))",
                            "peak",
                        ),
                    ),
                ),
                Panel(
                    "Peak, by version",
                    (
                        Query(
                            f"{VERSION} ({of_workload('cotenant_container_memory_peak_bytes')})",
                            "{{workload}} {{version}} {{container}}",
                        ),
                    ),
                    about="The most on one GPU.",
                ),
                Panel(
                    "Beyond the grant",
                    (
                        Query(
                            f"sum by (namespace, pod, container) ({of_workload('cotenant_container_memory_over_bytes')})",
                            "{{pod}} {{container}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "At the limit",
            (
                Panel(
                    "Allocations refused",
                    (
                        Query(
                            "sum by (namespace, pod, container) (increase(cotenant_container_denied_allocations_total"
                            f'{{namespace=~"$namespace"}}[$__rate_interval]) * {OF} {INFO})',
                            "{{pod}} {{container}}",
                        ),
                    ),
                    "short",
                    about="Mode enforce: the program saw an out-of-memory error.",
                ),
                Panel(
                    "Allocations let through",
                    (
                        Query(
                            "sum by (namespace, pod, container) (increase(cotenant_container_over_limit_allocations_total"
                            f'{{namespace=~"$namespace"}}[$__rate_interval]) * {OF} {INFO})',
                            "{{pod}} {{container}}",
                        ),
                    ),
                    "short",
                    about="Modes observe and warn: they would be refused in mode enforce.",
                ),
                Panel(
                    "What holds the limit",
                    (
                        Query(
                            "max by (namespace, pod, container, asked, actual, mode) "
                            '(cotenant_container_enforcer_info{namespace=~"$namespace"}) '
                            f"* on (namespace, pod, container) group_left (workload) {INFO}"
                        ),
                    ),
                    "short",
                    "table",
                    hidden=("Time", "Value"),
                    about="What was asked for, and what was seen to hold.",
                ),
                Panel(
                    "Processes without a limit",
                    (
                        Query(
                            f"sum by (namespace, pod, container) ({of_workload('cotenant_container_unlimited_processes')})",
                            "{{pod}} {{container}}",
                        ),
                    ),
                    "short",
                ),
            ),
        ),
        Row(
            "Work",
            (
                Panel(
                    "Utilisation",
                    (
                        Query(
                            f"sum by (namespace, pod, container) ({of_workload('cotenant_container_utilization_ratio')})",
                            "{{pod}} {{container}}",
                        ),
                    ),
                    "percentunit",
                    about="Part of a GPU's time that its processes used; of several GPUs the sum.",
                ),
                Panel(
                    "Time since the last activity",
                    (
                        Query(
                            "time() - max by (namespace, pod, container) "
                            f"({of_workload('cotenant_container_last_activity_timestamp_seconds')})",
                            "{{pod}} {{container}}",
                        ),
                    ),
                    "s",
                ),
            ),
        ),
    ),
)

"""Describes the dashboard of GpuScalers: backlog, replicas, state."""

from __future__ import annotations

from grafana.description import Dashboard, Panel, Query, Row, Variable, stat

SCALER = '{namespace=~"$namespace", scaler=~"$scaler"}'
SCALERS = Dashboard(
    "cotenant-scalers",
    "Cotenant / Scalers",
    "GpuScalers: backlog, replicas that were decided on, and state.",
    (
        Variable("namespace", "label_values(cotenant_scaler_desired_replicas, namespace)", "Namespace"),
        Variable(
            "scaler",
            'label_values(cotenant_scaler_desired_replicas{namespace=~"$namespace"}, scaler)',
            "Scaler",
        ),
    ),
    (
        Row(
            "Now",
            (
                stat(
                    "Scalers",
                    f"count(max by (namespace, scaler) (cotenant_scaler_desired_replicas{SCALER}))",
                    "short",
                ),
                stat(
                    "Replicas that were decided on",
                    f"sum(max by (namespace, scaler) (cotenant_scaler_desired_replicas{SCALER}))",
                    "short",
                ),
                stat("Longest backlog", f"max(cotenant_scaler_backlog_seconds{SCALER})", "s"),
                stat(
                    "Released as idle",
                    "sum(increase(cotenant_scaler_releases_total[$__range]))",
                    "short",
                    "Workloads that were scaled to zero in the time that is shown.",
                ),
            ),
        ),
        Row(
            "Scalers",
            (
                Panel(
                    "Backlog",
                    (
                        Query(
                            f"max by (namespace, scaler) (cotenant_scaler_backlog_seconds{SCALER})",
                            "{{namespace}}/{{scaler}}",
                        ),
                    ),
                    "s",
                    about="How long the ready replicas would take for what waits. A gap: no figures.",
                ),
                Panel(
                    "Replicas that were decided on",
                    (
                        Query(
                            f"max by (namespace, scaler) (cotenant_scaler_desired_replicas{SCALER})",
                            "{{namespace}}/{{scaler}}",
                        ),
                    ),
                    "short",
                ),
                Panel(
                    "State",
                    (
                        Query(
                            f"max by (namespace, scaler, state) (cotenant_scaler_state{SCALER})",
                            "{{namespace}}/{{scaler}} {{state}}",
                        ),
                    ),
                    "short",
                    "state-timeline",
                    width=24,
                    about="1 while a scaler is in a state; what each means: docs/scaling-policy.md.",
                ),
                Panel(
                    "Time for a round over all scalers",
                    (
                        Query(
                            "max(cotenant_scaler_round_seconds and on (instance) cotenant_leader == 1)",
                            "last round",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "Scalers in each state",
                    (
                        Query(
                            f"sum by (state) (max by (namespace, scaler, state) (cotenant_scaler_state{SCALER}))",
                            "{{state}}",
                        ),
                    ),
                    "short",
                    stacked=True,
                ),
            ),
        ),
    ),
)

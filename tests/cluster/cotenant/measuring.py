"""Figures that the processes themselves publish."""

import http.client
import re
import ssl

from cluster.testbed.controlplane import PORTS, ControlPlane


def total(metrics: str, name: str, **labels: str) -> float:
    """The sum over all series of that name with these labels."""
    found = 0.0
    for line in metrics.splitlines():
        series = re.fullmatch(rf"{re.escape(name)}(\{{.*\}})? ([0-9.eE+]+)", line)
        if series and all(f'{key}="{value}"' in (series[1] or "") for key, value in labels.items()):
            found += float(series[2])
    return found


def filter_calls(metrics: str) -> float:
    return total(metrics, "cotenant_scheduler_decision_seconds_count", verb="choose")


def evictions(metrics: str) -> float:
    return total(metrics, "cotenant_scheduler_evictions_total")


def attempts(control_plane: ControlPlane) -> float:
    """How often kube-scheduler has tried to place any pod, by its own count."""
    return total(scheduler_metrics(control_plane), "scheduler_schedule_attempts_total")


def scheduler_metrics(control_plane: ControlPlane) -> str:
    context = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection("127.0.0.1", PORTS["kube-scheduler"], context=context, timeout=5)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        assert response.status == 200, "kube-scheduler does not show its metrics"
        return response.read().decode()
    finally:
        connection.close()

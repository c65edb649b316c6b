"""Runs components of a testbed for benches, and has kube-scheduler ask an extender."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cotenant.kube.extender.serving import CHOOSE, WITHOUT_GPU
from cotenant.kube.settings import Settings

if TYPE_CHECKING:  # in tests/, which is on the path of benches that start a testbed
    from cluster.testbed.component import Component
    from cluster.testbed.controlplane import ControlPlane


@contextmanager
def running(component: Component) -> Iterator[Component]:
    component.start()
    try:
        component.wait(120)
        yield component
    finally:
        component.stop()


def schedule_by(plane: ControlPlane, settings: Settings, port: int, filter_verb: str = CHOOSE) -> None:
    """Starts kube-scheduler anew, with the extender at this port of the machine. It ranks nodes for pods
    without GPU where the settings say so, as with the chart.
    """
    resources = sorted(settings.dialects.resources)
    extender = {
        "urlPrefix": f"http://127.0.0.1:{port}",
        "filterVerb": filter_verb,
        "prioritizeVerb": "prioritize",
        "bindVerb": "bind",
        "weight": 1000,
        "httpTimeout": "30s",
        "nodeCacheCapable": True,
        "managedResources": [{"name": name, "ignoredByScheduler": False} for name in resources],
    }
    extenders = [extender]
    if settings.extender.pods_without_gpu:
        both = {key: extender[key] for key in ("urlPrefix", "weight", "httpTimeout", "nodeCacheCapable")}
        extenders.append({**both, "prioritizeVerb": WITHOUT_GPU, "ignorable": True})
    plane.schedule_with(
        profiles=[{"schedulerName": "cotenant"}], percentageOfNodesToScore=100, extenders=extenders
    )

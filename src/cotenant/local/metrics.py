"""Exports this machine's metrics under the names that a node of a cluster has.

A job is shown as a container: `namespace` is its user, `pod` its name, `container` is `job`. All runs of one
program are a workload, or all replicas of a workload of `cotenant up`; those of one command line are a
version.
"""

from __future__ import annotations

import time
from dataclasses import replace

from cotenant.hardware import activity
from cotenant.local.machine import Machine
from cotenant.local.snapshot import snapshot
from cotenant.observe.text_format import text_of_families
from cotenant.observe.view import GrantView, NodeView, View
from cotenant.observe.view_metrics import of_containers, of_gpus, of_line

CONTAINER = "job"
_ASKED = "shim"
"""What a job is to be held by, unless its view says otherwise."""


def exposed(machine: Machine) -> bytes:
    """Reads the machine, and writes its metrics in Prometheus' text format."""
    view = as_a_node(snapshot(machine))
    healthy = (each.gpu.uuid for each in view.gpus if each.gpu.healthy)
    view = _with_utilization(view, activity.by_gpu(healthy))
    return text_of_families((*of_gpus(view), *of_containers(view, time.time()), *of_line(view)))


def as_a_node(view: View) -> View:
    """Names jobs as the containers of a node are named."""
    return replace(
        view,
        nodes=tuple(map(_named, view.nodes)),
        grants=tuple(
            replace(
                each,
                namespace=each.user,
                container=CONTAINER,
                enforcer_asked=each.enforcer_asked or _ASKED,
            )
            for each in view.grants
        ),
        line=tuple(replace(each, namespace=each.user) for each in view.line),
    )


def _named(node: NodeView) -> NodeView:
    return replace(node, gpus=tuple(replace(gpu, node=node.name) for gpu in node.gpus))


def _with_utilization(view: View, busy: dict[str, dict[int, int]]) -> View:
    def measured(grant: GrantView) -> GrantView:
        return replace(
            grant,
            shares=tuple(
                replace(share, utilization=min(100, sum(of.get(pid, 0) for pid in grant.processes)))
                if (of := busy.get(share.uuid)) is not None
                else share
                for share in grant.shares
            ),
        )

    return replace(view, grants=tuple(map(measured, view.grants)))

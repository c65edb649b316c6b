"""Parses what a person asks `explain` about: a pod or a workload, by kind and name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cotenant.core.errors import BadInput
from cotenant.kube.api import resources
from cotenant.kube.api.objects import Meta
from cotenant.kube.api.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
)

WORKLOADS = (DEPLOYMENTS, STATEFUL_SETS, JOBS, REPLICA_SETS, DAEMON_SETS, REPLICATION_CONTROLLERS)
"""In the order in which a bare name is looked for."""
_SHORT = {"deploy": "deployments", "sts": "statefulsets", "rs": "replicasets", "ds": "daemonsets"}
_SHORT |= {"rc": "replicationcontrollers", "po": "pods"}
PODS = resources.PODS.plural


@dataclass(frozen=True)
class Asked:
    """What `explain` was asked about."""

    kind: str | None
    """A plural; None if only a name was given, which is a pod's or else a workload's."""
    name: str


def parse_asked(text: str) -> Asked:
    """`NAME`, `pod/NAME`, `deployment/NAME`, `deploy/NAME` ..., with `.apps` or without."""
    kind, slash, name = text.rpartition("/")
    if not slash:
        kind, name = "", text
    if not name or "/" in kind or "%" in name or name in {".", ".."}:
        raise BadInput(f"POD: {text!a} is neither a pod's name nor KIND/NAME, such as deployment/web")
    if not kind:
        return Asked(None, name)
    word = kind.lower().partition(".")[0]
    plurals = {PODS, *(each.plural for each in WORKLOADS)}
    found = _SHORT.get(word) or next(
        (each for each in plurals if word in {each, each.removesuffix("s")}), None
    )
    if found is None:
        known = ", ".join(sorted(each.removesuffix("s") for each in plurals))
        raise BadInput(f"POD: {kind!a} is no kind that makes pods: there is {known}")
    return Asked(found, name)


def owned(owners: Iterable[str], metas: Iterable[Meta]) -> list[Meta]:
    """Returns those that one of these owners (UIDs) controls."""
    uids = set(owners)
    return [meta for meta in metas if any(each.uid in uids for each in meta.owner_references)]

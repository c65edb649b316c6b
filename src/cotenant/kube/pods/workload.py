"""Names the workload that a pod belongs to, and its version, from the pod alone.

A Deployment's pods are owned by a ReplicaSet, whose name is the Deployment's and the hash of the template,
which is also a label of the pod. So nothing else has to be read.
"""

from __future__ import annotations

from cotenant.kube.api.objects import Pod
from cotenant.kube.pods.fields import PodFields
from cotenant.observe.view import WorkloadView

_OF_REPLICA_SETS = {"pod-template-hash": "Deployment", "rollouts-pod-template-hash": "Rollout"}
"""The kind that owns ReplicaSets whose pods have this label."""
_VERSIONS = (*_OF_REPLICA_SETS, "controller-revision-hash")
"""Labels with the hash of the template: the last is that of StatefulSets and DaemonSets."""

WORKLOAD_FIELDS = PodFields(labels=frozenset(_VERSIONS), controllers=True)
"""What is needed of a pod."""


def workload_of(pod: Pod) -> WorkloadView:
    """Returns the pod itself if nothing owns it."""
    meta = pod.metadata
    version = next((meta.labels[name] for name in _VERSIONS if meta.labels.get(name)), "")
    owner = next((each for each in meta.owner_references if each.controller), None)
    if owner is None:
        return WorkloadView(meta.name, "Pod", version)
    if owner.kind == "ReplicaSet":
        for label, kind in _OF_REPLICA_SETS.items():
            suffix = f"-{meta.labels.get(label, '')}"
            if suffix != "-" and owner.name.endswith(suffix) and owner.name != suffix:
                return WorkloadView(owner.name.removesuffix(suffix), kind, version)
    return WorkloadView(owner.name, owner.kind, version)

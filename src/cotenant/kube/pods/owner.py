"""Names the workload that made a pod, by kind and name, and its version, as `cotenant recommend` does."""

from __future__ import annotations

from cotenant.advice.pod_names import PodWorkload, workload_of
from cotenant.kube.api.objects import Pod

_HASH = "pod-template-hash"
_REVISIONS = ("controller-revision-hash", "pod-template-generation")


def owner_of(pod: Pod) -> PodWorkload:
    """Returns the workload that made the pod, and the version of its template."""
    meta = pod.metadata
    owner = next((each for each in meta.owner_references if each.controller), None)
    if owner is None:
        guessed = workload_of(meta.name)
        return guessed if meta.owner_references else PodWorkload("pod", meta.name)
    version = meta.labels.get(_HASH, "")
    if owner.kind == "ReplicaSet" and version and owner.name.endswith(f"-{version}"):
        return PodWorkload("deployment", owner.name.removesuffix(f"-{version}"), version)
    revision = next((meta.labels[each] for each in _REVISIONS if each in meta.labels), "")
    return PodWorkload(owner.kind.lower(), owner.name, version or revision.removeprefix(f"{owner.name}-"))

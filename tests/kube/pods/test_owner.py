"""Whose a pod is, as advice names it."""

from __future__ import annotations

import pytest

from cotenant.advice.pod_names import PodWorkload
from cotenant.kube.api.objects import Meta, OwnerReference, Pod
from cotenant.kube.pods.owner import owner_of


def owned(name: str, kind: str, owner: str, **labels: str) -> Pod:
    references = (OwnerReference(kind=kind, name=owner, uid="u", controller=True),)
    spelled = {key.replace("_", "-"): value for key, value in labels.items()}
    return Pod(Meta(name=name, labels=spelled, owner_references=references))


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        (
            owned("web-7d9f8c6b5d-x7k2p", "ReplicaSet", "web-7d9f8c6b5d", pod_template_hash="7d9f8c6b5d"),
            PodWorkload("deployment", "web", "7d9f8c6b5d"),
        ),
        (owned("web-x7k2p", "ReplicaSet", "web"), PodWorkload("replicaset", "web")),
        (
            owned("llm-0", "StatefulSet", "llm", controller_revision_hash="llm-6c5d8"),
            PodWorkload("statefulset", "llm", "6c5d8"),
        ),
        (owned("a-b", "Notebook", "mine"), PodWorkload("notebook", "mine")),
        (Pod(Meta(name="web-7d9f8c6b5d-x7k2p")), PodWorkload("pod", "web-7d9f8c6b5d-x7k2p")),
    ],
)
def test_the_owner_of_a_pod_and_the_version_of_its_template(pod: Pod, workload: PodWorkload) -> None:
    assert owner_of(pod) == workload

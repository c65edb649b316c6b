"""Cotenant's own workloads: missing, matching no node, or without the pods that they want."""

import pytest
from kube.operating.well import WELL, found, kinds

REJECTED = (
    'Error creating: pods "cotenant-agent-" is forbidden: pod rejected: RuntimeClass "nvidia" not found'
)


def workload(kind, component, **status):
    meta = {
        "name": f"cotenant-{component}",
        "uid": f"uid-{component}",
        "generation": 1,
        "labels": {"app.kubernetes.io/component": component},
    }
    return {
        "kind": kind,
        "metadata": meta,
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 1, **status},
    }


AGENT = workload("DaemonSet", "agent", desiredNumberScheduled=3, currentNumberScheduled=3)
SERVER = workload("Deployment", "server", replicas=2)


def test_workloads_that_have_their_pods_are_well():
    assert kinds(workloads=(AGENT, SERVER)) == []


def test_a_missing_runtime_class_is_named_as_the_cause_when_no_agent_pod_exists():
    none = workload("DaemonSet", "agent", desiredNumberScheduled=3, currentNumberScheduled=0)
    own = tuple(each for each in WELL.own if "agent" not in each.metadata.name)
    (finding,) = found(
        nodes=(), pods=WELL.pods[2:], own=own, workloads=(none, SERVER), not_created={"uid-agent": REJECTED}
    )
    assert (finding.kind, finding.severity) == ("pods-missing", "error")
    assert finding.found == f"the daemonset cotenant-system/cotenant-agent wants 3 pods and has 0: {REJECTED}"
    assert finding.do.startswith("create the RuntimeClass nvidia")


def test_a_deployment_tells_why_it_has_no_pods_in_a_condition():
    failed = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: compute"}
    (finding,) = found(workloads=(AGENT, workload("Deployment", "server", replicas=0, conditions=[failed])))
    assert finding.found.endswith("wants 2 pods and has 0: exceeded quota: compute")
    assert finding.do == "find out why: kubectl describe deployment -n cotenant-system cotenant-server"


@pytest.mark.parametrize(("left", "target"), [((SERVER,), "agent"), ((AGENT,), "server")])
def test_a_workload_that_does_not_exist(left, target):
    own = tuple(each for each in WELL.own if target not in each.metadata.name)
    (finding,) = (each for each in found(workloads=left, own=own) if each.kind == "not-installed")
    assert finding.target.endswith(f"/cotenant-{target}")
    assert "not-installed" not in kinds(workloads=left), "its pods are there"


def test_an_agent_that_matches_no_node():
    nowhere = workload("DaemonSet", "agent", desiredNumberScheduled=0, currentNumberScheduled=0)
    assert kinds(workloads=(nowhere, SERVER)) == ["no-nodes"]


def test_what_may_not_be_read_is_not_missing():
    assert kinds(workloads=None) == []

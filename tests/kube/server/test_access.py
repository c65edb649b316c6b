"""What the server may do in a cluster is what its client does, and no more."""

from pathlib import Path

import yaml

MANIFESTS = Path(__file__).parents[3] / "deploy" / "cotenant.yaml"


def rules():
    for each in yaml.safe_load_all(MANIFESTS.read_text()):
        if each and each["kind"] in {"Role", "ClusterRole"} and each["metadata"]["name"] == "cotenant-server":
            yield from each["rules"]


def test_the_server_replaces_no_object_as_a_whole():
    """The client has no such verb: it patches, guarded by what it read."""
    granted = list(rules())
    assert len(granted) > 10
    assert [rule for rule in granted if {"update", "deletecollection", "*"} & set(rule["verbs"])] == []


def test_what_the_server_may_change_or_delete_beside_pods_is_named():
    open_to = {
        resource
        for rule in rules()
        if {"patch", "delete"} & set(rule["verbs"]) and not rule.get("resourceNames")
        for resource in rule["resources"]
    }
    workloads = {"deployments", "statefulsets", "replicasets", "replicationcontrollers"}
    scales = {f"{each}/scale" for each in workloads}
    assert open_to == {"pods", "events", "gpuscalers/status"} | workloads | scales

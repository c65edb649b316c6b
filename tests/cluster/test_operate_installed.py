"""The commands on a cluster as people install it: servers, agent and scheduler are pods, and a kubelet is real."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cluster import installed
from cluster.cotenant.commands import Commands
from cluster.cotenant.manifests import container, pod, pods_of, running
from cluster.testbed.api import Object
from cluster.testbed.cluster import Cluster

from cotenant.hardware import slots

SLOTS = Path("/run/cotenant/slots")
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@pytest.fixture(scope="module", autouse=True)
def _installed(cluster: Cluster) -> Iterator[None]:
    installed.prepare(cluster)
    with installed.service_proxy(cluster), installed.by_helm(cluster):
        yield


def states(cluster: Cluster, component: str, port: int) -> list[str]:
    """Where its pods tell what they know, through the API server."""
    pods = pods_of(installed.NAMESPACE)
    found = cluster.api.items(pods, labelSelector=f"app.kubernetes.io/component={component}")
    return [f"{pods}/https:{each['metadata']['name']}:{port}/proxy/state" for each in found]


@pytest.mark.timeout(400)
def test_all_is_well_and_a_limit_that_was_changed_on_the_node_is_found(
    cluster: Cluster, namespace: str, tmp_path: Path
):
    commands = Commands(cluster.control_plane)
    body = pod("tenant", container(image=installed.IMAGE, program="tenant.py", memory="2Gi"))
    cluster.api.create(pods_of(namespace), body)
    running(cluster.api, namespace, "tenant", 180)

    ledgers = [cluster.api.get(path) for path in states(cluster, "server", 8443)]
    (leader,) = [each for each in ledgers if each["leads"]]
    uid = cluster.api.get(f"{pods_of(namespace)}/tenant")["metadata"]["uid"]
    assert set(leader["charged"]) == {uid}
    (node,) = [cluster.api.get(path) for path in states(cluster, "agent", 8889)]
    assert [each["uid"] for each in node["slots"]] == [uid]
    assert [f"{namespace}/tenant/main"] in node["kubelet"].values()

    done = commands.as_plugin(tmp_path, "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    table = commands.says("status", cluster.node.name)
    assert "2/160" in table
    (said,) = commands.json("explain", "tenant", "-n", namespace)
    assert (said["state"], said["enforcer"], said["mode"]) == ("running", "shim", "enforce")
    assert said["modeFrom"] == "the agent's default"

    (share,) = said["grant"][0]["gpus"]
    (slot,) = [each for each in SLOTS.iterdir() if (each / "owner.json").exists()]
    slots.set_limits(slot / "folder", {share["uuid"]: 3 * 2**30})
    found = json.loads(commands.run("doctor", "--cluster", "-o", "json").stdout)["findings"]
    assert [each["kind"] for each in found] == ["limit-differs"]
    assert "was granted 2Gi" in found[0]["found"]
    assert "its limit is 3Gi" in found[0]["found"]
    slots.set_limits(slot / "folder", {share["uuid"]: 2 * 2**30})
    assert commands.run("doctor", "--cluster").returncode == 0


@pytest.mark.timeout(400)
def test_faults_put_into_the_installation_are_mended_and_pods_are_placed_again(
    cluster: Cluster, namespace: str
):
    api, commands = cluster.api, Commands(cluster.control_plane)
    own = f"/api/v1/namespaces/{installed.NAMESPACE}"
    place = f"{own}/configmaps/cotenant-scheduler"
    text = api.get(place)["data"]["scheduler.yaml"]
    assert "percentageOfNodesToScore: 100" in text
    sampling = text.replace("percentageOfNodesToScore: 100", "percentageOfNodesToScore: 30")
    api.patch(place, {"data": {"scheduler.yaml": sampling.replace("bindVerb: bind", "bindVerb: ''")}})
    way = f"/apis/discovery.k8s.io/v1/namespaces/{installed.NAMESPACE}/endpointslices/cotenant-extender"
    api.patch(way, {"endpoints": [{"addresses": ["10.200.0.99"], "conditions": {"ready": True}}]})
    api.delete(f"{BINDINGS}/cotenant-server")
    policy = api.get(f"{POLICIES}/cotenant-grants")
    api.patch(f"{POLICIES}/cotenant-grants", {"spec": {"validations": [{"expression": "true"}]}})

    def examine(*words: str) -> dict[str, Object]:
        done = commands.run("doctor", "--cluster", "-o", "json", *words)
        return {each["kind"]: each for each in json.loads(done.stdout)["findings"]}

    before = {each["metadata"]["uid"] for each in api.items(f"{own}/pods")}
    mended = examine("--fix")
    assert set(mended) | {"wrong-endpoint"} == {  # unless the leader was faster, which writes it again too
        "scheduler-samples",
        "scheduler-extender",
        "wrong-endpoint",
        "policy",
        "policy-altered",
    }
    assert {kind for kind, each in mended.items() if not each["fixed"]} == {"policy-altered"}
    installed.until_ready(api)
    after = {each["metadata"]["uid"]: each["metadata"]["name"] for each in api.items(f"{own}/pods")}
    assert {after[uid].rsplit("-", 2)[0] for uid in after.keys() - before} == {"cotenant-scheduler"}
    told = yaml.safe_load(api.get(place)["data"]["scheduler.yaml"])
    assert told == yaml.safe_load(text), "nothing else was changed"
    api.patch(f"{POLICIES}/cotenant-grants", {"spec": policy["spec"]})
    assert examine() == {}
    api.create(
        pods_of(namespace), pod("later", container(image=installed.IMAGE, program="tenant.py", memory="2Gi"))
    )
    running(api, namespace, "later", 180)


@pytest.mark.timeout(400)
def test_an_agent_whose_runtime_class_does_not_exist_is_found_with_its_cause(cluster: Cluster):
    api, commands = cluster.api, Commands(cluster.control_plane)
    path = f"/apis/apps/v1/namespaces/{installed.NAMESPACE}/daemonsets/cotenant-agent"
    template = {"spec": {"template": {"spec": {"runtimeClassName": "absent"}}}}
    api.patch(path, template)
    try:
        api.until(path, lambda seen: not seen["status"]["currentNumberScheduled"], 120)
        done = commands.run("doctor", "--cluster", "-o", "json")
        found = {each["kind"]: each for each in json.loads(done.stdout)["findings"]}
        assert done.returncode == 1
        assert 'RuntimeClass "absent" not found' in found["pods-missing"]["found"]
        assert found["pods-missing"]["do"].startswith("create the RuntimeClass absent")
    finally:
        template["spec"]["template"]["spec"]["runtimeClassName"] = None
        api.patch(path, template)
        installed.until_ready(api)

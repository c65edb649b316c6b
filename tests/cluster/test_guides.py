"""Manifests from other systems' user guides run as they are printed there, but for the image."""

import json

import pytest
from cluster.cotenant.images import player
from cluster.cotenant.installation import Installation
from cluster.cotenant.manifests import from_guide, pods_of, running
from cluster.testbed.api import Object
from cluster.testbed.cluster import Cluster

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cotenant(start_cotenant, cluster: Cluster) -> Installation:
    """Aliyun's guide counts in MiB, which its device plugin is told by an option."""
    installation: Installation = start_cotenant(servers=1, settings={"dialects": {"aliyun": {"unit": "MiB"}}})
    return installation


def environment(cluster: Cluster, namespace: str, pod: str) -> dict[str, str]:
    said = cluster.kubectl("exec", "-n", namespace, pod, "--", "env")
    return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)


def cards(pod: Object) -> set[str]:
    grant = json.loads(pod["metadata"]["annotations"]["cotenant.dev/grant"])
    return {share["uuid"] for slot in grant["slots"] for share in slot["shares"]}


def test_the_two_pods_of_volcanos_guide_share_a_card(
    cotenant: Installation, cluster: Cluster, namespace: str
):
    cotenant.use_agent(cluster.node.name, "2x11178MiB")
    for each in from_guide("volcano-gpu-sharing.yaml", player(cluster)):
        cluster.api.create(pods_of(namespace), each)
    pods = [running(cluster.api, namespace, name) for name in ("gpu-pod1", "gpu-pod2")]
    assert len(cards(pods[0]) | cards(pods[1])) == 1
    for pod in pods:
        annotations = pod["metadata"]["annotations"]
        assert annotations["volcano.sh/gpu-index"] == "0"
        assert len(annotations["volcano.sh/predicate-time"]) == len("1593764466550835304")
        found = environment(cluster, namespace, pod["metadata"]["name"])
        assert found["NVIDIA_VISIBLE_DEVICES"] == "0"
        assert found["VOLCANO_GPU_ALLOCATED"] == "1024"
        assert found["VOLCANO_GPU_MEMORY_TOTAL"] == "11178"
    allocatable = cluster.node.status()["allocatable"]
    assert allocatable["volcano.sh/gpu-memory"] == str(2 * 11178)
    assert allocatable["volcano.sh/gpu-number"] == "2"


def test_the_deployment_of_aliyuns_guide_gets_half_a_card(
    cotenant: Installation, cluster: Cluster, namespace: str
):
    cotenant.use_agent(cluster.node.name, "3x7606MiB")
    (deployment,) = from_guide("aliyun-gpushare.yaml", player(cluster))
    cluster.api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment)
    listed = cluster.api.until(pods_of(namespace), lambda seen: bool(seen["items"]))
    pod = running(cluster.api, namespace, listed["items"][0]["metadata"]["name"])
    found = environment(cluster, namespace, pod["metadata"]["name"])
    assert found["ALIYUN_COM_GPU_MEM_DEV"] == "7606"
    assert found["ALIYUN_COM_GPU_MEM_CONTAINER"] == "3803"
    assert found["ALIYUN_COM_GPU_MEM_POD"] == "3803"
    index = found["ALIYUN_COM_GPU_MEM_IDX"]
    assert found["NVIDIA_VISIBLE_DEVICES"] == index
    annotations = pod["metadata"]["annotations"]
    assert annotations["ALIYUN_COM_GPU_MEM_IDX"] == index
    assert annotations["ALIYUN_COM_GPU_MEM_DEV"] == "7606"
    assert annotations["ALIYUN_COM_GPU_MEM_POD"] == "3803"
    assert annotations["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
    assert json.loads(annotations["scheduler.framework.gpushare.allocation"]) == {"0": {index: 3803}}
    allocatable = cluster.node.status()["allocatable"]
    assert allocatable["aliyun.com/gpu-mem"] == str(3 * 7606)
    assert allocatable["aliyun.com/gpu-count"] == "3"
    shown = next(each for each in cotenant.inspect()["nodes"] if each["name"] == cluster.node.name)
    assert (shown["usedGPU"], shown["totalGPU"]) == (3803, 3 * 7606)


def test_all_three_dialects_share_a_card(cotenant: Installation, cluster: Cluster, namespace: str):
    cotenant.use_agent(cluster.node.name, "1x7606MiB")
    image = player(cluster)
    for each in from_guide("volcano-gpu-sharing.yaml", image):
        cluster.api.create(pods_of(namespace), each)
    (deployment,) = from_guide("aliyun-gpushare.yaml", image)
    cluster.api.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment)
    native = {
        "metadata": {"name": "native"},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "resources": {"limits": {"cotenant.dev/gpu-memory": "1755Mi"}},
                }
            ]
        },
    }
    cluster.api.create(pods_of(namespace), native)
    cluster.api.until(
        pods_of(namespace),
        lambda seen: (
            len(seen["items"]) == 4 and all(each["status"]["phase"] == "Running" for each in seen["items"])
        ),
        seconds=90,
    )
    pods = cluster.api.items(pods_of(namespace))
    assert len(set.union(*(cards(each) for each in pods))) == 1
    late = {**native, "metadata": {"name": "late"}}
    late["spec"]["containers"][0]["resources"] = {"limits": {"cotenant.dev/gpu-memory": "1Mi"}}
    cluster.api.create(pods_of(namespace), late)
    cluster.api.until(
        f"{pods_of(namespace)}/late",
        lambda seen: (
            "no room" in json.dumps(seen["status"]).lower()
            or "insufficient" in json.dumps(seen["status"]).lower()
        ),
    )

"""Device plugins of others on the GPUs that Cotenant grants."""

import msgspec
import pytest
from kube.operating.clusters import GI, node, pod
from kube.operating.well import WELL, found, image, kinds, with_pod

from cotenant.kube.api.objects import OwnerReference


@pytest.mark.parametrize(
    "image_",
    [
        "registry.cn-hangzhou.aliyuncs.com/acs/k8s-gpushare-plugin:v2",
        "volcanosh/volcano-device-plugin:v1",
        "nvcr.io/nvidia/k8s-device-plugin:v0.17",
    ],
)
def test_a_second_device_plugin_on_the_same_gpus(image_):
    assert kinds(images=(image("plugin", image_),)) == ["second-plugin"]
    assert kinds(images=(image("plugin", image_, on="elsewhere"),)) == []


@pytest.mark.parametrize(
    "image_",
    [
        "mirror.example/cache/k8s-device-plugin:v0.17",
        "gcr.example/nvidia-gpu-device-plugin@sha256:abc",
        "nvcr.io/nvidia/k8s-dra-driver-gpu:v25",
        "acs/gpushare-device-plugin",
        "projecthami/hami:v2.5",
        "mirror.example/hami:v2.5",
        "volcanosh/volcano-vgpu-device-plugin:v1",
    ],
)
def test_it_is_known_by_its_image_wherever_that_was_copied_to(image_):
    assert kinds(images=(image("plugin", image_),)) == ["second-plugin"]


@pytest.mark.parametrize("image_", ["rocm/k8s-device-plugin", "hamilton:1", "team/hamish:2", "app"])
def test_other_images_are_no_plugins(image_):
    assert kinds(images=(image("other", image_),)) == []


def test_one_that_has_ended_serves_nothing():
    ended = pod("plugin", on="n1", namespace="kube-system", phase="Failed")
    assert kinds(images=(image("plugin", "nvidia/k8s-device-plugin"),), **with_pod(ended)) == []


@pytest.mark.parametrize(
    "resource",
    ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "volcano.sh/vgpu-number"],
)
def test_it_is_known_by_what_the_node_shows(resource):
    shows = node("n1", [80 * GI] * 2, agent="1.0", capacity={resource: "2"})
    assert kinds(nodes=(shows,)) == ["second-plugin"]
    left = node("n1", [80 * GI] * 2, agent="1.0", capacity={resource: "0"})
    assert kinds(nodes=(left,)) == [], "the kubelet remembers a plugin that is gone"


def test_what_our_own_agent_shows_in_other_spellings_is_ours():
    assert any("aliyun" in name for name in WELL.nodes[0].status.capacity)
    assert kinds() == []


def test_what_makes_it_is_named():
    plugin = image("plugin-x7", "nvidia/k8s-device-plugin")
    owner = {"kind": "DaemonSet", "name": "plugin", "controller": True}
    meta = msgspec.structs.replace(plugin.metadata, owner_references=(OwnerReference(**owner),))
    (finding,) = found(images=(msgspec.structs.replace(plugin, metadata=meta),))
    assert finding.do.endswith("kubectl edit daemonset -n kube-system plugin")

"""Pods that see GPUs which they were not granted."""

import msgspec
import pytest
from kube.operating.clusters import uid_of
from kube.operating.well import WELL, found, image, kinds

from cotenant.dialects import names
from cotenant.kube.admission.settings import AdmissionSettings
from cotenant.kube.operating.doctor.facts import ImagePod
from cotenant.kube.operating.installed import Installed
from cotenant.kube.settings import Settings


def seeing(**spec) -> ImagePod:
    meta = {"name": "peeks", "namespace": "kube-system", "uid": uid_of("kube-system/peeks")}
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": "n1", **spec}}, ImagePod)


ALL = {"env": [{"name": names.VISIBLE_DEVICES, "value": "all"}]}


def test_a_pod_that_sees_gpus_without_a_grant():
    assert kinds(images=(image("peeks", NVIDIA_VISIBLE_DEVICES="all"),)) == ["sees-cards"]
    assert kinds(images=(image("blind", NVIDIA_VISIBLE_DEVICES="void"),)) == []


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [ALL]},
        {"initContainers": [ALL]},
        {"ephemeralContainers": [ALL]},
        {"containers": [{"env": [{"name": names.VISIBLE_DEVICES, "value": "0"}]}]},
        {"containers": [{"env": [{"name": names.VISIBLE_DEVICES, "value": " all "}]}]},
        {"volumes": [{"hostPath": {"path": "/dev/nvidia0"}}]},
    ],
)
def test_any_container_of_a_pod_and_the_devices_themselves(spec):
    assert kinds(images=(seeing(**spec),)) == ["sees-cards"]


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"env": [{"name": names.VISIBLE_DEVICES, "value": "void"}]}]},
        {"containers": [{"env": [{"name": names.VISIBLE_DEVICES}]}]},
        {"volumes": [{"hostPath": {"path": "/dev/shm"}}, {"emptyDir": {}}]},
        {"runtimeClassName": "nvidia"},
    ],
)
def test_pods_that_see_none(spec):
    assert kinds(images=(seeing(**spec),)) == []


def test_a_runtime_class_that_shows_gpus():
    settings = Settings(admission=AdmissionSettings(runtime_class="nvidia"))
    installed = Installed("cotenant-system", settings, WELL.installed.webhook, settings_known=True)
    assert kinds(images=(seeing(runtimeClassName="nvidia"),), installed=installed) == ["sees-cards"]
    assert kinds(images=(seeing(runtimeClassName="gvisor"),), installed=installed) == []


def test_a_pod_that_was_granted_a_gpu_and_names_them_all():
    meta = {"name": "a", "namespace": "team", "uid": uid_of("team/a")}
    body = {"metadata": meta, "spec": {"nodeName": "n1", "containers": [ALL]}}
    (finding,) = found(images=(msgspec.convert(body, ImagePod),))
    assert "team/a was granted its GPUs and sets NVIDIA_VISIBLE_DEVICES=all" in finding.found


def test_what_is_said_cannot_move_the_terminals_cursor():
    wild = {"env": [{"name": names.VISIBLE_DEVICES, "value": "\x1b[2Jall"}]}
    (finding,) = found(images=(seeing(containers=[wild]),))
    assert "\x1b" not in finding.found

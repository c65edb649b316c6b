"""Finds pods that see GPUs which they were not granted: by a variable, a runtime class, or device files."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.core.finding import WARNING, Finding, Kind
from cotenant.dialects import names
from cotenant.kube.operating.doctor.facts import Facts, ImagePod
from cotenant.kube.operating.doctor.subject import ClusterSubject
from cotenant.kube.pods.demand import readable_grant

_SEES_NONE = {"", "void", "none"}
_DEVICES = "/dev/nvidia"

SEES_CARDS = Kind(
    "sees-cards",
    WARNING,
    "where NVIDIA's runtime shows GPUs because of that, the pod sees GPUs of others and can fill them",
)


def sees_cards(facts: Facts) -> Iterator[Finding]:
    ours = {seen.name for seen in facts.view.nodes if seen.gpus}
    granted = {pod.metadata.uid for pod in facts.pods if readable_grant(pod) is not None}
    own = {pod.metadata.uid for pod in facts.own}
    for pod in facts.images:
        uid = pod.metadata.uid
        if pod.spec.node_name not in ours or uid in own or uid in facts.ended:
            continue
        ways = [*_by_variable(pod), *_by_device(pod)]
        if uid not in granted:
            ways += _by_runtime(pod, facts.installed.settings.admission.runtime_class)
        if ways:
            yield _finding(pod, ways, granted=uid in granted)


def _by_variable(pod: ImagePod) -> Iterator[str]:
    """In a pod with a grant the variable refers to what was granted, and has no value of its own."""
    for container in pod.spec.all_containers:
        for variable in container.env:
            if variable.name == names.VISIBLE_DEVICES and variable.value.strip() not in _SEES_NONE:
                yield f"sets {variable.name}={ascii(variable.value)[1:-1]}"


def _by_device(pod: ImagePod) -> Iterator[str]:
    for volume in pod.spec.volumes:
        if volume.host_path is not None and volume.host_path.path.startswith(_DEVICES):
            yield f"mounts {ascii(volume.host_path.path)[1:-1]}"


def _by_runtime(pod: ImagePod, shows: str) -> Iterator[str]:
    """Unless the pod sets the variable itself: its image may."""
    blind = any(each.name == names.VISIBLE_DEVICES for one in pod.spec.containers for each in one.env)
    if shows and pod.spec.runtime_class_name == shows and not blind:
        yield f"runs in the RuntimeClass {shows}, which shows GPUs"


def _finding(pod: ImagePod, ways: list[str], *, granted: bool) -> Finding:
    namespace, name = pod.metadata.namespace, pod.metadata.name
    asked = "was granted its GPUs" if granted else "asked for no GPU"
    return SEES_CARDS.at(
        f"pod {namespace}/{name}",
        f"{namespace}/{name} {asked} and {', '.join(dict.fromkeys(ways))}",
        "remove that from what creates the pod, or make another runtime the default (docs/security.md): "
        f"kubectl get pod -n {namespace} {name} -o yaml",
    )


SUBJECT = ClusterSubject(checks=(sees_cards,))

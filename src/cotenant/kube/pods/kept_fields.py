"""What the server keeps of every pod: that on which it decides, and nothing that grows as its author likes.

A pod may bring 256 KiB of annotations, tens of thousands of them, and as many labels and variables: in memory
that is thirty times as much. A hundred such pods would end a server whose memory is limited.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from cotenant.dialects import names
from cotenant.dialects.registry import Dialects
from cotenant.kube.api.objects import Container, Pod
from cotenant.kube.pods.demand import MIRROR

_OF_PODS = (*names.SERVER_ONLY, names.GPU_MODEL, names.GPU_UUID, names.PLACEMENT, names.ENFORCE, MIRROR)
_OF_CONTAINERS = (names.gpu_count, names.devices, names.compute, names.card_memory)


def kept_of(dialects: Dialects) -> Callable[[Pod], Pod]:
    """Annotations are looked up by name, so many others cost no time either."""
    of_pods = (*_OF_PODS, *(each for dialect in dialects.on for each in dialect.pod_annotations))

    def kept(pod: Pod) -> Pod:
        meta, spec = pod.metadata, pod.spec
        containers = (*(spec.containers or ()), *spec.init_containers)
        annotations = meta.annotations
        if annotations:
            own = (name(each.name) for each in containers for name in _OF_CONTAINERS)
            annotations = {key: annotations[key] for key in (*of_pods, *own) if key in annotations}
        return Pod(
            replace(meta, annotations=annotations, labels={}, finalizers=()),
            replace(
                spec,
                containers=None if spec.containers is None else _without_env(spec.containers),
                init_containers=_without_env(spec.init_containers),
            ),
            pod.status,
        )

    return kept


def _without_env(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    return tuple(replace(each, env=()) if each.env else each for each in containers)

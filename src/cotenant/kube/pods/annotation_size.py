"""Measures a pod's annotations against the size that Kubernetes allows.

A Binding may push them beyond it: Kubernetes does not check that. From then on it refuses every update of the
pod, its status too, so the pod can never end and stays charged. So what a Binding adds is counted before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cotenant.core.units import format_bytes
from cotenant.kube.api.objects import Pod

LIMIT = 256 * 2**10
"""Bytes of all names and values of an object's annotations."""
RESERVE = 16 * 2**10
"""Bytes that a Binding leaves: networks and controllers annotate a pod after it is bound."""
RESERVE_AT_ADMISSION = 32 * 2**10
"""Bytes that admission leaves: more than at bind, since a pod may be annotated while it waits."""


def size_of(annotations: Mapping[str, str]) -> int:
    """Returns the bytes that Kubernetes counts."""
    return sum_bytes(annotations) + sum_bytes(annotations.values())


def sum_bytes(texts: Iterable[str]) -> int:
    return sum(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")) for text in texts)


def size_with(pod: Pod, added: Mapping[str, str]) -> int:
    """Returns the size of the pod's annotations after these are added or replaced."""
    meta = pod.metadata
    return meta.left_out + size_of({**meta.annotations, **added})


def overflow(size: int, reserve: int) -> str:
    """Says by how much annotations of this size are too large; empty if they are not."""
    room = LIMIT - reserve
    if size <= room:
        return ""
    return f"{format_bytes(size)} of annotations are more than the {format_bytes(room)} that can be filled"

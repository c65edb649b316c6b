"""Declares which open-ended fields of nodes are kept in memory: annotations and labels."""

from __future__ import annotations

from dataclasses import dataclass
from sys import intern

from msgspec.structs import replace

from cotenant.dialects import names
from cotenant.kube.api.objects import Node


@dataclass(frozen=True)
class NodeFields:
    """What a part needs of every node, besides what is bounded by the API: that is always kept."""

    annotations: frozenset[str] = frozenset()
    labels: frozenset[str] = frozenset()
    gpu_node_labels: bool = False
    """Whether all labels of nodes with GPUs are needed: any of them may be selected by a pod."""

    def __or__(self, other: NodeFields, /) -> NodeFields:
        return NodeFields(
            self.annotations | other.annotations,
            self.labels | other.labels,
            self.gpu_node_labels or other.gpu_node_labels,
        )

    def keep(self, node: Node, /) -> Node:
        meta = node.metadata
        annotations = {key: meta.annotations[key] for key in self.annotations if key in meta.annotations}
        if self.gpu_node_labels and names.GPUS in meta.annotations:
            labels = {intern(key): intern(value) for key, value in meta.labels.items()}
        else:
            labels = {key: meta.labels[key] for key in self.labels if key in meta.labels}
        return Node(
            replace(meta, annotations=annotations, labels=labels, finalizers=()), node.spec, node.status
        )


GPU_FIELDS = NodeFields(frozenset((names.GPUS, names.DRAINED, names.DEFRAG)))
"""What a node's GPUs are read from."""

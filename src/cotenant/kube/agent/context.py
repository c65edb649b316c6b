"""Gives the parts of an agent what they work with on their node."""

from __future__ import annotations

from dataclasses import dataclass, field

from cotenant.kube.agent.cards.driver import NodeCards
from cotenant.kube.api.client import Selection
from cotenant.kube.api.informers import Need
from cotenant.kube.api.objects import Node, Pod
from cotenant.kube.api.resources import NODES, PODS
from cotenant.kube.parts.part import Context
from cotenant.kube.pods.fields import PodFields, gpu_fields
from cotenant.kube.settings import Settings


@dataclass(kw_only=True)
class NodeContext(Context):
    """A context with the node and its GPUs."""

    node: str
    cards: NodeCards
    version: str = field(default="")


def own_node(settings: Settings) -> Need[Node]:
    """Declares that a part watches the node that the agent runs on."""
    return Need(NODES, selection=Selection(fields=f"metadata.name={settings.agent.node}"))


def own_pods(settings: Settings, more: PodFields | None = None) -> Need[Pod]:
    """Declares that a part watches the pods that are bound to the node. Any author of pods may name it in
    one: of each, only what bears on GPUs is kept, its requests, and what `more` says.
    """
    only_here = Selection(fields=f"spec.nodeName={settings.agent.node}")
    kept = gpu_fields(settings.dialects)
    return Need(PODS, kept if more is None else kept | more, only_here)

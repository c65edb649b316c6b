"""Lists the parts of an agent, in the order in which they are made.

A part may use what earlier ones share. A new one is a folder with its `part.py`, and its line here.
"""

from __future__ import annotations

from cotenant.kube.agent.cards.part import Cards
from cotenant.kube.agent.certificate import ServingCertificate
from cotenant.kube.agent.classic.part import KubeletPlugin
from cotenant.kube.agent.containers.part import Containers
from cotenant.kube.agent.idle.part import IdlePods
from cotenant.kube.agent.limits.part import Limits
from cotenant.kube.agent.mps.part import Mps
from cotenant.kube.agent.published_node import PublishedNode
from cotenant.kube.agent.slots.part import Slots
from cotenant.kube.parts.part import Part

PARTS: tuple[type[Part], ...] = (
    ServingCertificate,
    Cards,
    Mps,
    PublishedNode,
    KubeletPlugin,
    Slots,
    Limits,
    IdlePods,
    Containers,
)

"""Checks a pod that comes to admission with slots: its native figures must cover what it asks in a dialect.

Quotas count the native figures beside a slot; kube-scheduler counts the dialect's resources as well. An
author who writes the slot himself could take all of a node in the one and be charged next to nothing in the
other. Only admission asks this: a pod that is there stays readable when a dialect's unit is changed.
"""

from __future__ import annotations

from cotenant.core.demand import Demand
from cotenant.core.errors import BadInput
from cotenant.dialects import names
from cotenant.dialects.dialect import ContainerDemand
from cotenant.dialects.registry import Dialects
from cotenant.dialects.wishes import Wishes
from cotenant.kube.pods.slots import PodDemand


def check_slot_claims(demand: PodDemand, wishes: Wishes, dialects: Dialects) -> None:
    """Raises BadInput if a container with a slot asks for more in its dialect than its native figures say.

    It may ask for less: the container that holds a slot has the largest demand of all that use it.
    """
    for slot in demand.slots:
        for member in slot.members:
            if member.admitted and member.dialect != dialects.native.name:
                _check(member, wishes, dialects)


def _check(member: ContainerDemand, wishes: Wishes, dialects: Dialects) -> None:
    own = dialects.by_name[member.dialect].read(member.container, member.asked, wishes)
    if own is None or _covers(member.demand, own):
        return
    asked = ", ".join(f"{name}: {amount}" for name, amount in sorted(member.asked.items()))
    native = ", ".join(
        f"{name}: {amount}" for name, amount in sorted(dialects.native.write(member.demand).items())
    )
    raise BadInput(
        f"container {member.container!r}: {asked} is more than {native} beside {names.GPU_SLOT}: these are "
        f"added for you: leave out all of {names.DOMAIN}/"
    )


def _covers(native: Demand, own: Demand) -> bool:
    if native.memory is None or own.memory is None:
        return native.memory is own.memory and own.whole <= native.whole
    return (own.memory.bytes or 0) <= (native.memory.bytes or 0)

"""Gathers the view of a node for /state and /metrics: its GPUs from the last survey, and its slots.

A GPU's shares are those of the pods' grants in the API. The view's grants are the slots on the node, one for
each container.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from cotenant.hardware.nvml import CardReading
from cotenant.hardware.slots import SlotUnusable
from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.agent.grants import container_ids
from cotenant.kube.agent.slots.node_slots import NodeSlot
from cotenant.kube.api.objects import Pod
from cotenant.kube.pods.demand import readable_grant
from cotenant.kube.pods.shares import shares_of
from cotenant.observe.view import GpuView, GrantView, NodeView, ShareView, View


def snapshot(
    node: str,
    sight: Sight | None,
    pods: Sequence[Pod],
    slots: Iterable[NodeSlot],
    now: float,
    unlimited: Mapping[str, frozenset[int]] = MappingProxyType({}),
) -> View:
    """`sight`: None before the first survey. `now`: seconds of CLOCK_MONOTONIC. `unlimited`: processes that
    are not held to their limit, by slot.
    """
    granted = [
        share for pod in pods if (grant := readable_grant(pod)) is not None for share in shares_of(pod, grant)
    ]
    gpus = tuple(_gpu(card, node, sight, granted) for card in sight.cards) if sight is not None else ()
    ids = container_ids(pods)
    found = (_grant(slot, sight, ids, now, unlimited.get(slot.key, frozenset())) for slot in slots)
    return View((NodeView(node, gpus),), tuple(each for each in found if each is not None))


def _gpu(card: CardReading, node: str, sight: Sight, granted: Iterable[ShareView]) -> GpuView:
    uuid = card.gpu.uuid
    return GpuView(
        card.gpu,
        node,
        problem=card.problem,
        outside=sight.outside.get(uuid, 0),
        shares=tuple(share for share in granted if share.uuid == uuid),
        used=card.used,
        utilization=card.utilization,
    )


def _grant(
    slot: NodeSlot,
    sight: Sight | None,
    ids: Mapping[tuple[str, str], str],
    now: float,
    unlimited: frozenset[int],
) -> GrantView | None:
    """Returns None for a slot that was removed meanwhile."""
    owner, by_uuid = slot.owner, {share.uuid: share for share in slot.shares}
    id = ids.get((owner.uid, owner.container), "")
    with suppress(SlotUnusable):
        usage = slot.usage()
        shares = []
        for at, limit in enumerate(slot.limits.cards):
            share = by_uuid.get(limit.uuid)
            shares.append(
                ShareView(
                    owner.uid,
                    owner.name,
                    limit.uuid,
                    limit.bytes,
                    share.compute if share else None,
                    share is not None and share.whole,
                    owner.namespace,
                    used=usage.used(at),
                    peak=usage.peak[at],
                    utilization=_busy(sight, owner.uid, id, limit.uuid),
                )
            )
        return GrantView(
            owner.uid,
            owner.name,
            tuple(shares),
            owner.namespace,
            container=owner.container,
            slot=slot.key,
            mode=slot.limits.mode,
            denied=usage.denied,
            over=usage.over,
            idle_seconds=max(0.0, now - usage.last_active / 1e9) if usage.last_active else None,
            processes=tuple(process.pid for process in usage.processes),
            in_use=slot.is_held(),
            unlimited=tuple(sorted(unlimited)),
        )
    return None


def _busy(sight: Sight | None, uid: str, id: str, uuid: str) -> int | None:
    """Percent of the GPU's time that the container uses; None where it is not known."""
    by_owner = sight.busy.get(uuid) if sight is not None else None
    if by_owner is None or not id:
        return None
    return min(
        100,
        sum(percent for owner, percent in by_owner.items() if owner.uid == uid and owner.is_container(id)),
    )

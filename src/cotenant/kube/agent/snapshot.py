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
from cotenant.kube.agent.cards.cgroups import Owner
from cotenant.kube.agent.cards.survey import Sight
from cotenant.kube.agent.limits.enforcement import Enforcement
from cotenant.kube.agent.node_pods import PodsNow
from cotenant.kube.agent.slots.node_slots import NodeSlot
from cotenant.observe.view import GpuView, GrantView, NodeView, ShareView, View


def snapshot(
    node: str,
    sight: Sight | None,
    pods: PodsNow,
    slots: Iterable[NodeSlot],
    now: float,
    unlimited: Mapping[str, frozenset[int]] = MappingProxyType({}),
    enforcement: Enforcement | None = None,
) -> View:
    """`sight`: None before the first survey. `now`: seconds of CLOCK_MONOTONIC. `unlimited`: processes that
    are not held to their limit, by slot. `enforcement`: what holds the others; None where that is not known.
    """
    gpus = tuple(_gpu(card, node, sight, pods) for card in sight.cards) if sight is not None else ()
    busy = _busy_of_pods(sight)
    found = (
        _grant(slot, busy, pods.ids, now, unlimited.get(slot.key, frozenset()), enforcement) for slot in slots
    )
    offered = enforcement.offered if enforcement is not None else ""
    return View((NodeView(node, gpus, enforcer=offered),), tuple(each for each in found if each is not None))


def _gpu(card: CardReading, node: str, sight: Sight, pods: PodsNow) -> GpuView:
    uuid = card.gpu.uuid
    return GpuView(
        card.gpu,
        node,
        problem=card.problem,
        outside=sight.outside.get(uuid, 0),
        shares=pods.shares.get(uuid, ()),
        used=card.used,
        utilization=card.utilization,
    )


def _grant(
    slot: NodeSlot,
    busy: Mapping[str, Mapping[str, Sequence[tuple[Owner, int]]]],
    ids: Mapping[tuple[str, str], str],
    now: float,
    unlimited: frozenset[int],
    enforcement: Enforcement | None,
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
                    utilization=_busy(busy.get(limit.uuid), owner.uid, id),
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
            enforcer=enforcement.holds(slot.key) if enforcement is not None else "",
            enforcer_asked=enforcement.asked if enforcement is not None else "",
            over_bytes=enforcement.over_bytes(slot.key) if enforcement is not None else 0,
            denied=usage.denied,
            over=usage.over,
            idle_seconds=max(0.0, now - usage.last_active / 1e9) if usage.last_active else None,
            processes=tuple(process.pid for process in usage.processes),
            in_use=bool(usage.processes) or slot.is_held(),
            unlimited=tuple(sorted(unlimited)),
        )
    return None


def _busy_of_pods(sight: Sight | None) -> dict[str, dict[str, list[tuple[Owner, int]]]]:
    """Returns percent of each GPU's time by pod UID, for its containers."""
    found: dict[str, dict[str, list[tuple[Owner, int]]]] = {}
    for uuid, by_owner in sight.busy.items() if sight is not None else ():
        of_pods = found.setdefault(uuid, {})
        for owner, percent in by_owner.items():
            of_pods.setdefault(owner.uid, []).append((owner, percent))
    return found


def _busy(by_pod: Mapping[str, Sequence[tuple[Owner, int]]] | None, uid: str, id: str) -> int | None:
    """Percent of the GPU's time that the container uses; None where it is not known."""
    if by_pod is None or not id:
        return None
    return min(100, sum(percent for owner, percent in by_pod.get(uid, ()) if owner.is_container(id)))

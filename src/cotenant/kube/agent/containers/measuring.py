"""Completes the view of a node by what the driver alone reports, and by the names of workloads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from cotenant.kube.agent.containers.attribution import ByGpu, ContainerKey, Held
from cotenant.kube.agent.containers.use import Measured
from cotenant.kube.agent.node_pods import PodsNow
from cotenant.kube.api.objects import Pod
from cotenant.observe.view import GrantView, ShareView, View

_NOTHING: ByGpu = {}


def with_measured(view: View, measured: Measured, pods: PodsNow, drained: Collection[str] = ()) -> View:
    """Adds to grants what their slots do not count, and the containers that have no slot. Slots of pods that
    are gone come first, so that a pod with the same name as an earlier one comes after it.
    """
    by_uid = pods.by_uid
    peaks = {(each.uid, each.name): sizes for each, sizes in measured.peaks.items()}
    grants = [
        _with_uncounted(
            grant,
            measured.uncounted.get(grant.slot, _NOTHING),
            peaks.get((grant.id, grant.container), _NOTHING),
        )
        for grant in view.grants
    ]
    others = tuple(
        _other(each, held, measured.peaks.get(each, _NOTHING), by_uid[each.uid])
        for each, held in measured.others.items()
        if each.uid in by_uid
    )
    nodes = tuple(
        replace(
            node,
            gpus=tuple(
                replace(each, drained=True) if each.gpu.uuid in drained else each for each in node.gpus
            ),
        )
        if drained
        else node
        for node in view.nodes
    )
    return replace(
        view,
        nodes=nodes,
        grants=tuple(sorted(grants, key=lambda grant: grant.id in by_uid)),
        others=others,
        workloads=pods.workloads,
    )


def _with_uncounted(grant: GrantView, uncounted: ByGpu, peaks: ByGpu) -> GrantView:
    """Memory on a GPU that was not granted gets a share without a limit."""
    if not uncounted and not peaks:
        return grant
    shares = [_share(share, uncounted, peaks) for share in grant.shares]
    granted = {share.uuid for share in shares}
    shares += [
        ShareView(grant.id, grant.name, uuid, 0, used=size, peak=max(size, peaks.get(uuid, 0)))
        for uuid, size in uncounted.items()
        if uuid not in granted
    ]
    return replace(grant, shares=tuple(shares))


def _share(share: ShareView, uncounted: ByGpu, peaks: ByGpu) -> ShareView:
    used = share.used + uncounted.get(share.uuid, 0)
    return replace(share, used=used, peak=max(share.peak, used, peaks.get(share.uuid, 0)))


def _other(each: ContainerKey, held: Held, peaks: ByGpu, pod: Pod) -> GrantView:
    meta = pod.metadata
    uuids: Mapping[str, None] = dict.fromkeys((*held.bytes, *peaks))
    shares = tuple(
        ShareView(
            each.uid,
            meta.name,
            uuid,
            0,
            used=held.bytes.get(uuid, 0),
            peak=peaks.get(uuid, 0),
            utilization=held.busy.get(uuid),
        )
        for uuid in uuids
    )
    return GrantView(each.uid, meta.name, shares, meta.namespace, container=each.name)

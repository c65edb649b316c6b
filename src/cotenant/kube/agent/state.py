"""Encodes the view of a node for /state, with what the kubelet has on record.

Nothing in it is secret.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.kube.agent.classic.pod_resources import Holders
from cotenant.observe.state import LONGEST_REASON, MOST_PIDS, AgentState, GpuState, SlotState, encode
from cotenant.observe.view import GpuView, GrantView, View


def state(version: str, waits: Sequence[str], view: View, kubelet: Holders | None) -> bytes:
    """`waits`: what the agent is not ready for. `kubelet`: None if it does not answer."""
    return encode(
        AgentState(
            version=version,
            waits=tuple(reason[:LONGEST_REASON] for reason in waits),
            slots=tuple(map(_slot, view.grants)),
            kubelet=None
            if kubelet is None
            else {device: tuple(map(str, of)) for device, of in kubelet.items()},
            cards=tuple(map(_gpu, view.gpus)),
            enforcer=next((node.enforcer for node in view.nodes), ""),
        )
    )


def _slot(grant: GrantView) -> SlotState:
    return SlotState(
        device=grant.slot,
        uid=grant.id,
        namespace=grant.namespace,
        pod=grant.name,
        container=grant.container,
        mode=grant.mode,
        limits={share.uuid: share.memory for share in grant.shares},
        used={share.uuid: share.used for share in grant.shares},
        held=bool(grant.in_use),
        unlimited=grant.unlimited[:MOST_PIDS],
        enforcer_asked=grant.enforcer_asked,
        enforcer=grant.enforcer,
        over=grant.over_bytes,
    )


def _gpu(view: GpuView) -> GpuState:
    problem = None if view.problem is None else view.problem[:LONGEST_REASON]
    return GpuState(view.gpu.uuid, view.gpu.index, view.gpu.memory, view.used or 0, problem)

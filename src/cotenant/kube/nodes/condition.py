"""Decides the node condition `cotenant.dev/GPUsHealthy` from the GPUs, and patches it into a node's status.

The annotation `cotenant.dev/gpus` is for programs; the condition is what `kubectl describe node` and alerts
show. It is written only when it changes: `lastHeartbeatTime` is the time of the last change, not of the last
survey. The kubelet keeps conditions that are not its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from cotenant.dialects import names
from cotenant.kube.api.objects import Node
from cotenant.kube.api.timestamps import timestamp
from cotenant.kube.nodes.gpus import NodeCard

_LONGEST_TROUBLE = 200
"""Characters of what the driver says."""
_MOST_NAMED = 8
"""GPUs that a message names; the annotation has all of them."""


@dataclass(frozen=True, slots=True)
class GpusCondition:
    """The condition without its times."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


def gpus_condition(
    cards: Sequence[NodeCard], trouble: str | None, drained: AbstractSet[str]
) -> GpusCondition:
    """`trouble` says why the driver does not answer: then nobody knows how its GPUs are. A GPU that people
    drained is healthy; the message names it, since it takes no new grant either.
    """
    if trouble is not None:
        return GpusCondition("Unknown", "DriverNotAnswering", trouble[:_LONGEST_TROUBLE])
    if not cards:
        return GpusCondition("True", "NoGPUs", "the driver reports no GPU on this node")
    sick = [f"{_name(card)}: {card.problem}" for card in cards if card.problem is not None]
    out = [_name(card) for card in cards if card.problem is None and card.uuid in drained]
    also = f"; drained, which is no fault: {_some(out, ', ')}" if out else ""
    if sick:
        return GpusCondition("False", "GPUUnhealthy", f"{_some(sick, '; ')}{also}")
    well = "the GPU is healthy" if len(cards) == 1 else f"all {len(cards)} GPUs are healthy"
    return GpusCondition("True", "GPUsHealthy", f"{well}{also}")


def condition_patch(node: Node, want: GpusCondition, now: datetime) -> dict[str, str] | None:
    """Returns the item of a strategic merge patch of `status.conditions` that makes the condition what is
    wanted; None if it is. `lastTransitionTime` is set only if the status changes.
    """
    found = [each for each in node.status.conditions if each.type == names.GPUS_HEALTHY]
    same_status = bool(found) and found[0].status == want.status
    if same_status and (found[0].reason, found[0].message) == (want.reason, want.message):
        return None
    at = timestamp(now)
    patch = {
        "type": names.GPUS_HEALTHY,
        "status": want.status,
        "reason": want.reason,
        "message": want.message,
        "lastHeartbeatTime": at,
    }
    return patch if same_status else {**patch, "lastTransitionTime": at}


def removal(node: Node) -> dict[str, Any] | None:
    """Returns the item of a strategic merge patch that removes the condition; None if the node has none."""
    if any(each.type == names.GPUS_HEALTHY for each in node.status.conditions):
        return {"$patch": "delete", "type": names.GPUS_HEALTHY}
    return None


def _name(card: NodeCard) -> str:
    return f"GPU {card.index} ({card.uuid})"


def _some(texts: Sequence[str], between: str) -> str:
    more = len(texts) - _MOST_NAMED
    return between.join(texts[:_MOST_NAMED]) + (f"{between}and {more} more" if more > 0 else "")

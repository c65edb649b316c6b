"""Gives kube-scheduler a reason for each node on which a pod does not fit the GPUs; it shows them to people.

The texts are constant and contain no figures: kube-scheduler tries a pod again at once whenever a reason
changes. Figures are in the pod's events.
"""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.kube.scheduling.scan import Verdict

REASONS: Mapping[Verdict, str] = {
    Verdict.NO_CARDS: "no GPU that Cotenant knows of",
    Verdict.UNKNOWN_MODEL: "no GPU of the model or UUID that is wished for",
    Verdict.TOO_BIG: "GPU demand larger than the node's cards",
    Verdict.NO_ROOM: "no room on the GPUs",
    Verdict.HELD: "room on the GPUs is held for a pod ahead in the line",
}
BEING_BOUND = "the pod is being bound to another node"
"""What a pod gets whose earlier Binding has not been settled; it may need room again when it is."""


def names_our_reason(message: str) -> bool:
    """Reports whether a scheduler's message repeats an answer of our extender that room can change."""
    return BEING_BOUND in message or any(reason in message for reason in REASONS.values())

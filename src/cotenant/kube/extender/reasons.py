"""What kube-scheduler is told, and shows to people, of a node where a pod has no room on the cards."""

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
"""Constant, without figures: kube-scheduler tries again at once whenever a reason changes. Figures are in the
pod's events."""

"""Writes advice as JSON, with names that scripts read: they never change. Bytes are integers, times ISO
8601.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from cotenant.advice.gathered import Gathered
from cotenant.core.rightsizing.advice import Advice, Report
from cotenant.core.rightsizing.cards import Filled


def document(
    report: Report, gathered: Gathered, cards: tuple[Filled | None, Filled] | None, total: int
) -> dict[str, Any]:
    """Makes the whole document. `cards` are those that are needed now and with the advice, of `total`."""
    tested, rules = report.tested, report.rules
    return {
        "source": gathered.source,
        "from": moment(report.first),
        "to": moment(report.end),
        "samples": gathered.samples,
        "rejected": [{"why": each.why, "rows": each.rows, "line": each.line} for each in gathered.rejected],
        "notes": list(gathered.notes),
        "strategy": rules.strategy,
        "minHistorySeconds": rules.min_history,
        "headroom": {
            "base": report.headroom.base,
            "reach": report.headroom.reach,
            "learnedFrom": report.learned_from,
        },
        "backtest": None
        if tested is None
        else {"miss": tested.miss, "slack": tested.slack, "containers": tested.containers},
        "advice": [one(each) for each in report.advice],
        "containers": list(containers(report.advice)),
        "saved": sum(each.saved for each in report.advice),
        "cards": None
        if cards is None
        else {
            "now": None if cards[0] is None else cards[0].used,
            "advised": cards[1].used,
            "withoutRoom": cards[1].left_over,
            "there": total,
        },
    }


def one(advice: Advice) -> dict[str, Any]:
    group, evidence = advice.group, advice.evidence
    return {
        "workload": group.owner.workload,
        "version": group.owner.version,
        "container": group.owner.container,
        "instances": list(group.instances),
        "now": advice.now,
        "advised": advice.advised,
        "target": advice.target,
        "gpus": advice.gpus,
        "headroom": advice.headroom,
        "confidence": advice.confidence if advice.advised is not None else None,
        "refused": advice.reason,
        "why": advice.why,
        "saved": advice.saved,
        "evidence": {
            "peak": evidence.peak,
            "peakAt": moment(evidence.peak_at),
            "peakOf": evidence.peak_of,
            "samples": evidence.samples,
            "historySeconds": evidence.history,
            "coldStarts": evidence.starts,
            "instances": evidence.instances,
            "running": evidence.alive,
            "deniedAllocations": group.denied,
        },
    }


def containers(advice: Sequence[Advice]) -> Iterator[dict[str, Any]]:
    """Lists every single container (or pod) with the figure that holds for it."""
    for each in advice:
        owner = each.group.owner
        for instance in each.group.instances:
            yield {
                "workload": owner.workload,
                "version": owner.version,
                "container": owner.container or instance,
                "instance": instance,
                "advised": each.advised,
                "target": each.target,
            }


def moment(seconds: float) -> str | None:
    """Formats a Unix time; None if it is beyond what a calendar has."""
    try:
        return datetime.fromtimestamp(round(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, OSError, ValueError):
        return None

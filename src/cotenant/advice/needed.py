"""Counts the GPUs that today's containers need, as they ask now and as they are advised to."""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.advice.gathered import Gathered
from cotenant.core.gpu import GPU
from cotenant.core.rightsizing.advice import Report
from cotenant.core.rightsizing.cards import Asked, Filled, fill


def cards_needed(
    report: Report, gathered: Gathered, machines: Sequence[Sequence[GPU]], others: Sequence[Asked] = ()
) -> tuple[Filled | None, Filled] | None:
    """Returns how many GPUs are filled now and with the targets; None if no GPUs are known.

    A container without advice keeps what it has. The first is None if what some ask for now is not known.
    `others` are containers that no history is about.
    """
    if not any(machines) or not gathered.live:
        return None
    before: list[Asked] | None = list(others)
    after = list(others)
    for each in report.advice:
        running = each.evidence.alive
        present = Asked(None, each.gpus) if gathered.whole and not each.group.sliced else None
        if present is None and each.now is not None:
            present = Asked(each.now, each.gpus)
        target = present if each.target is None else Asked(each.target, each.gpus)
        if present is None:
            before = None
        if before is not None and present is not None:
            before += [present] * running
        if target is not None:
            after += [target] * running
    return (None if before is None else fill(machines, before)), fill(machines, after)

"""Why a pod waits, in a sentence for people. A scheduler is told constant words instead (see Verdict)."""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.core.demand import Demand
from cotenant.kube.scheduling.fleet import Fleet
from cotenant.kube.scheduling.matrix import Rows
from cotenant.kube.scheduling.scan import scan


def why(fleet: Fleet, uid: str, demands: Sequence[Demand], rows: Rows) -> str:
    """One sentence with figures."""
    verdicts = scan(fleet, uid, demands, rows)
    return f"no room on {len(verdicts)} nodes"

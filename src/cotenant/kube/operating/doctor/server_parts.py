"""Checks that every part of the server that leads works: a kind that it may not list, a part that failed."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.core.finding import ERROR, Finding, Kind
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.remedies import restore
from cotenant.kube.operating.doctor.subject import ClusterSubject

NOT_READY = Kind("part-not-ready", ERROR, "what this part of the server does is not done")
_MEANS = {"scaler": "no workload is scaled or released; pods are placed nevertheless"}
_LASTING = 12.0
"""Seconds. A part reads again by itself what it could not read."""


def parts(facts: Facts) -> Iterator[Finding]:
    space = facts.installed.namespace
    for server, told in facts.ledgers.items():
        if not told.leads:
            continue
        for part, reason in told.waits.items():
            rights = "forbidden" in reason.lower()
            do = restore(space, "server") if rights else f"kubectl logs -n {space} {server}"
            yield NOT_READY.at(
                f"part {part}",
                f"the part {part} of the server {space}/{server}, which leads, is not ready: {reason}",
                do,
                means=_MEANS.get(part),
            )


SUBJECT = ClusterSubject(checks=(parts,), lasting={NOT_READY.name: _LASTING})

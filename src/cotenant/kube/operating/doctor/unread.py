"""Names what the caller may not read: nothing is known of it, so nothing is reported as wrong there."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.core.finding import WARNING, Finding, Kind
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.subject import ClusterSubject

NOT_LOOKED_AT = Kind("not-looked-at", WARNING, "something may be wrong there that is not reported here")


def unread(facts: Facts) -> Iterator[Finding]:
    for what in facts.unread:
        yield NOT_LOOKED_AT.at(
            what.partition(":")[0],
            f"could not be read: {what}",
            "run it again with the rights of a cluster administrator",
        )


SUBJECT = ClusterSubject(checks=(unread,))

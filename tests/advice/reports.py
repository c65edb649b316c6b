"""Reports for tests of what is made of them."""

from __future__ import annotations

from dataclasses import replace

from core.rightsizing.made import GIB, track

from cotenant.advice.gathered import Gathered
from cotenant.core.rightsizing.advice import Report, Rules, advise
from cotenant.core.rightsizing.groups import Owner, pooled

STEP = 300.0
RULES = Rules(min_history=144 * STEP, starts_are_seen=False, headroom=0.25)


def gathered(now: int | None = 24 * GIB, **names: str) -> Gathered:
    """Two containers of a Deployment, one of which has too little history, and a workload of another kind."""
    web, other = names.get("web", "team/deployment/web"), names.get("other", "team/pod/notebook")
    tracks = {
        Owner(web, "v1", "server"): [track([8 * GIB] * 300, "web-1"), track([8 * GIB] * 300, "web-2")],
        Owner(web, "v1", "draft"): [track([GIB] * 10, "web-1", first=290)],
        Owner(other, "", "main"): [track([2 * GIB] * 300, "notebook")],
    }
    groups = [replace(each, now=now) for each in pooled(tracks)]
    return Gathered(tuple(groups), STEP, "a test", starts_are_seen=False, samples=910)


def report(found: Gathered | None = None, rules: Rules = RULES) -> Report:
    found = found or gathered()
    return advise(found.groups, found.step, rules)

"""Examine, repair, examine again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

from cotenant.core.errors import CotenantError
from cotenant.kube.api.client import Client
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import Finding, Outcome
from cotenant.kube.operating.doctor.findings import LASTING, findings
from cotenant.kube.operating.doctor.gathering import gather
from cotenant.kube.operating.doctor.repairs.table import REPAIRS

SECOND_LOOK = 1.0
"""Seconds after which a finding must still be there: pods come and go while they are listed."""


async def check(
    client: Client, clock: Callable[[], datetime], version: str, *, fix: bool
) -> tuple[Outcome, ...]:
    facts, current = await _diagnose(client, clock, version)
    if not fix:
        return tuple(Outcome(finding, left=True) for finding in current)
    seen = {finding.key: finding for finding in current}
    done = {finding.key: await _repair(client, facts, finding) for finding in current if finding.repair}
    if done:
        _, current = await _diagnose(client, clock, version)
        seen.update((finding.key, finding) for finding in current)
    left = {finding.key for finding in current}
    return tuple(Outcome(finding, key in left, done.get(key)) for key, finding in seen.items())


async def _diagnose(
    client: Client, clock: Callable[[], datetime], version: str
) -> tuple[Facts, tuple[Finding, ...]]:
    facts = await gather(client, clock(), version)
    first = {finding.key for finding in findings(facts)}
    if not first:
        return facts, ()
    await asyncio.sleep(max(LASTING.get(kind, SECOND_LOOK) for kind, _ in first))
    facts = await gather(client, clock(), version)
    return facts, tuple(finding for finding in findings(facts) if finding.key in first)


async def _repair(client: Client, facts: Facts, finding: Finding) -> str:
    try:
        return await REPAIRS[finding.repair or ""](client, facts, finding)
    except CotenantError as error:
        return f"could not: {error}"

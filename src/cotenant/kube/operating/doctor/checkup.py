"""Lists the subjects of the cluster's doctor and runs the checkup."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from cotenant.core.checkup import Checkup
from cotenant.core.finding import Finding, Outcome
from cotenant.kube.api.client import Client
from cotenant.kube.operating.doctor import (
    certificates,
    definitions,
    device_plugins,
    gpus,
    grants,
    leadership,
    ledger,
    namespaces,
    nodes,
    policies,
    scalers,
    schedulers,
    server_parts,
    slots,
    stranding,
    unread,
    versions,
    visible_gpus,
    webhook,
    workloads,
)
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.gather import gather
from cotenant.kube.operating.doctor.subject import ClusterSubject, Repair

SUBJECTS: Sequence[ClusterSubject] = (
    workloads.SUBJECT,
    leadership.SUBJECT,
    server_parts.SUBJECT,
    certificates.SUBJECT,
    webhook.SUBJECT,
    policies.SUBJECT,
    definitions.SUBJECT,
    schedulers.SUBJECT,
    namespaces.SUBJECT,
    grants.SUBJECT,
    ledger.SUBJECT,
    nodes.SUBJECT,
    versions.SUBJECT,
    device_plugins.SUBJECT,
    visible_gpus.SUBJECT,
    gpus.SUBJECT,
    slots.SUBJECT,
    stranding.SUBJECT,
    scalers.SUBJECT,
    unread.SUBJECT,
)
"""In the order in which their findings are best repaired."""

SECOND_LOOK = 1.0
"""Seconds after which a finding must still be there: pods come and go while they are listed."""


async def check(
    client: Client,
    clock: Callable[[], datetime],
    version: str,
    *,
    fix: bool,
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> tuple[Outcome, ...]:
    async def repair(function: Repair, facts: Facts, finding: Finding) -> str:
        return await function(client, facts, finding)

    checkup = Checkup(SUBJECTS, lambda: gather(client, clock(), version), repair, wait, SECOND_LOOK)
    return await checkup.run(fix=fix)

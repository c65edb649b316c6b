"""Servers whose ledger is not what the grants say start anew, and read all grants.

Running pods do not notice it, GPU pods that are created meanwhile are served by the server that stays, and
who waits keeps its place, which is by priority and age.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from cotenant.kube.api.client import Client
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import Finding
from cotenant.kube.operating.doctor.gathering import gather
from cotenant.kube.operating.doctor.ledger_checks import leaders, ledger
from cotenant.kube.operating.doctor.repairs import rollout
from cotenant.kube.operating.doctor.server_checks import leads_surely

DEPLOYMENT = "cotenant-server"
_LOOKS = 15
"""For a new leader, one a second: the old one gave up the Lease when it ended."""
_LOOK = 1.0


async def servers(client: Client, facts: Facts, finding: Finding) -> str:
    """One restart mends all differences: for the next of them there is nothing left to do."""
    now = await gather(client, facts.now, facts.version)
    if finding.key not in {each.key for each in (*leaders(now), *ledger(now))}:
        return "the servers' ledger is right by now"
    await rollout.restart(client, replace(now, now=facts.now), DEPLOYMENT)
    await rollout.wait(client, now, DEPLOYMENT)
    await _until_led(client, facts)
    return f"the Deployment {facts.installed.namespace}/{DEPLOYMENT} is restarted: it read all grants anew"


async def _until_led(client: Client, facts: Facts) -> None:
    """So that the next look does not tell of a moment without a leader."""
    for _ in range(_LOOKS):
        if leads_surely(await gather(client, facts.now, facts.version)):
            return
        await asyncio.sleep(_LOOK)

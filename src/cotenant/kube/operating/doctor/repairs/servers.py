"""Servers whose ledger is not what the grants say start anew, and read all grants.

Running pods do not notice it, GPU pods that are created meanwhile are served by the server that stays, and
who waits keeps its place, which is by priority and age.
"""

from __future__ import annotations

from dataclasses import replace

from cotenant.kube.client import Client
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import Finding
from cotenant.kube.operating.doctor.gathering import gather
from cotenant.kube.operating.doctor.ledger_checks import leaders, ledger
from cotenant.kube.operating.doctor.repairs import rollout

DEPLOYMENT = "cotenant-server"


async def servers(client: Client, facts: Facts, finding: Finding) -> str:
    """One restart mends all differences: for the next of them there is nothing left to do."""
    now = await gather(client, facts.now, facts.version)
    if finding.key not in {each.key for each in (*leaders(now), *ledger(now))}:
        return "the servers' ledger is right by now"
    await rollout.restart(client, replace(now, now=facts.now), DEPLOYMENT)
    await rollout.wait(client, now, DEPLOYMENT)
    return f"the Deployment {facts.installed.namespace}/{DEPLOYMENT} is restarted: it read all grants anew"

"""Compares the leader's ledger with the grants on the API server, and restarts the servers if they differ.

A server that starts reads all grants again. Running pods do not notice the restart. GPU pods that are created
meanwhile are served by the server that stays. Waiting pods keep their place, which is by priority and age.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from cotenant.core.finding import ERROR, Finding, Kind
from cotenant.core.units import format_bytes
from cotenant.kube.api.client import Client
from cotenant.kube.operating.doctor import rollout
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.gather import gather
from cotenant.kube.operating.doctor.leadership import leads_surely
from cotenant.kube.operating.doctor.remedies import FIX
from cotenant.kube.operating.doctor.subject import ClusterSubject
from cotenant.kube.pods.demand import readable_grant
from cotenant.observe.state import Charge

DEPLOYMENT = "cotenant-server"
_RESTART = f"{FIX}: it restarts the servers, which read all grants again"
_LOOKS = 15
"""How often a new leader is looked for, once a second: the old one releases the Lease when it terminates."""
_LOOK = 1.0

TWO_LEAD = Kind("two-lead", ERROR, "GPUs may be granted twice; each agent still refuses what does not fit")
LEAKED = Kind("charge-leaked", ERROR, "that memory stays unused")
MISSING = Kind("charge-missing", ERROR, "that memory may be granted a second time")
DIFFERS = Kind("charge-differs", ERROR, "memory stays unused, or may be granted a second time")


def leaders(facts: Facts) -> Iterator[Finding]:
    leading = sorted(name for name, told in facts.ledgers.items() if told.leads)
    if len(leading) > 1:
        found = f"several servers report that they lead: {', '.join(leading)}"
        yield TWO_LEAD.at("server", found, _RESTART, "servers")


def charges(facts: Facts) -> Iterator[Finding]:
    """A bind in progress is charged before it is seen: such differences must last. A ledger that a new leader
    has not read yet is not compared.
    """
    if facts.is_unread("pods"):
        return
    known, pods = _granted(facts), {pod.metadata.uid: pod for pod in facts.pods}
    for server, told in facts.ledgers.items():
        if not told.leads or (told.term is not None and not told.term.begun):
            continue
        for uid in sorted(told.charged.keys() | known.keys()):
            here, there = told.charged.get(uid), known.get(uid)
            if here != there:
                pod = pods.get(uid)
                who = f"{pod.metadata.namespace}/{pod.metadata.name}" if pod is not None else f"UID {uid}"
                yield _difference(server, who, here, there)


def _difference(server: str, who: str, here: Charge | None, there: Charge | None) -> Finding:
    if there is None:
        kind, found = LEAKED, f"charges {_amount(here)} for {who}, which holds no grant"
    elif here is None:
        kind, found = MISSING, f"charges nothing for {who}, which was granted {_amount(there)}"
    else:
        kind, found = DIFFERS, f"charges {_amount(here)} for {who}, which was granted {_amount(there)}"
    return kind.at(f"pod {who}", f"the ledger of {server} {found}", _RESTART, "servers")


def _granted(facts: Facts) -> dict[str, Charge]:
    found: dict[str, Charge] = {}
    for pod in facts.pods:
        grant = readable_grant(pod)
        if grant is None:
            continue
        gpus: dict[str, int] = {}
        for slot in grant.slots:
            for share in slot.shares:
                gpus[share.uuid] = gpus.get(share.uuid, 0) + share.memory
        found[grant.uid] = Charge(pod.spec.node_name, gpus)
    return found


def _amount(told: Charge | None) -> str:
    return f"{format_bytes(sum(told.gpus.values()))} on {told.node}" if told is not None else "nothing"


async def restart_servers(client: Client, facts: Facts, finding: Finding) -> str:
    """One restart repairs all differences: for the next of them there is nothing left to do."""
    now = await gather(client, facts.now, facts.version)
    if finding.key not in {each.key for each in (*leaders(now), *charges(now))}:
        return "nothing was left to do: the servers' ledger is right"
    await rollout.restart(client, replace(now, now=facts.now), DEPLOYMENT)
    await rollout.wait(client, now, DEPLOYMENT)
    await _until_led(client, facts)
    return f"restarted the Deployment {facts.installed.namespace}/{DEPLOYMENT}, which read all grants again"


async def _until_led(client: Client, facts: Facts) -> None:
    """Waits for a leader, so that the next look does not report a moment without one."""
    for _ in range(_LOOKS):
        if leads_surely(await gather(client, facts.now, facts.version)):
            return
        await asyncio.sleep(_LOOK)


SUBJECT = ClusterSubject(
    checks=(leaders, charges), repairs={"servers": restart_servers}, lasting={LEAKED.name: 12.0}
)

"""The ledger of the server that leads against the grants that the API server knows: both say the same."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.core.units import format_bytes
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import ERROR, FIX, Finding
from cotenant.kube.operating.status.census import readable_grant
from cotenant.observe.state import Charge

REPAIR = "servers"
"""A server that starts reads all grants anew; pods that run do not notice it."""


def leaders(facts: Facts) -> Iterator[Finding]:
    leading = sorted(name for name, told in facts.ledgers.items() if told.leads)
    if len(leading) > 1:
        yield Finding(
            "two-lead",
            "server",
            ERROR,
            f"several servers say that they lead: {', '.join(leading)}",
            "cards may be granted twice; each agent still refuses what does not fit",
            FIX,
            REPAIR,
        )


def ledger(facts: Facts) -> Iterator[Finding]:
    """A bind under way is charged before it is seen: only what a second look finds too is told."""
    if facts.is_unread("pods"):
        return
    known, pods = _granted(facts), {pod.metadata.uid: pod for pod in facts.pods}
    for server, told in facts.ledgers.items():
        if not told.leads:
            continue
        for uid in sorted(told.charged.keys() | known.keys()):
            here, there = told.charged.get(uid), known.get(uid)
            if here == there:
                continue
            pod = pods.get(uid)
            who = f"{pod.metadata.namespace}/{pod.metadata.name}" if pod is not None else f"UID {uid}"
            yield _difference(server, who, here, there)


def _difference(server: str, who: str, here: Charge | None, there: Charge | None) -> Finding:
    if there is None:
        kind, found = "charge-leaked", f"charges {_amount(here)} for {who}, which holds no grant"
        means = "that room lies idle"
    elif here is None:
        kind, found = "charge-missing", f"charges nothing for {who}, which was granted {_amount(there)}"
        means = "that room may be granted once more"
    else:
        kind = "charge-differs"
        found = f"charges {_amount(here)} for {who}, which was granted {_amount(there)}"
        means = "room lies idle, or may be granted once more"
    return Finding(kind, f"pod {who}", ERROR, f"the ledger of {server} {found}", means, FIX, REPAIR)


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

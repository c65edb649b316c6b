"""The ledger of the server that leads against the grants that the API server knows: both say the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cotenant.core.units import format_bytes
from cotenant.kube.operating.census import readable_grant
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import ERROR, Finding


def leaders(facts: Facts) -> Iterator[Finding]:
    leading = sorted(name for name, ledger in facts.ledgers.items() if ledger.get("leads"))
    if len(leading) > 1:
        yield Finding(
            "two-lead",
            "server",
            ERROR,
            f"several servers say that they lead: {', '.join(leading)}",
            "cards may be granted twice; each agent still refuses what does not fit",
            f"kubectl rollout restart -n {facts.installed.namespace} deployment/cotenant-server",
        )


def ledger(facts: Facts) -> Iterator[Finding]:
    """A bind under way is charged before it is seen: only what a second look finds too is told."""
    known, names_ = _granted(facts), {pod.metadata.uid: pod for pod in facts.pods}
    for server, told in facts.ledgers.items():
        if not told.get("leads"):
            continue
        charged: Mapping[str, Any] = told.get("charged") or {}
        for uid in sorted(charged.keys() | known.keys()):
            here, there = charged.get(uid), known.get(uid)
            if here == there:
                continue
            pod = names_.get(uid)
            who = f"{pod.metadata.namespace}/{pod.metadata.name}" if pod is not None else f"UID {uid}"
            yield _difference(facts, server, who, here, there)


def _difference(
    facts: Facts, server: str, who: str, here: Mapping[str, Any] | None, there: Mapping[str, Any] | None
) -> Finding:
    if there is None:
        kind, found = "charge-leaked", f"charges {_amount(here)} for {who}, which holds no grant"
        means = "that room lies idle"
    elif here is None:
        kind, found = "charge-missing", f"charges nothing for {who}, which was granted {_amount(there)}"
        means = "that room may be granted once more"
    else:
        kind, found = (
            "charge-differs",
            f"charges {_amount(here)} for {who}, which was granted {_amount(there)}",
        )
        means = "room lies idle, or may be granted once more"
    return Finding(
        kind,
        f"pod {who}",
        ERROR,
        f"the ledger of {server} {found}",
        means,
        "a server that starts reads all grants anew: kubectl rollout restart "
        f"-n {facts.installed.namespace} deployment/cotenant-server",
    )


def _granted(facts: Facts) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for pod in facts.pods:
        grant = readable_grant(pod)
        if grant is None:
            continue
        gpus: dict[str, int] = {}
        for slot in grant.slots:
            for share in slot.shares:
                gpus[share.uuid] = gpus.get(share.uuid, 0) + share.memory
        found[grant.uid] = {"node": pod.spec.node_name, "gpus": gpus}
    return found


def _amount(told: Mapping[str, Any] | None) -> str:
    gpus = (told or {}).get("gpus") or {}
    return f"{format_bytes(sum(gpus.values()))} on {(told or {}).get('node')}"

"""From facts to what is wrong: a table of checks, one for each kind of trouble."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from cotenant.kube.operating.doctor import (
    grant_checks,
    ledger_checks,
    node_checks,
    policy_checks,
    scheduler_checks,
    server_checks,
    sight_checks,
    slot_checks,
    webhook_checks,
)
from cotenant.kube.operating.doctor.facts import Facts
from cotenant.kube.operating.doctor.finding import Finding

CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    server_checks.lease,
    server_checks.endpoint,
    webhook_checks.certificate,
    webhook_checks.webhook,
    policy_checks.policies,
    scheduler_checks.schedulers,
    server_checks.modes,
    server_checks.quotas,
    grant_checks.over_granted,
    grant_checks.unreadable,
    grant_checks.early,
    grant_checks.without_grant,
    grant_checks.card_gone,
    ledger_checks.leaders,
    ledger_checks.ledger,
    node_checks.annotation,
    node_checks.capacity,
    node_checks.agents,
    node_checks.versions,
    node_checks.second_plugin,
    sight_checks.sees_cards,
    node_checks.drained_gone,
    node_checks.sick,
    slot_checks.slots,
    server_checks.unread,
)
"""In the order in which they are best mended."""

LASTING: Mapping[str, float] = {"slot-left": 12.0, "charge-leaked": 12.0}
"""Seconds for which some must be there: agents clean up every ten, and a bind takes its time."""


def findings(facts: Facts) -> tuple[Finding, ...]:
    return tuple(finding for check in CHECKS for finding in check(facts))
